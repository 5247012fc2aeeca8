"""The rules of derivatives of a function: other entry points, or Python functions. They need no JAX.

`be_runtime.jax.calls` gives them to JAX, and `be_runtime.torch` to PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError, call_named
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import many

Run = Callable[..., Any]


class Rule(NamedTuple):
    """A rule of a derivative.

    Parameters
    ----------
    name : str
    function : callable
    attributes : tuple of str
        Attributes that it takes.
    is_kernel : bool
        True for an entry point, whose arrays have a fixed order.
    inputs : int
        Number of arrays that an entry point takes.
    """

    name: str
    function: Run
    attributes: tuple[str, ...]
    is_kernel: bool = False
    inputs: int = 0

    def bound(self, label: str, attributes: Mapping[str, Any], key: Hashable) -> BoundRule:
        """Bind the rule of a function to one call's attributes; equal attributes have one `key`."""
        known = {name: attributes[name] for name in self.attributes if name in attributes}
        return BoundRule(self, label, key, known)


@dataclass(frozen=True)
class BoundRule:
    """A rule of a function with the attributes of one call, which need not have a hash."""

    rule: Rule
    label: str
    key: Hashable
    attributes: Mapping[str, Any] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.label}: the rule {self.rule.name}"

    def __call__(self, *arrays: Any) -> Any:
        """Call the rule.

        Raises
        ------
        ArgumentError
            The rule doesn't take these arrays; the error names the rule.
        """
        try:
            return call_named(self, self.rule.function, *arrays, **self.attributes)
        except ArgumentError as error:
            if not self.rule.is_kernel:
                raise
            raise ArgumentError(f"{self.label}: the rule {error.message}", hints=error.hints) from None

    def check_like(self, what: str, array: Any, cotangent: Any) -> None:
        """Check the cotangent of an input.

        Raises
        ------
        ArgumentError
            The cotangent is not an array, or its shape or dtype differs from the input's.
        """
        given = getattr(cotangent, "shape", None), getattr(cotangent, "dtype", None)
        if given != (array.shape, array.dtype):
            shown = repr(cotangent) if None in given else f"{given[1]}{list(cotangent.shape)}"
            raise ArgumentError(f"{self} gives {shown} for {what}, which is {array.dtype}{list(array.shape)}")


class Transpose(NamedTuple):
    """A rule that maps cotangents of the results to the cotangent of one input, in one call.

    Parameters
    ----------
    rule : BoundRule
    argument : int
        Number of the input.
    counts : tuple of (int or None)
        Number of arrays of each input of the call; None for an array that is not in a sequence.
    """

    rule: BoundRule
    argument: int
    counts: tuple[int | None, ...]

    def __call__(self, like: Any, *arrays: Any) -> Any:
        """Return the cotangent of an input; its shape and dtype must equal `like`'s."""
        rest = iter(arrays)
        inputs = [next(rest) if count is None else [next(rest) for _ in range(count)] or None for count in self.counts]
        found = self.rule(*inputs)
        self.rule.check_like(f"argument {self.argument}", like, found)
        return found


class Derivative(NamedTuple):
    """The rules of one function, by default none.

    Parameters
    ----------
    forward, backward : Rule or None
    transposes : tuple of (int, Rule)
        Inputs in which the function is linear, each with the rule from cotangents of the results to the input's.
    """

    forward: Rule | None = None
    backward: Rule | None = None
    transposes: tuple[tuple[int, Rule], ...] = ()

    def map(self, change: Callable[[Rule], Rule]) -> Derivative:
        """Return the same derivative with each rule replaced."""
        forward, backward = (None if rule is None else change(rule) for rule in (self.forward, self.backward))
        return Derivative(forward, backward, tuple((index, change(rule)) for index, rule in self.transposes))

    def bound_transposes(
        self, label: str, arrays: Sequence[Any], attributes: Mapping[str, Any], key: Hashable
    ) -> tuple[tuple[int, Transpose], ...]:
        """Return the transposes for a call, by the number of the array among the arrays of the call."""
        counts = tuple(0 if a is None else len(a) if isinstance(a, tuple | list) else None for a in arrays)
        starts = [sum(1 if count is None else count for count in counts[:index]) for index in range(len(counts))]
        return tuple(
            (starts[index], Transpose(rule.bound(label, attributes, key), index, counts))
            for index, rule in self.transposes
            if index < len(counts) and counts[index] is None
        )


