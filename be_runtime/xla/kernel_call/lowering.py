"""Lowering of calls to StableHLO: to a target itself, or to a call that is split over devices when it is compiled."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from be_runtime.errors import RegistrationError, TransformError
from be_runtime.xla import jax_internals, partition
from be_runtime.xla.arrays import Layouts
from be_runtime.xla.attribute_values import Fields, Value, as_jax
from be_runtime.xla.jax_internals import mlir
from be_runtime.xla.kernel_call.call_primitive import EFFECTS, BatchLoop, KernelCall, kernel_call
from be_runtime.xla.split import Split, encode


def lower(platform: str, ctx: Any, *operands: Any, call: KernelCall) -> Sequence[Any]:
    """Emit a call for a platform, under the kernel's name, by which profilers show it."""
    with _named(ir.Location.current, call.label):
        return _lower(platform, ctx, operands, call)


def _named(here: Any, label: str) -> Any:
    """Return the location of an operation that is lowered, with a kernel's name instead of the primitive's.

    It is a name over the line of the call, or over nothing where JAX caches the lowering and adds the line of each call
    later. Newer releases put another name over it, the operation's kind with a colon.
    """
    is_name = here.is_a_name() if hasattr(here, "is_a_name") else hasattr(here, "name_str")
    if not is_name:
        return ir.Location.name(label)
    if here.name_str.endswith(":"):
        return ir.Location.name(here.name_str, childLoc=_named(here.child_loc, label))
    return ir.Location.name(here.name_str.removesuffix(kernel_call.name) + label, childLoc=here.child_loc)


def _lower(platform: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call for a platform."""
    is_for_several = len(ctx.module_context.platforms) > 1  # branches for one platform are lowered for all of them
    target = dict(call.targets).get(platform, call.targets[0][1] if is_for_several else None)
    if target is None:
        raise _not_registered(call, platform)
    if call.effect != "ordered" and not jax_internals.is_local(ctx.module_context.axis_context):
        return _lower_split(target, ctx, operands, call)
    if call.loop is not None:
        return _lower_loop(ctx, operands, call.loop)
    ordered = call.effect == "ordered"
    if call.split.merged:
        return _lower_flat(platform, ctx, operands, call)
    rule = jax.ffi.ffi_lowering(
        target,
        operand_layouts=_minor_to_major(call.input_layouts, ordered=ordered),
        result_layouts=_minor_to_major(call.output_layouts, ordered=ordered),
        has_side_effect=call.effect != "none",
        operand_output_aliases=dict(call.aliases),
    )
    attributes = {name: _attribute(value) for name, value in call.attributes}
    if not ordered:
        return rule(ctx, *operands, **attributes)
    effect, token = EFFECTS["ordered"], jax_internals.abstract_token
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token])
    *results, done = rule(inner, *operands, ctx.tokens_in.get(effect), **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: done})))
    return results


def _lower_loop(ctx: Any, operands: Sequence[Any], loop: BatchLoop) -> Sequence[Any]:
    """Emit a loop over a batch; nobody uses the scratch memory of its elements."""
    shown = len(loop.element.split.results)
    run = mlir.lower_fun(functools.partial(loop.run, count=shown), multiple_results=True)
    results = run(ctx.replace(avals_out=ctx.avals_out[:shown]), *operands)
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in ctx.avals_out[shown:])]


def _lower_flat(platform: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call for a kernel that gets the batches as more elements along its first axis."""
    split, shown = call.split, len(call.split.results)
    given = [_of_kernel(split, *each) for each in zip(split.operands, ctx.avals_in, strict=True)]
    made = [_of_kernel(split, *each) for each in zip(split.results, ctx.avals_out[:shown], strict=True)]
    scratch = [jax_internals.shaped(shape, np.uint8) for shape in split.scratch_shapes([a.shape for a in given], ())]
    inner = ctx.replace(avals_in=given, avals_out=[*made, *scratch])
    alone = call._replace(split=Split(tuple(() for _ in given), tuple(() for _ in made)))
    found = _lower(platform, inner, [_reshape(*each) for each in zip(operands, given, strict=True)], alone)
    results = [_reshape(*each) for each in zip(found[:shown], ctx.avals_out[:shown], strict=True)]
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in ctx.avals_out[shown:])]


def _of_kernel(split: Split, axes: Sequence[str], aval: Any) -> Any:
    return jax_internals.shaped(split.kernel_shape(axes, aval.shape), aval.dtype)


def _reshape(value: Any, aval: Any) -> Any:
    return stablehlo.reshape(ir.RankedTensorType.get(aval.shape, value.type.element_type), value)


def _lower_split(target: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call for `be_runtime.xla.partition`, with the rule by which Shardy finds the shardings of its results."""
    split = call.split if jax_internals.sums_parts() else call.split.without_sums()
    shown, hidden = ctx.avals_out[: len(split.results)], ctx.avals_out[len(split.results) :]
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype)) for aval in shown]
    if split.computed is None and split.free:
        raise TransformError(
            f"{call.label} has a launch that Python functions compute, so XLA can't split the call over devices",
            hints=("write the sizes as arithmetic, as in grid='ceil(n/256)'", "or call it within jax.shard_map"),
        )
    attributes = {name: mlir.ir_attribute(_attribute(value)) for name, value in call.attributes}
    op = mlir.custom_call(
        partition.TARGET,
        result_types=types,
        operands=operands,
        api_version=2,
        has_side_effect=call.effect != "none",
        backend_config=encode(
            label=call.label,
            target=target,
            attributes={name: str(value) for name, value in attributes.items()},
            split=split.to_json(),
            aliases=call.aliases,
            has_side_effect=call.effect != "none",
            elements=[_elements([value.type for value in operands]), _elements(types)],
            layouts=[call.input_layouts, call.output_layouts],
            mesh=jax_internals.manual_axes(ctx.module_context.axis_context),
        ),
    )
    op.attributes["sdy.sharding_rule"] = jax_internals.sharding_rule(split, [each.type for each in operands], types)
    results = [mlir.lower_with_sharding_in_types(ctx, each, aval) for each, aval in zip(op.results, shown, strict=True)]
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in hidden)]


def _attribute(value: Value) -> Any:
    """Convert an attribute to what JAX takes. It makes none of an integer from 2**63 on, which XLA carries."""
    if isinstance(value, Fields):
        return {name: _attribute(each) for name, each in value.items}
    found = as_jax(value)
    is_large = isinstance(found, np.uint64) and int(found) >> 63
    return ir.Attribute.parse(f"{found} : ui64") if is_large else found


def _elements(types: Sequence[Any]) -> list[str]:
    return [str(ir.RankedTensorType(each).element_type) for each in types]


def _minor_to_major(layouts: Layouts | None, *, ordered: bool) -> list[tuple[int, ...] | None] | None:
    if layouts is None:
        return None
    return [None if each is None else each[::-1] for each in layouts] + [None] * ordered


def _not_registered(call: KernelCall, platform: str) -> RegistrationError:
    known = ", ".join(f"{name} for {each}" for each, name in call.targets)
    other = call.targets[0][0]
    makers = "load_cpp_* or numba_kernel" if platform == "cpu" else "load_cuda_*, cuda_kernel or numba_cuda_kernel"
    return RegistrationError(
        f"{call.label} has no kernel for {platform}, which the program is compiled for; registered is {known}",
        hints=(
            f"make a kernel for {platform} with {makers}",
            f"or put the arrays on another device: jax.devices({other!r})",
            f"or export the program for it: platforms={other!r}",
        ),
    )
