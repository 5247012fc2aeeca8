"""Calls of kernels while JAX traces a program: their derivatives by rules, and calls as high-level primitives.

The rules of derivatives are other entry points or Python functions. ``jax.experimental.hijax`` has the high-level
primitives.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad
from jax.tree_util import tree_leaves, tree_map

from be_runtime.errors import ArgumentError, call_named, shown_path
from be_runtime.jax import internals
from be_runtime.jax.arrays import ArraySpec
from be_runtime.jax.primitive import KernelCall, kernel_call
from be_runtime.jax.transforms import is_zero
from be_runtime.signature.model import Many, Param, Role
from be_toolchain.machine.forks import made_once
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import many


def bind(operands: Sequence[Any], *, results: Sequence[ArraySpec], **fields: Any) -> Sequence[Any]:
    """Call a target, while a program is traced.

    Parameters
    ----------
    operands : sequence of array
    results : sequence of ArraySpec
    **fields
        The other fields of `KernelCall`.
    """
    structs = tuple(jax.ShapeDtypeStruct(each.shape, each.dtype.name) for each in results)
    call = KernelCall(results=structs, **fields)
    return kernel_call.bind(*internals.vary_alike(*operands), call=call)  # type: ignore[no-any-return]


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call with arrays of some types; within another program it leaves no trace."""
    return jax.jit(function, inline=True)


def caller() -> str:
    """Return the line of the author's code that makes the call being traced, as ``train.py:33 in step``."""
    found = internals.user_line()
    if found is None:
        return ""
    file, line, function = found
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    cell = None if shell is None else shell.compile.format_code_name(file)  # ("Cell", "In[3]"), None for a file
    return f"{shown_path(file) if cell is None else ' '.join(cell)}:{line}" + (f" in {function}" if function else "")


_new_context = made_once(1)(lambda: jax.make_user_context(default_value=None))
"""Function that makes the context whose value is part of the keys of JAX's programs."""


@contextlib.contextmanager
def traced_anew(value: Hashable) -> Iterator[None]:
    """Use only programs that this thread traced with an equal value; before JAX 0.8 all programs are dropped."""
    if hasattr(jax, "make_user_context"):
        with _new_context()(value):
            yield
        return
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


Run = Callable[..., Any]


def high_level(name: str, place: Callable[..., Any], find: Callable[[dict[str, Any]], Run]) -> Run:
    """Return a function that calls a high-level primitive.

    Parameters
    ----------
    name : str
        Name of the primitive.
    place : callable
        Function from the arrays and keyword arguments of a call to all its arrays and the other keyword arguments.
    find : callable
        Function from the keyword arguments of a call to the function to run; it returns one object for equal keywords.
    """
    primitive: Any = type(name, (_Rules, internals.high_level_primitive()), {})

    def call(*arrays: Any, **keywords: Any) -> Any:
        arrays, keywords = place(arrays, keywords)
        arrays = tree_map(jnp.asarray, arrays)
        return primitive(find(keywords), arrays)(*arrays)

    call.__name__ = call.__qualname__ = name
    return call


class _Rules:
    """The rules of a high-level primitive: JAX's own rules for the function that it runs."""

    run: Run

    def __init__(self, run: Run, arrays: Sequence[Any]) -> None:
        traced, shapes = jax.make_jaxpr(run, return_shape=True)(*arrays)
        self.in_avals = tree_map(jax.typeof, arrays)
        self.out_aval = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), traced.out_avals)
        self.params = {"run": run}
        self.effects = frozenset(traced.effects)
        super().__init__()

    def expand(self, *arrays: Any) -> Any:
        return self.run(*arrays)

    def vjp_fwd(self, moves: Any, /, *arrays: Any) -> Any:
        return jax.vjp(self._of_moving(tree_leaves(moves), arrays), *arrays)

    def vjp_bwd_retval(self, pull: Any, cotangents: Any, /) -> Any:
        return pull(_full(cotangents))

    def jvp(self, primals: Any, tangents: Any) -> Any:
        moves = [not is_zero(each) for each in tree_leaves(tangents, is_leaf=is_zero)]
        return jax.jvp(self._of_moving(moves, primals), primals, _full(tangents))

    def lin(self, moves: Any, *arrays: Any) -> Any:
        return jax.linearize(self._of_moving(tree_leaves(moves), arrays), *arrays)

    def linearized(self, push: Any, *tangents: Any) -> Any:
        return push(*_full(tangents))

    def batch(self, axis_data: Any, arrays: Any, axes: Any) -> Any:
        results = jax.vmap(self.run, axes, axis_size=axis_data.size, spmd_axis_name=axis_data.spmd_name)(*arrays)
        return results, tree_map(lambda _: 0, results)

    def _of_moving(self, moves: Sequence[bool], arrays: Any) -> Run:
        """Return a function of all arrays that uses the given values of the arrays that don't move.

        So no derivative is asked of an array that doesn't move, and derivatives outside of this call still follow its
        value, which ``stop_gradient`` would hide from them.
        """
        fixed = tree_leaves(arrays)

        def function(*moving: Any) -> Any:
            every, tree = jax.tree_util.tree_flatten(moving)
            chosen = [new if is_moving else old for new, old, is_moving in zip(every, fixed, moves, strict=True)]
            return self.run(*jax.tree_util.tree_unflatten(tree, chosen))

        return function