def asked_of(forward: BoundRule, results: Any, asked: Sequence[bool]) -> Any:
    """Return the results of a forward rule that the call asks for, and None in place of the others."""
    if not asked or not isinstance(results, tuple | list) or len(results) != len(asked):
        return results
    for index, (result, is_asked) in enumerate(zip(results, asked, strict=True)):
        if is_asked and result is None:
            raise ArgumentError(f"{forward} gives None for result {index}, which the call asks for")
    return tuple(result if is_asked else None for result, is_asked in zip(results, asked, strict=True))


def pull_by_kernel(
    backward: BoundRule, arrays: Sequence[Any], kept: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Call a backward kernel; its results are the cotangents of the inputs with derivatives, in order.

    An array may be None or a sequence if the entry point takes it. The cotangent of an absent result is None.
    """
    wanted, flat = backward.rule.inputs, _leaves(arrays)
    choices = (
        (*before, *kept, *after)
        for after in (cotangents, [each for each in cotangents if each is not None])
        for before in ((), arrays, flat)
    )
    given = next((each for each in choices if len(each) == wanted), None)
    if given is None:
        raise ArgumentError(
            f"{backward} takes {many(wanted, 'array')}, but the call has {many(len(flat), 'input')}, "
            f"{many(len(kept), 'residual')} and {many(len(cotangents), 'cotangent')}",
            hints=("it takes the residuals and the cotangents, or the inputs before them",),
        )
    results = _leaves([backward(*given)])
    moving = sum(map(is_inexact, flat))
    if len(results) not in (moving, moving + sum(array is None for array in arrays)):
        counts = f"{many(len(results), 'result')}, but the call has {many(moving, 'input')} with derivatives"
        raise ArgumentError(f"{backward} gives {counts}")
    rest = iter(results)
    found: list[Any] = []
    for array in arrays:
        if array is None:
            if len(results) > moving:
                next(rest)  # skip the cotangent of an optional input that the call leaves out
            found.append(None)
        elif isinstance(array, tuple | list):
            found.append(type(array)(next(rest) if is_inexact(each) else None for each in array))
        else:
            found.append(next(rest) if is_inexact(array) else None)
    return found


def _leaves(arrays: Sequence[Any]) -> list[Any]:
    """Return all arrays, without absent ones."""
    found: list[Any] = []
    for each in arrays:
        if isinstance(each, tuple | list):
            found += [one for one in each if one is not None]
        elif each is not None:
            found.append(each)
    return found


def is_inexact(array: Any) -> bool:
    """Return whether an array has derivatives, because its elements are floats or complex numbers."""
    return _is_inexact(array.dtype)


@functools.cache
def _is_inexact(dtype: Hashable) -> bool:
    known = BY_NAME.get(str(dtype).rpartition(".")[2])  # PyTorch writes torch.float32
    return known is not None and known.kind in ("float", "complex")


def check_cotangents(backward: BoundRule, arrays: Sequence[Any], cotangents: Any) -> tuple[Any, ...]:
    """Check that each cotangent has the shape and dtype of its input."""
    if not isinstance(cotangents, tuple | list) or len(cotangents) != len(arrays):
        is_tuple = isinstance(cotangents, tuple | list)
        count = many(len(cotangents), "cotangent") if is_tuple else "no tuple of cotangents"
        raise ArgumentError(f"{backward} gives {count} for {many(len(arrays), 'input')}")
    for index, (array, cotangent) in enumerate(zip(arrays, cotangents, strict=True)):
        if cotangent is not None and hasattr(array, "shape"):  # JAX checks the cotangents of several arrays
            backward.check_like(f"argument {index}", array, cotangent)
    return tuple(cotangents)
