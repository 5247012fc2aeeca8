"""Calls of kernels while JAX traces a program: their derivatives by rules, and calls as high-level primitives.

The rules of derivatives are other entry points or Python functions. ``jax.experimental.hijax`` has the high-level
primitives.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad
from jax.tree_util import tree_leaves, tree_map

from be_runtime.errors import ArgumentError, shown_path
from be_runtime.jax import internals
from be_runtime.jax.arrays import ArraySpec
from be_runtime.jax.primitive import KernelCall, kernel_call
from be_runtime.jax.rules import BoundRule, Derivative, Run, asked_of, check_cotangents, pull_by_kernel
from be_runtime.jax.transforms import is_zero
from be_runtime.signature.model import Many, Param, Role
from be_toolchain.machine.forks import made_once


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
    """Compile a function on its first call with arrays of some types; within another program, inline the function."""
    return jax.jit(function, inline=True)


def caller() -> str:
    """Return the line of the author's code whose call is traced, such as ``train.py:33 in step``."""
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
    """Use only programs that this thread traced with an equal value; before JAX 0.8, drop all programs."""
    if hasattr(jax, "make_user_context"):
        with _new_context()(value):
            yield
        return
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


def high_level(name: str, place: Callable[..., Any], find: Callable[[dict[str, Any]], Run]) -> Run:
    """Return a function that calls a high-level primitive.

    Parameters
    ----------
    name : str
        Name of the primitive.
    place : callable
        Function from the arrays and keyword arguments of a call to all its arrays and the other keyword arguments.
    find : callable
        Function from the keyword arguments of a call to the function to run; equal keywords give the same object.
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


def wrap(
    derivative: Derivative,
    label: str,
    run: Run,
    params: Sequence[Param],
    attributes: Mapping[str, Any],
    key: Hashable,
    asked: Sequence[bool] = (),
) -> Run:
    """Return `run`, the call of an entry point with `params`, with the backward rule if there is one.

    `asked` states for each result whether the call has it. It is empty if the call has all results.
    """
    if derivative.backward is None:
        return run
    forward = None if derivative.forward is None else derivative.forward.bound(label, attributes, key)
    backward = derivative.backward.bound(label, attributes, key)
    args = [param for param in params if param.role is Role.ARG]
    results = sum(param.role is Role.RET for param in params)
    ruled = jax.custom_vjp(run)
    ruled.defvjp(*_pair(ruled, results, forward, backward, asked))

    def full(*arrays: Any) -> Any:  # the rules see None for optional inputs that a call leaves out
        absent = args[len(arrays) :]
        return ruled(*arrays, *[None] * (len(absent) * all(param.many is Many.OPTIONAL for param in absent)))

    full.__name__ = full.__qualname__ = run.__name__
    return full


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
            return asked_of(forward, given[0], asked), (arrays, given[1])
        every = tuple(tree_leaves(given, is_leaf=_is_none))
        return every[0] if results == 1 else every[:results], (arrays, every[results:])

    def back(kept: tuple[Sequence[Any], Any], cotangents: Any) -> tuple[Any, ...]:
        arrays, residuals = kept
        if backward.rule.is_kernel:
            found = pull_by_kernel(backward, arrays, tree_leaves(residuals), tree_leaves(cotangents, is_leaf=_is_none))
        else:
            found = backward(arrays if forward is None else residuals, cotangents)
        return check_cotangents(backward, arrays, found)

    return ahead, back


def _is_none(value: Any) -> bool:
    """Return whether a value stands for an optional result that a call leaves out."""
    return value is None
