"""Private names of JAX for calls. No other file of the package imports private names of JAX for calls.

=============================  ============================================  ===============
name                           use                                           JAX releases
=============================  ============================================  ===============
``auto_insert_reshard``        operands vary equally within ``shard_map``    since 0.10.1
``standard_insert_pvary``      operands vary equally within ``shard_map``    before 0.10.1
``aval.mat``                   axes of a mesh over which a value varies      since 0.10.0
``aval.vma``                   axes of a mesh over which a value varies      before 0.10.0
``reduction_factors``          sums of parts, in a rule of Shardy            since 0.7.2
Shardy, by default             shardings of results                          since 0.7.0
``user_frame(traceback)``       line of a call's author                       since 0.7.0
``user_frame(source_info)``    line of a call's author                       before 0.7.0
``hijax.HiPrim``               base class of ``KernelFunction.as_hijax``     since 0.11.2
``hijax.VJPHiPrimitive``       base class of ``KernelFunction.as_hijax``     0.10.0 to 0.11.1
=============================  ============================================  ===============

All releases from 0.6.0 to 0.12 have the other names.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import jax
import numpy as np
from jax._src import core, effects, sharding_impls, source_info_util, traceback_util, xla_bridge
from jax._src.custom_partitioning_sharding_rule import SdyShardingRule, sdy_sharding_rule_to_mlir
from jax._src.interpreters import batching, mlir
from jaxlib import xla_client

from be_runtime.errors import TransformError
from be_runtime.jax.arrays import Split

__all__ = ["HloSharding", "OpSharding", "effects", "mlir"]

Primitive = core.Primitive
"""The class that `jax.extend.core` has, too, but that module imports Pallas, which adds 20 ms to the first call."""

HloSharding, OpSharding = xla_client.HloSharding, xla_client.OpSharding

InconclusiveDimensionOperation = core.InconclusiveDimensionOperation
"""The error of comparing symbolic dimensions, whose public module differs between releases."""

abstract_token = core.abstract_token
batching_rules = batching.fancy_primitive_batchers
"""Batching rules by primitive. They get the data of the axis."""

_HAS_SUMS = "reduction_factors" in inspect.signature(SdyShardingRule).parameters
_FRAME_OF_INFO = "source_info" in inspect.signature(source_info_util.user_frame).parameters


def hide_frames(folder: str) -> None:
    """Exclude the frames of a folder from the lines of calls and from tracebacks that JAX filters."""
    source_info_util.register_exclusion(folder)
    traceback_util.register_exclusion(folder)


vary_alike: Callable[..., Sequence[Any]] = (
    core.auto_insert_reshard if hasattr(core, "auto_insert_reshard") else core.standard_insert_pvary  # type: ignore[attr-defined]
)
"""Function that makes arrays vary over the same axes of a mesh, within ``shard_map``."""


def user_line() -> tuple[str, int, str] | None:
    """Return file, line and function of the author's code whose call is traced.

    If JAX evaluates a traced program, as for derivatives, this is the line of the first call. Otherwise it is the
    innermost line of the thread outside of JAX and this package, since JAX's traceback ends at the innermost trace.
    """
    context: Any = source_info_util._source_info_context.context  # noqa: SLF001
    if context.traceback is not None:
        found: Any = source_info_util.user_frame(context if _FRAME_OF_INFO else context.traceback)
        if found is not None:
            return found.file_name, found.start_line, found.function_name
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def user_frame() -> FrameType | None:
    """Return the innermost frame of this thread that is outside of JAX and this package."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001
    while frame is not None and not source_info_util.is_user_filename(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def shaped(shape: Sequence[int], dtype: Any) -> Any:
    """Return the abstract value of an array that no mesh splits."""
    return core.ShapedArray(tuple(shape), np.dtype(dtype))


def varying(aval: Any) -> frozenset[str]:
    """Return the axes of a mesh over which a value varies, within ``shard_map``."""
    return frozenset(aval.mat.varying if hasattr(aval, "mat") else aval.vma)


def sums_parts() -> bool:
    """Return whether XLA can sum the results of parts."""
    return _HAS_SUMS and bool(jax.config.jax_use_shardy_partitioner)  # type: ignore[attr-defined]


def is_local(where: Any) -> bool:
    """Return whether a program has one device, or all axes of its mesh are manual."""
    if isinstance(where, sharding_impls.SPMDAxisContext):
        return where.mesh.size == 1 or len(where.manual_axes) == len(where.mesh.axis_names)
    return not isinstance(where, sharding_impls.ShardingContext) or where.num_devices == 1


def manual_axes(where: Any) -> tuple[list[int], list[int]] | None:
    """Return the sizes of a mesh and the numbers of its manual axes; None if no axis is manual."""
    if not isinstance(where, sharding_impls.SPMDAxisContext) or not where.manual_axes:
        return None
    names = where.mesh.axis_names
    return list(where.mesh.axis_sizes), [index for index, name in enumerate(names) if name in where.manual_axes]


def sharding_rule(split: Split, operands: Sequence[Any], results: Sequence[Any]) -> Any:
    """Make the rule from which Shardy infers the shardings of a call's arrays; `operands` and `results` are types."""
    sums: dict[str, Any] = {"reduction_factors": split.partial_sums()} if _HAS_SUMS else {}
    rule = SdyShardingRule(split.operands, split.results, **sums)  # type: ignore[arg-type]
    return sdy_sharding_rule_to_mlir(rule, list(operands), list(results))


def register_partitioner(name: str, partition: Callable[..., Any], infer: Callable[..., Any]) -> None:
    """Register a partitioner of custom calls with XLA, and with device plugins, which have registries of their own."""
    register = functools.partial(
        xla_client.register_custom_call_partitioner,
        name,
        lambda sharding, _shape, _config: sharding,
        partition,
        infer,
        can_side_effecting_have_replicated_sharding=True,
    )
    register()
    xla_bridge.register_plugin_callbacks(register)


def high_level_primitive() -> Any:
    """Return the base class of high-level primitives.

    Raises
    ------
    TransformError
        This release of JAX has no such class, or one without effects.
    """
    try:
        hijax: Any = importlib.import_module("jax.experimental.hijax")
    except ImportError:
        hijax = None
    base = getattr(hijax, "HiPrim", getattr(hijax, "VJPHiPrimitive", None))
    if not hasattr(base, "effects"):
        raise TransformError(
            f"JAX {jax.__version__} has no high-level primitives that kernels can be",
            hints=("install JAX 0.10 or newer", "or call the kernel itself: it follows vmap and grad in every release"),
        )
    return base
