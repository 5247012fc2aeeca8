"""High-level primitives of ``jax.experimental.hijax``, made of functions that follow JAX's transformations already."""

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
    bound: Sequence[Any] = kernel_call.bind(
        *internals.vary_alike(*operands), call=KernelCall(results=structs, **fields)
    )
    return bound


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call with arrays of some types; within another program it leaves no trace."""
    return jax.jit(function, inline=True)


def caller() -> str:
    """Return the line of an author's code that the call being traced comes from, as ``train.py:33 in step``."""
    found = internals.user_line()
    if found is None:
        return ""
    file, line, function = found
    return f"{_cell(file) or shown_path(file)}:{line}" + (f" in {function}" if function else "")


def _cell(file: str) -> str:
    """Return the cell of a notebook that IPython runs as a file, as ``Cell In[3]``; empty for any other file."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    named = None if shell is None else shell.compile.format_code_name(file)
    return "" if named is None else " ".join(named)


@functools.cache
def _mode() -> Callable[[Hashable], contextlib.AbstractContextManager[None]]:
    """Make the context whose value is part of what JAX knows its programs by; there is none before JAX 0.8."""
    if hasattr(jax, "make_user_context"):
        made: Callable[[Hashable], contextlib.AbstractContextManager[None]] = jax.make_user_context(default_value=None)
        return made
    return _forgetting


@contextlib.contextmanager
def _forgetting(_value: Hashable) -> Iterator[None]:
    jax.clear_caches()
    try:
        yield
    finally:
        jax.clear_caches()


def traced_anew(value: Hashable) -> contextlib.AbstractContextManager[None]:
    """Let this thread use programs meanwhile that were traced with an equal value, and no others."""
    return _mode()(value)


Run = Callable[..., Any]


def high_level(name: str, find: Callable[[dict[str, Any]], Run]) -> Run:
    """Return a function that calls a high-level primitive.

    Parameters
    ----------
    name : str
        Name of the primitive.
    find : callable
        Function from the keyword arguments of a call to the function that it stands for, the same for equal ones.
    """
    base = internals.high_level_primitive()
    primitive = type(name, (base,), {**_RULES, "__init__": functools.partialmethod(_init, base)})

    def call(*arrays: Any, **keywords: Any) -> Any:
        arrays = jax.tree_util.tree_map(jnp.asarray, arrays)
        return primitive(find(keywords), arrays)(*arrays)

    call.__name__ = call.__qualname__ = name
    return call


def _init(self: Any, base: Any, run: Run, arrays: Sequence[Any]) -> None:
    traced, shapes = jax.make_jaxpr(run, return_shape=True)(*arrays)
    self.in_avals = jax.tree_util.tree_map(jax.typeof, arrays)
    self.out_aval = jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(shapes), traced.out_avals)
    self.params = {"run": run}
    self.effects = frozenset(traced.effects)
    base.__init__(self)


def _of_moving(run: Run, moves: Sequence[bool], arrays: Any) -> Run:
    """Return a function of all arrays that uses the given values of those that don't move.

    So no derivative is asked of an array that does not move, and those outside of this call still follow its value,
    which ``stop_gradient`` would hide from them.
    """
    fixed = jax.tree_util.tree_leaves(arrays)

    def function(*moving: Any) -> Any:
        every, tree = jax.tree_util.tree_flatten(moving)
        chosen = [new if is_moving else old for new, old, is_moving in zip(every, fixed, moves, strict=True)]
        return run(*jax.tree_util.tree_unflatten(tree, chosen))

    return function


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero)


def _expand(self: Any, *arrays: Any) -> Any:
    return self.run(*arrays)


def _vjp_fwd(self: Any, moves: Any, /, *arrays: Any) -> Any:
    return jax.vjp(_of_moving(self.run, jax.tree_util.tree_leaves(moves), arrays), *arrays)


def _vjp_bwd_retval(_self: Any, pull: Any, cotangents: Any, /) -> Any:
    return pull(_full(cotangents))


def _jvp(self: Any, primals: Any, tangents: Any) -> Any:
    return jax.jvp(_of_moving(self.run, _moves(tangents), primals), primals, _full(tangents))


def _lin(self: Any, moves: Any, *arrays: Any) -> Any:
    return jax.linearize(_of_moving(self.run, jax.tree_util.tree_leaves(moves), arrays), *arrays)


def _linearized(_self: Any, push: Any, *tangents: Any) -> Any:
    return push(*_full(tangents))


def _moves(tangents: Any) -> list[bool]:
    return [not _is_zero(each) for each in jax.tree_util.tree_leaves(tangents, is_leaf=_is_zero)]


def _full(tangents: Any) -> Any:
    """Make arrays of symbolic zeros."""
    return jax.tree_util.tree_map(ad.instantiate_zeros, tangents, is_leaf=_is_zero)


def _batch(self: Any, axis_data: Any, arrays: Any, axes: Any) -> Any:
    results = jax.vmap(self.run, axes, axis_size=axis_data.size, spmd_axis_name=axis_data.spmd_name)(*arrays)
    return results, jax.tree_util.tree_map(lambda _: 0, results)


_RULES = {
    "expand": _expand,
    "vjp_fwd": _vjp_fwd,
    "vjp_bwd_retval": _vjp_bwd_retval,
    "jvp": _jvp,
    "lin": _lin,
    "linearized": _linearized,
    "batch": _batch,
}
