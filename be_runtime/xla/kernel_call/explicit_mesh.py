"""Calls in a mesh of explicit axes, where the type of an array says how it is split."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

from be_runtime.xla.split import Split


def on_explicit_parts(
    function: Callable[..., Sequence[Any]], split: Split, operands: Sequence[Any]
) -> Sequence[Any] | None:
    """Call a function with the parts of arrays, where their types say that they are split; None if they are not.

    For a kernel whose launch is a Python function of the arrays: it is called with the shapes of one device.
    """
    axes = _split_axes(split, [jax.typeof(each) for each in operands])
    if not axes or not hasattr(jax, "shard_map"):  # JAX 0.6.0 has another one
        return None
    inputs, outputs = ([_spec(axes, factors) for factors in each] for each in (split.operands, split.results))
    summed = tuple(name for factor in split.partial_sums() if factor in axes for name in names_of(axes[factor]))

    def run(*parts: Any) -> tuple[Any, ...]:
        results = function(*parts)
        return tuple(jax.lax.psum(each, summed) if summed else each for each in results)

    placed = [jax.sharding.reshard(each, spec) for each, spec in zip(operands, inputs, strict=True)]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(run, in_specs=tuple(inputs), out_specs=tuple(outputs))(*placed)
    return found


def result_specs(split: Split, avals: Sequence[Any]) -> list[Any]:
    """Return the partition specs of the results in a mesh of explicit axes."""
    axes = _split_axes(split, avals)
    return [_spec(axes, factors) for factors in split.results]


def _spec(axes: Mapping[str, Any], factors: Sequence[str]) -> Any:
    return jax.sharding.PartitionSpec(*(axes.get(factor) for factor in factors))


def _split_axes(split: Split, avals: Sequence[Any]) -> dict[str, Any]:
    """Return the axes of a mesh of explicit axes for each factor, by the choice that `Placement` makes."""
    axes: dict[str, Any] = {}
    used: set[str] = set()
    for factors, aval in zip(split.operands, avals, strict=True):
        mesh = aval.sharding.mesh
        for factor, axis, extent in zip(factors, aval.sharding.spec, aval.shape, strict=False):
            names = names_of(axis)
            divides = extent % math.prod(mesh.shape[name] for name in names) == 0
            if names and factor in split.free and factor not in axes and divides and used.isdisjoint(names):
                axes[factor] = axis
                used.update(names)
    return axes


def names_of(axis: Any) -> tuple[str, ...]:
    """Return the axes of a mesh that one axis of a partition spec names."""
    return axis if isinstance(axis, tuple) else () if axis is None else (axis,)