def _full(tangents: Any) -> Any:
    """Make arrays of symbolic zeros."""
    return tree_map(ad.instantiate_zeros, tangents, is_leaf=is_zero)


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
        """Return the cotangent of an input; its shape and dtype must equal the shape and dtype of `like`."""
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

    def wrap(
        self,
        label: str,
        run: Run,
        params: Sequence[Param],
        attributes: Mapping[str, Any],
        key: Hashable,
        asked: Sequence[bool] = (),
    ) -> Run:
        """Return `run`, the call of an entry point with `params`, with the backward rule if there is one.

        `asked` says of each result whether the call has it; it is empty if the call has all.
        """
        if self.backward is None:
            return run
        forward = None if self.forward is None else self.forward.bound(label, attributes, key)
        backward = self.backward.bound(label, attributes, key)
        args = [param for param in params if param.role is Role.ARG]
        results = sum(param.role is Role.RET for param in params)
        ruled = jax.custom_vjp(run)
        ruled.defvjp(*_pair(ruled, results, forward, backward, asked))

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


def _pair(
    ruled: Run, results: int, forward: BoundRule | None, backward: BoundRule, asked: Sequence[bool]
) -> tuple[Run, Run]:
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
            return _asked_of(forward, given[0], asked), (arrays, given[1])
        every = tuple(tree_leaves(given, is_leaf=_is_none))
        return every[0] if results == 1 else every[:results], (arrays, every[results:])

    def back(kept: tuple[Sequence[Any], Any], cotangents: Any) -> tuple[Any, ...]:
        arrays, residuals = kept
        if backward.rule.is_kernel:
            found = _by_kernel(backward, arrays, residuals, tree_leaves(cotangents, is_leaf=_is_none))
        else:
            found = backward(arrays if forward is None else residuals, cotangents)
        return _checked(backward, arrays, found)

    return ahead, back


def _asked_of(forward: BoundRule, results: Any, asked: Sequence[bool]) -> Any:
    """Return the results of a forward rule that the call asks for, and None in place of the others."""
    if not asked or not isinstance(results, tuple | list) or len(results) != len(asked):
        return results
    for index, (result, is_asked) in enumerate(zip(results, asked, strict=True)):
        if is_asked and result is None:
            raise ArgumentError(f"{forward} gives None for result {index}, which the call asks for")
    return tuple(result if is_asked else None for result, is_asked in zip(results, asked, strict=True))


def _by_kernel(backward: BoundRule, arrays: Sequence[Any], residuals: Any, cotangents: Sequence[Any]) -> Sequence[Any]:
    """Call a backward kernel; its results are the cotangents of the inputs with derivatives, in order."""
    wanted, flat, kept = backward.rule.inputs, tree_leaves(arrays), tree_leaves(residuals)
    given_cotangents = [each for each in cotangents if each is not None]
    before = ((*kept,), (*arrays, *kept), (*flat, *kept))
    choices = [(*each, *last) for last in (cotangents, given_cotangents) for each in before]
    given = [each for each in choices if len(each) == wanted]
    if not given:
        raise ArgumentError(
            f"{backward} takes {many(wanted, 'array')}, but the call has {many(len(flat), 'input')}, "
            f"{many(len(kept), 'residual')} and {many(len(cotangents), 'cotangent')}",
            hints=("it takes the residuals and the cotangents, or the inputs before them",),
        )
    results = tree_leaves(backward(*given[0]))
    moving = sum(map(_is_inexact, flat))
    if len(results) not in (moving, moving + sum(array is None for array in arrays)):
        counts = f"{many(len(results), 'result')}, but the call has {many(moving, 'input')} with derivatives"
        raise ArgumentError(f"{backward} gives {counts}")
    rest = iter(results)
    found = []
    for array in arrays:
        if array is None and len(results) > moving:
            next(rest)  # the cotangent of an optional input that the call leaves out
        found.append(tree_map(lambda each: next(rest) if _is_inexact(each) else None, array))
    return found


def _is_none(value: Any) -> bool:
    """Return whether a value stands for an optional result that a call leaves out."""
    return value is None


def _is_inexact(array: Any) -> bool:
    """Return whether an array has derivatives, because its elements are floats or complex numbers."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def _checked(backward: BoundRule, arrays: Sequence[Any], cotangents: Any) -> tuple[Any, ...]:
    """Check that each cotangent has the shape and dtype of its input."""
    if not isinstance(cotangents, tuple | list) or len(cotangents) != len(arrays):
        is_tuple = isinstance(cotangents, tuple | list)
        count = many(len(cotangents), "cotangent") if is_tuple else "no tuple of cotangents"
        raise ArgumentError(f"{backward} gives {count} for {many(len(arrays), 'input')}")
    for index, (array, cotangent) in enumerate(zip(arrays, cotangents, strict=True)):
        if cotangent is not None and hasattr(array, "shape"):  # JAX checks those of several arrays
            backward.check_like(f"argument {index}", array, cotangent)
    return tuple(cotangents)
