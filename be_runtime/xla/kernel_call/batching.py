"""Calls under ``vmap``, by the methods of ``jax.ffi.ffi_call`` and one of our own."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from be_runtime.errors import TransformError
from be_runtime.xla.arrays import Layouts
from be_runtime.xla.kernel_call.call_primitive import BatchLoop, KernelCall, kernel_call
from be_runtime.xla.kernel_call.explicit_mesh import names_of

_LOOPS = ("sequential", "sequential_unrolled")
_MERGED = "merged"
"""Method of kernels that compute each element along the first axis alone: a batch is more of them, where it can be."""

_WHOLE_BATCH = ("broadcast_all", "expand_dims", "legacy_vectorized")


def batch(
    axis_data: Any, arrays: Sequence[Any], axes: Sequence[Any], *, call: KernelCall
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """Map a call over an axis, as the methods of ``jax.ffi.ffi_call`` do."""
    size = axis_data.size
    mapped = [axis is not None for axis in axes]
    if not any(mapped):
        return kernel_call.bind(*arrays, call=call), [None] * len(call.results)
    moved = [jnp.moveaxis(a, axis, 0) if axis is not None else a for a, axis in zip(arrays, axes, strict=True)]
    if call.vmap_method == _MERGED and _can_merge(call, mapped):
        parts = [call.split.first in factors for factors in call.split.operands]
        whole = [
            jnp.broadcast_to(a, (size, *a.shape)) if is_part and not is_mapped else a
            for a, is_part, is_mapped in zip(moved, parts, mapped, strict=True)
        ]
        grown = _with_axis(call, size, [size if is_part else None for is_part in parts])
        split = grown.split._replace(merged=grown.split.merged + 1)
        results = kernel_call.bind(*whole, call=grown._replace(split=split))
    elif call.vmap_method in (_MERGED, *_LOOPS):
        loop = BatchLoop(call, tuple(mapped))
        if call.effect != "ordered" and axis_data.explicit_mesh_axis is None:
            grown = _with_axis(call, size, [size if is_mapped else None for is_mapped in mapped])
            split = grown.split._replace(looped=call.split.looped + 1)
            layouts = call.input_layouts, call.output_layouts
            grown = grown._replace(split=split, input_layouts=layouts[0], output_layouts=layouts[1], loop=loop)
            results = kernel_call.bind(*moved, call=grown)
        else:
            results = _looped(axis_data.explicit_mesh_axis, moved, loop)
    elif call.vmap_method in _WHOLE_BATCH:
        copies = size if call.vmap_method == "broadcast_all" or call.aliases else 1
        whole = [a if is_mapped else _repeat(a, copies, call) for a, is_mapped in zip(moved, mapped, strict=True)]
        ranks = [array.ndim - is_mapped for array, is_mapped in zip(moved, mapped, strict=True)]
        sizes = [each.shape[0] if each.ndim > rank else None for each, rank in zip(whole, ranks, strict=True)]
        results = kernel_call.bind(*whole, call=_with_axis(call, size, sizes))
    else:
        raise TransformError(
            f"{call.label} has no rule for vmap",
            hints=(
                "declare the axes of all arrays, as in arg[n], or arg[... n] if the kernel takes a batch",
                'or choose "sequential", "broadcast_all" or "expand_dims": with_options(vmap_method="sequential")',
                "or pass vmap_method where a raw or Numba kernel is made",
            ),
        )
    return results, [0] * len(results)


def _can_merge(call: KernelCall, mapped: Sequence[bool]) -> bool:
    """Return whether a batch is more elements along the first axis, which are computed alone."""
    is_plain = call.effect == "none" and call.input_layouts is None and call.output_layouts is None and not call.loop
    pairs = zip(call.split.operands, mapped, strict=True)
    return is_plain and all(call.split.first in factors for factors, is_mapped in pairs if is_mapped)


def _repeat(array: Any, copies: int, call: KernelCall) -> Any:
    if call.vmap_method == "legacy_vectorized" and not call.aliases:
        return array
    return jnp.broadcast_to(array, (copies, *array.shape))


def _with_axis(call: KernelCall, size: int, sizes: Sequence[int | None]) -> KernelCall:
    """Return the call of a batch; `sizes` are those of the new axis of each operand, None for one without it."""

    def grown(layouts: Layouts | None, has: Sequence[bool]) -> Layouts | None:
        pairs = zip(layouts or (), has, strict=layouts is not None)
        found = tuple((0, *(axis + 1 for axis in each)) if each and is_new else each for each, is_new in pairs)
        return None if layouts is None else found

    return call._replace(
        results=tuple(jax.ShapeDtypeStruct((size, *each.shape), each.dtype) for each in call.results),
        input_layouts=grown(call.input_layouts, [each is not None for each in sizes]),
        output_layouts=grown(call.output_layouts, [True] * len(call.results)),
        split=call.split.with_axis(sizes),
    )


def _looped(mesh_axis: Any, arrays: Sequence[Any], loop: BatchLoop) -> Sequence[Any]:
    """Call a kernel for one element of a batch after the other, on each device for its elements."""
    run = functools.partial(loop.run, count=len(loop.element.results))
    if mesh_axis is None or not hasattr(jax, "shard_map"):  # JAX 0.6.0 has another one
        return run(*arrays)
    specs = [jax.sharding.PartitionSpec(*[mesh_axis] * is_mapped) for is_mapped in loop.mapped]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(
        run, in_specs=tuple(specs), out_specs=jax.sharding.PartitionSpec(mesh_axis), axis_names={*names_of(mesh_axis)}
    )(*arrays)
    return found
