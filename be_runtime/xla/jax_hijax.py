"""High-level primitives of ``jax.experimental.hijax``, made of functions that follow JAX's transformations already."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.interpreters import ad

from be_runtime.xla import jax_internals

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
    base = jax_internals.high_level_primitive()
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


def _moving(run: Run, moves: Sequence[Any]) -> Run:
    """Return a function that has derivatives with respect to some of its arguments."""

    def function(*arrays: Any) -> Any:
        every, tree = jax.tree_util.tree_flatten(arrays)
        pairs = zip(every, moves, strict=True)
        return run(*jax.tree_util.tree_unflatten(tree, [a if each else jax.lax.stop_gradient(a) for a, each in pairs]))

    return function


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, ad.Zero)


def _expand(self: Any, *arrays: Any) -> Any:
    return self.run(*arrays)


def _vjp_fwd(self: Any, moves: Any, /, *arrays: Any) -> Any:
    return jax.vjp(_moving(self.run, jax.tree_util.tree_leaves(moves)), *arrays)


def _vjp_bwd_retval(_self: Any, pull: Any, cotangents: Any, /) -> Any:
    return pull(_full(cotangents))


def _jvp(self: Any, primals: Any, tangents: Any) -> Any:
    return jax.jvp(_moving(self.run, _moves(tangents)), primals, _full(tangents))


def _lin(self: Any, moves: Any, *arrays: Any) -> Any:
    return jax.linearize(_moving(self.run, jax.tree_util.tree_leaves(moves)), *arrays)


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
