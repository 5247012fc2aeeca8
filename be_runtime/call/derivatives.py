"""Derivatives of an entry point by other entry points, or by Python functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, call_named
from be_runtime.xla import jax_vjp

Run = Callable[..., Any]


class Rule(NamedTuple):
    """A function of a derivative.

    Parameters
    ----------
    name : str
    function : callable
    attributes : tuple of str
        Attributes that it takes.
    is_kernel : bool
        True for an entry point, which takes and gives arrays in a fixed order.
    inputs : int
        Number of arrays that an entry point takes.
    """

    name: str
    function: Run
    attributes: tuple[str, ...]
    is_kernel: bool = False
    inputs: int = 0

    def bound(self, attributes: Mapping[str, Any]) -> BoundRule:
        """Return the rule with those of a call's attributes that it takes."""
        return BoundRule(self, tuple((name, attributes[name]) for name in self.attributes if name in attributes))


class BoundRule(NamedTuple):
    """A rule with the attributes of one call."""

    rule: Rule
    attributes: tuple[tuple[str, Any], ...]

    def __call__(self, *arrays: Any) -> Any:
        """Call the rule."""
        return call_named(f"the rule {self.rule.name}", self.rule.function, *arrays, **dict(self.attributes))


class Derivative(NamedTuple):
    """The rules of one function; none of them by default.

    Parameters
    ----------
    forward, backward : Rule or None
    transposes : tuple of (int, Rule)
        Inputs in which the function is linear, and the rule that maps cotangents of the results to those of the input.
    """

    forward: Rule | None = None
    backward: Rule | None = None
    transposes: tuple[tuple[int, Rule], ...] = ()

    def wrap(self, label: str, run: Run, results: int, attributes: Mapping[str, Any]) -> Run:
        """Return `run`, which gives so many results, with the backward rule if there is one."""
        if self.backward is None:
            return run
        forward = None if self.forward is None else self.forward.bound(attributes)
        return jax_vjp.custom_vjp(run, *_pair(label, run, results, forward, self.backward.bound(attributes)))

    def bound_transposes(self, attributes: Mapping[str, Any]) -> tuple[tuple[int, BoundRule], ...]:
        """Return the transposes with the attributes of a call."""
        return tuple((index, rule.bound(attributes)) for index, rule in self.transposes)


def _pair(label: str, run: Run, results: int, forward: BoundRule | None, backward: BoundRule) -> tuple[Run, Run]:
    """Make the two functions that ``jax.custom_vjp`` takes; they keep the inputs and what the forward rule adds."""

    def ahead(*arrays: Any) -> tuple[Any, Any]:
        if forward is None:
            return run(*arrays), (arrays, ())
        if not forward.rule.is_kernel:
            shown, residuals = forward(*arrays)
            return shown, (arrays, residuals)
        every = tuple(jax_vjp.leaves(forward(*arrays)))
        return every[0] if results == 1 else every[:results], (arrays, every[results:])

    def back(kept: tuple[Sequence[Any], Any], cotangents: Any) -> tuple[Any, ...]:
        arrays, residuals = kept
        if backward.rule.is_kernel:
            found = _by_kernel(label, backward, arrays, residuals, jax_vjp.leaves(cotangents))
        else:
            found = backward(arrays if forward is None else residuals, cotangents)
        return _checked(label, backward.rule.name, arrays, found)

    return ahead, back


def _by_kernel(
    label: str, backward: BoundRule, arrays: Sequence[Any], residuals: Sequence[Any], cotangents: Sequence[Any]
) -> list[Any]:
    """Call a backward kernel, whose results are the cotangents of the inputs that have derivatives, in order."""
    wanted = backward.rule.inputs
    given = [each for each in ((*residuals, *cotangents), (*arrays, *residuals, *cotangents)) if len(each) == wanted]
    if not given:
        raise ArgumentError(
            f"{label}: the backward rule {backward.rule.name} takes {wanted} arrays, but there are {len(arrays)} "
            f"inputs, {len(residuals)} residuals and {len(cotangents)} cotangents",
            hints=("it takes the residuals and the cotangents, or the inputs before them",),
        )
    results = iter(jax_vjp.leaves(backward(*given[0])))
    return [next(results, None) if jax_vjp.is_inexact(array) else None for array in arrays]


def _checked(label: str, name: str, arrays: Sequence[Any], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """Check that each cotangent is like its input."""
    if len(cotangents) != len(arrays):
        raise ArgumentError(f"{label}: the rule {name} gives {len(cotangents)} cotangents for {len(arrays)} inputs")
    for index, (array, cotangent) in enumerate(zip(arrays, cotangents, strict=True)):
        if cotangent is not None:
            check_like(label, name, index, array, cotangent)
    return tuple(cotangents)


def check_like(label: str, name: str, index: int, array: Any, cotangent: Any) -> None:
    """Check the cotangent of one input.

    Raises
    ------
    ArgumentError
        Its shape or dtype is another; the error names the rule.
    """
    if (cotangent.shape, cotangent.dtype) != (array.shape, array.dtype):
        raise ArgumentError(
            f"{label}: the rule {name} gives {cotangent.dtype}{list(cotangent.shape)} for argument {index}, which is "
            f"{array.dtype}{list(array.shape)}"
        )
