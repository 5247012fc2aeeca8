"""Derivatives of an entry point by other entry points or Python functions, and the axes that may be split."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, call_named
from be_runtime.jax import primitive
from be_runtime.jax.arrays import ArraySpec
from be_runtime.jax.split import Split
from be_runtime.signature.model import LEADING, Many, Param, Role


def split_of(
    params: Sequence[Param],
    operands: Sequence[tuple[Param, ArraySpec]],
    results: Sequence[tuple[Param, ArraySpec]],
) -> Split:
    """Return the names of all axes of a call's arrays, and the axes that may be split.

    Parameters
    ----------
    params : sequence of Param
        All parameters of the entry point, and its ``parallel`` and ``reduce`` tokens.
    operands, results : sequence of (Param, ArraySpec)
        Arrays of the call.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.signature.grammar import parse_spec
    >>> params = parse_spec(["arg[b n]", "ret[b n]", "parallel[b]"])
    >>> x = ArraySpec(BY_NAME["float32"], (8, 3))
    >>> split_of(params, [(params[0], x)], [(params[1], x)]).operands
    (('b', 'argument 0: n'),)
    """
    reduced = _names(params, Role.REDUCE)
    kept = {*_names(params, Role.PARALLEL), *reduced}
    if all(param.axes is not None and param.axes[:1] == (LEADING,) for param in params if param.role is Role.RET):
        kept.add(LEADING)
    named = [_factors(param, spec, kept, f"argument {i}") for i, (param, spec) in enumerate(operands)]
    places = {
        axis: (index, spec.ndim - len(param.axes or ()) + position)
        for index, (param, spec) in reversed(list(enumerate(operands)))
        for position, axis in enumerate(param.axes or ())
        if isinstance(axis, str) and axis != LEADING
    }
    return Split(
        operands=tuple(named),
        results=tuple(_factors(param, spec, kept, f"result {i}") for i, (param, spec) in enumerate(results)),
        free=tuple(
            sorted({factor for each in named for factor in each if factor in kept or factor.startswith(LEADING)})
        ),
        reduce=tuple(sorted(reduced)),
        scratch=tuple(str(p.axes[0]) for p in params if p.role is Role.SCRATCH and p.axes is not None),
        places=tuple(sorted(places.items())),
    )


def _names(params: Sequence[Param], role: Role) -> set[str]:
    return {str(axis) for param in params if param.role is role for axis in param.axes or ()}


def _factors(param: Param, spec: ArraySpec, kept: set[str], what: str) -> tuple[str, ...]:
    """Name the axes of one array: an axis that may be split by its own name, any other uniquely."""
    axes = param.axes
    if axes is None:
        return tuple(f"{what}: axis {index}" for index in range(spec.ndim))
    own = [axis for axis in axes if axis != LEADING]
    prefix = "" if LEADING in kept else f"{what}: "
    leading = tuple(f"{prefix}{LEADING}{index}" for index in range(spec.ndim - len(own)))
    return leading + tuple(
        (axis if axis in kept else f"{what}: {axis}") if isinstance(axis, str) else f"{what}: axis {index}"
        for index, axis in enumerate(own, start=len(leading))
    )


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
            return call_named(str(self), self.rule.function, *arrays, **self.attributes)
        except ArgumentError as error:
            if not self.rule.is_kernel:
                raise
            raise ArgumentError(f"{self.label}: the rule {error.message}", hints=error.hints) from None

    def check_like(self, what: str, array: Any, cotangent: Any) -> None:
        """Check the cotangent of an input.

        Raises
        ------
        ArgumentError
            The cotangent is no array, or its shape or dtype differs from the input's.
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
        Number of arrays of each input of the call; None for an array that is no sequence.
    """

    rule: BoundRule
    argument: int
    counts: tuple[int | None, ...]

    def __call__(self, like: Any, *arrays: Any) -> Any:
        """Return the cotangent of an input; its shape and dtype must be those of `like`."""
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

    def wrap(self, label: str, run: Run, params: Sequence[Param], attributes: Mapping[str, Any], key: Hashable) -> Run:
        """Return `run`, the call of an entry point with `params`, with the backward rule if there is one."""
        if self.backward is None:
            return run
        forward = None if self.forward is None else self.forward.bound(label, attributes, key)
        backward = self.backward.bound(label, attributes, key)
        args = [param for param in params if param.role is Role.ARG]
        results = sum(param.role is Role.RET for param in params)
        ruled = primitive.custom_vjp(run, lambda ruled: _pair(ruled, results, forward, backward))

        def full(*arrays: Any) -> Any:  # the rules see None for optional inputs that a call leaves out
            absent = args[len(arrays) :]
            return ruled(*arrays, *[None] * (len(absent) * all(param.many is Many.OPTIONAL for param in absent)))

        full.__name__ = full.__qualname__ = run.__name__
        return full

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


def _pair(ruled: Run, results: int, forward: BoundRule | None, backward: BoundRule) -> tuple[Run, Run]:
    """Return the two functions for ``jax.custom_vjp``; they keep the inputs and the residuals of the forward rule.

    `ruled` has the rule itself, so that derivatives of the first function find it.
    """

    def ahead(*arrays: Any) -> tuple[Any, Any]:
        if forward is None:
            return ruled(*arrays), (arrays, ())
        given = forward(*arrays)
        if not forward.rule.is_kernel:
            if not isinstance(given, tuple) or len(given) != 2:
                raise ArgumentError(f"{forward} must return a pair: the results, and what the backward rule needs")
            return given[0], (arrays, given[1])
        every = tuple(primitive.leaves(given))
        return every[0] if results == 1 else every[:results], (arrays, every[results:])

    def back(kept: tuple[Sequence[Any], Any], cotangents: Any) -> tuple[Any, ...]:
        arrays, residuals = kept
        if backward.rule.is_kernel:
            found = _by_kernel(backward, arrays, residuals, primitive.leaves(cotangents))
        else:
            found = backward(arrays if forward is None else residuals, cotangents)
        return _checked(backward, arrays, found)

    return ahead, back


def _by_kernel(backward: BoundRule, arrays: Sequence[Any], residuals: Any, cotangents: Sequence[Any]) -> Sequence[Any]:
    """Call a backward kernel; its results are the cotangents of the inputs with derivatives, in order."""
    wanted, flat, kept = backward.rule.inputs, primitive.leaves(arrays), primitive.leaves(residuals)
    choices = ((*kept, *cotangents), (*arrays, *kept, *cotangents), (*flat, *kept, *cotangents))
    given = [each for each in choices if len(each) == wanted]
    if not given:
        raise ArgumentError(
            f"{backward} takes {wanted} arrays, but there are {len(flat)} inputs, {len(kept)} residuals and "
            f"{len(cotangents)} cotangents",
            hints=("it takes the residuals and the cotangents, or the inputs before them",),
        )
    results = primitive.leaves(backward(*given[0]))
    moving = sum(map(primitive.is_inexact, flat))
    if len(results) not in (moving, moving + sum(array is None for array in arrays)):
        raise ArgumentError(f"{backward} gives {len(results)} results, but {moving} inputs have derivatives")
    rest = iter(results)
    found = []
    for array in arrays:
        if array is None and len(results) > moving:
            next(rest)  # the cotangent of an optional input that the call leaves out
        found.append(primitive.map_leaves(lambda each: next(rest) if primitive.is_inexact(each) else None, array))
    return found


def _checked(backward: BoundRule, arrays: Sequence[Any], cotangents: Any) -> tuple[Any, ...]:
    """Check that each cotangent has the shape and dtype of its input."""
    if not isinstance(cotangents, tuple | list) or len(cotangents) != len(arrays):
        count = len(cotangents) if isinstance(cotangents, tuple | list) else "no tuple of"
        raise ArgumentError(f"{backward} gives {count} cotangents for {len(arrays)} inputs")
    for index, (array, cotangent) in enumerate(zip(arrays, cotangents, strict=True)):
        if cotangent is not None and hasattr(array, "shape"):  # JAX checks those of several arrays
            backward.check_like(f"argument {index}", array, cotangent)
    return tuple(cotangents)
