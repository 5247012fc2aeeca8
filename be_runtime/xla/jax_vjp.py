"""Derivatives by rules of an author: backward rules, transposes of linear kernels, and what checks them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from be_runtime.xla.split import VMAPPED, Split


def custom_vjp(
    function: Callable[..., Any],
    rules: Callable[[Callable[..., Any]], tuple[Callable[..., Any], Callable[..., Any]]],
) -> Callable[..., Any]:
    """Return a function with rules, as ``jax.custom_vjp`` describes it; `rules` makes them for that function."""
    ruled = jax.custom_vjp(function)
    ruled.defvjp(*rules(ruled))
    return ruled


def is_inexact(array: Any) -> bool:
    """Return whether an array has derivatives: its elements are floats or complex numbers."""
    return bool(jnp.issubdtype(array.dtype, jnp.inexact))


def is_real(array: Any) -> bool:
    """Return whether the elements of an array are floats."""
    return bool(jnp.issubdtype(array.dtype, jnp.floating))


def pull_back(
    function: Callable[..., Any], arrays: Sequence[Any], cotangents: Callable[[Any], Any]
) -> tuple[list[Any], list[Any]]:
    """Return the cotangents of some results, and what they become for each array."""
    results, pull = jax.vjp(function, *map(jnp.asarray, arrays))
    given = jax.tree_util.tree_map(cotangents, results)
    return jax.tree_util.tree_leaves(given), list(pull(given))


def leaves(tree: Any) -> list[Any]:
    """Return the arrays of a pytree."""
    return list(jax.tree_util.tree_leaves(tree))


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Replace the arrays of a pytree."""
    return jax.tree_util.tree_map(function, tree)


def transposed(
    function: Callable[..., Any], split: Split, index: int, operands: Sequence[Any], cotangents: Sequence[Any]
) -> Any:
    """Compute the cotangent of one input of a call, also of a batch.

    Parameters
    ----------
    function : callable
        Function from the shape and dtype of input `index` of one element, and the inputs of one element with the
        cotangents in place of that input, to its cotangent.
    split : Split
        Factors of the arrays, which name the axes of a batch.
    operands : sequence of array
        Inputs of the call; that at `index` has an ``aval`` and no value.
    cotangents : sequence of array
        One for each result.
    """
    levels = [factor for factor in split.results[0] if factor.startswith(VMAPPED)]
    values: list[Any] = [_without_unit_axes(array, split, i, levels) for i, array in enumerate(operands) if i != index]
    values.insert(index, cotangents[0] if len(cotangents) == 1 else tuple(cotangents))
    has = [set(split.results[0] if i == index else factors) for i, factors in enumerate(split.operands)]
    own, linear = split.operands[index], operands[index].aval
    added = [factor in levels or factor.startswith(f"argument {index}: {VMAPPED}") for factor in own]
    function = functools.partial(function, jax.ShapeDtypeStruct(linear.shape[sum(added) :], linear.dtype))
    for level in reversed(levels):
        function = jax.vmap(function, in_axes=tuple(0 if level in factors else None for factors in has))
    found = function(*values)
    for axis, level in enumerate(levels):  # an input that all elements share gets the sum
        if level not in own:
            found = found.sum(axis=axis, keepdims=True)
    lacking = [i for i, level in enumerate(levels) if not {level, f"argument {index}: {level}"} & set(own)]
    return jnp.squeeze(found, lacking)


def _without_unit_axes(array: Any, split: Split, index: int, levels: Sequence[str]) -> Any:
    """Remove the axes of one element that ``vmap_method="expand_dims"`` adds."""
    added = {f"argument {index}: {level}" for level in levels}
    factors = split.operands[index]
    return jnp.squeeze(array, [axis for axis, factor in enumerate(factors) if factor in added])
