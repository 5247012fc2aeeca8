"""Calls of kernels while JAX traces a program, also as high-level primitives of ``jax.experimental.hijax``."""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from be_runtime.errors import shown_path
from be_runtime.jax import internals
from be_runtime.jax.arrays import ArraySpec
from be_runtime.jax.primitive import KernelCall, kernel_call
from be_runtime.jax.transforms import is_zero


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
    return f"{_cell(file) or shown_path(file)}:{line}" + (f" in {function}" if function else "")


def _cell(file: str) -> str:
    """Return the notebook cell that IPython runs as this file, as ``Cell In[3]``; empty for any other file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = None if shell is None else shell.compile.format_code_name(file)
    return "" if named is None else " ".join(named)


@functools.cache
def _mode() -> Callable[[Hashable], contextlib.AbstractContextManager[None]]:
    """Return a context whose value is part of the keys of JAX's programs; before JAX 0.8 all programs are dropped."""
    return jax.make_user_context(default_value=None) if hasattr(jax, "make_user_context") else _forgetting


@contextlib.contextmanager
def _forgetting(_value: Hashable) -> Iterator[None]:
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


def traced_anew(value: Hashable) -> contextlib.AbstractContextManager[None]:
    """Return a context in which this thread uses only programs that were traced with an equal value."""
    return _mode()(value)


Run = Callable[..., Any]


def high_level(name: str, find: Callable[[dict[str, Any]], Run]) -> Run:
    """Return a function that calls a high-level primitive.

    Parameters
    ----------
    name : str
        Name of the primitive.
    find : callable
        Function from the keyword arguments of a call to the function to run; it returns one object for equal keywords.
    """
    primitive: Any = type(name, (_Rules, internals.high_level_primitive()), {})

    def call(*arrays: Any, **keywords: Any) -> Any:
        arrays = jax.tree_util.tree_map(jnp.asarray, arrays)
        return primitive(find(keywords), arrays)(*arrays)

    call.__name__ = call.__qualname__ = name
    return call


class _Rules:
    """The rules of a high-level primitive: JAX's own rules for the function that it runs."""

    run: Run

    def __init__(self, run: Run, arrays: Sequence[Any]) -> None:
        traced, shapes = jax.make_jaxpr(run, return_shape=True)(*arrays)
        self.in_avals = jax.tree_util.tree_map(jax.typeof, arrays)
        self.out_aval = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), traced.out_avals)
        self.params = {"run": run}
        self.effects = frozenset(traced.effects)
        super().__init__()

    def expand(self, *arrays: Any) -> Any:
        return self.run(*arrays)

    def vjp_fwd(self, moves: Any, /, *arrays: Any) -> Any:
        return jax.vjp(self._of_moving(jax.tree_util.tree_leaves(moves), arrays), *arrays)

    def vjp_bwd_retval(self, pull: Any, cotangents: Any, /) -> Any:
        return pull(_full(cotangents))

    def jvp(self, primals: Any, tangents: Any) -> Any:
        moves = [not is_zero(each) for each in jax.tree_util.tree_leaves(tangents, is_leaf=is_zero)]
        return jax.jvp(self._of_moving(moves, primals), primals, _full(tangents))

    def lin(self, moves: Any, *arrays: Any) -> Any:
        return jax.linearize(self._of_moving(jax.tree_util.tree_leaves(moves), arrays), *arrays)

    def linearized(self, push: Any, *tangents: Any) -> Any:
        return push(*_full(tangents))

    def batch(self, axis_data: Any, arrays: Any, axes: Any) -> Any:
        results = jax.vmap(self.run, axes, axis_size=axis_data.size, spmd_axis_name=axis_data.spmd_name)(*arrays)
        return results, jax.tree_util.tree_map(lambda _: 0, results)

    def _of_moving(self, moves: Sequence[bool], arrays: Any) -> Run:
        """Return a function of all arrays that uses the given values of the arrays that don't move.

        So no derivative is asked of an array that doesn't move, and derivatives outside of this call still follow its
        value, which ``stop_gradient`` would hide from them.
        """
        fixed = jax.tree_util.tree_leaves(arrays)

        def function(*moving: Any) -> Any:
            every, tree = jax.tree_util.tree_flatten(moving)
            chosen = [new if is_moving else old for new, old, is_moving in zip(every, fixed, moves, strict=True)]
            return self.run(*jax.tree_util.tree_unflatten(tree, chosen))

        return function


def _full(tangents: Any) -> Any:
    """Make arrays of symbolic zeros."""
    return jax.tree_util.tree_map(ad.instantiate_zeros, tangents, is_leaf=is_zero)
