"""The primitive of a call of an entry point: its types, its batching, its effects and its lowering."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad
from jaxlib.mlir import ir

from be_runtime.errors import RegistrationError, TransformError
from be_runtime.xla import jax_internals, jax_vjp, partition
from be_runtime.xla.arrays import ArraySpec, EffectKind, Layouts
from be_runtime.xla.attribute_values import Value, as_jax
from be_runtime.xla.jax_internals import effects, mlir
from be_runtime.xla.jax_primitive import result_aval, zero_tangent
from be_runtime.xla.split import Split, encode

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_LOOPS = ("sequential", "sequential_unrolled")
MERGED = "merged"
"""Method of kernels that compute each element along the first axis alone: a batch is more of them, where it can be."""

_WHOLE_BATCH = ("broadcast_all", "expand_dims", "legacy_vectorized")


class KernelEffect(effects.Effect):
    """The effect of a kernel that does more than compute its results."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __repr__(self) -> str:
        return f"kernel ({self._kind})"

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self)

    def __hash__(self) -> int:
        return hash(type(self))


class OrderedKernelEffect(KernelEffect):
    """The effect of kernels that run in the order of the program."""


_EFFECTS = {"side": KernelEffect("side effect"), "ordered": OrderedKernelEffect("ordered")}
for _registry in ("lowerable", "control_flow_allowed", "custom_derivatives_allowed", "remat_allowed"):
    for _kind in (KernelEffect, OrderedKernelEffect):
        getattr(effects, f"{_registry}_effects").add_type(_kind)
effects.ordered_effects.add_type(OrderedKernelEffect)


class KernelCall(NamedTuple):
    """Everything of a call but its arrays, the only parameter of the primitive.

    Parameters
    ----------
    label : str
        Name of the entry point, for messages.
    targets : tuple of (str, str)
        Names of JAX's platforms, and the target on each.
    results : tuple of jax.ShapeDtypeStruct
        Results, those that the caller does not see included.
    attributes : tuple of (str, Value)
        See `be_runtime.xla.attribute_values`.
    split : Split
        Axes that may be split over devices.
    vmap_method : str or None
    aliases : tuple of (int, int)
        Inputs, and the results that may use their memory.
    effect : {"none", "side", "ordered"}
    input_layouts, output_layouts : tuple of (tuple of int or None), or None
        Axes from major to minor.
    transposes : tuple of (int, callable)
        Inputs in which the kernel is linear. The callable gets the shape and dtype of the input, and the arrays of a
        call with the cotangent of the results in place of the input, and returns the input's cotangent.
    """

    label: str
    targets: tuple[tuple[str, str], ...]
    results: tuple[Any, ...]
    attributes: tuple[tuple[str, Value], ...]
    split: Split
    vmap_method: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()
    effect: EffectKind = "none"
    input_layouts: Layouts | None = None
    output_layouts: Layouts | None = None
    transposes: tuple[tuple[int, Callable[..., Any]], ...] = ()

    def __repr__(self) -> str:
        """The text in a printed program."""
        return f"{self.label}({', '.join(f'{name}={as_jax(value)!r}' for name, value in self.attributes)})"


kernel_call = Primitive("be_kernel")
kernel_call.multiple_results = True


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
        *jax_internals.vary_alike(*operands), call=KernelCall(results=structs, **fields)
    )
    return bound


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call with arrays of some types; within another program it leaves no trace."""
    return jax.jit(function, inline=True)


@functools.partial(jax.jit, static_argnames="call")
def _compiled(*arrays: Any, call: KernelCall) -> Any:
    return kernel_call.bind(*arrays, call=call)


def _execute(*arrays: Any, call: KernelCall) -> Any:
    with jax.disable_jit(disable=False):  # else the compiled function would call this function again
        return _compiled(*arrays, call=call)


def _abstract(*avals: Any, call: KernelCall) -> tuple[list[Any], set[Any]]:
    specs = _result_specs(call.split, avals)
    specs += [None] * (len(call.results) - len(specs))  # scratch memory
    results = [result_aval(avals, each, spec) for each, spec in zip(call.results, specs, strict=True)]
    return results, {effect for kind, effect in _EFFECTS.items() if kind == call.effect}


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
    summed = tuple(name for factor in split.partial_sums() if factor in axes for name in _names(axes[factor]))

    def run(*parts: Any) -> tuple[Any, ...]:
        results = function(*parts)
        return tuple(jax.lax.psum(each, summed) if summed else each for each in results)

    placed = [jax.sharding.reshard(each, spec) for each, spec in zip(operands, inputs, strict=True)]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(run, in_specs=tuple(inputs), out_specs=tuple(outputs))(*placed)
    return found


def _result_specs(split: Split, avals: Sequence[Any]) -> list[Any]:
    """Return the partition specs of the results in a mesh of explicit axes."""
    axes = _split_axes(split, avals)
    return [_spec(axes, factors) for factors in split.results]


def _spec(axes: Mapping[str, Any], factors: Sequence[str]) -> Any:
    return jax.sharding.PartitionSpec(*(axes.get(factor) for factor in factors))


def _names(axis: Any) -> tuple[str, ...]:
    return axis if isinstance(axis, tuple) else () if axis is None else (axis,)


def _split_axes(split: Split, avals: Sequence[Any]) -> dict[str, Any]:
    """Return the axes of a mesh of explicit axes for each factor, by the choice that `Placement` makes."""
    axes: dict[str, Any] = {}
    used: set[str] = set()
    for factors, aval in zip(split.operands, avals, strict=True):
        mesh = aval.sharding.mesh
        for factor, axis, extent in zip(factors, aval.sharding.spec, aval.shape, strict=False):
            names = _names(axis)
            divides = extent % math.prod(mesh.shape[name] for name in names) == 0
            if names and factor in split.free and factor not in axes and divides and used.isdisjoint(names):
                axes[factor] = axis
                used.update(names)
    return axes


def _batch(
    axis_data: Any, arrays: Sequence[Any], axes: Sequence[Any], *, call: KernelCall
) -> tuple[Sequence[Any], Sequence[int | None]]:
    """Map a call over an axis, as the methods of ``jax.ffi.ffi_call`` do."""
    size = axis_data.size
    mapped = [axis is not None for axis in axes]
    if not any(mapped):
        return kernel_call.bind(*arrays, call=call), [None] * len(call.results)
    moved = [jnp.moveaxis(a, axis, 0) if axis is not None else a for a, axis in zip(arrays, axes, strict=True)]
    if call.vmap_method == MERGED and _can_merge(call, mapped):
        parts = [call.split.first in factors for factors in call.split.operands]
        whole = [
            jnp.broadcast_to(a, (size, *a.shape)) if is_part and not is_mapped else a
            for a, is_part, is_mapped in zip(moved, parts, mapped, strict=True)
        ]
        grown = _with_axis(call, size, [size if is_part else None for is_part in parts])
        split = grown.split._replace(merged=grown.split.merged + 1)
        results = kernel_call.bind(*whole, call=grown._replace(split=split))
    elif call.vmap_method in (MERGED, *_LOOPS):
        results = _looped(axis_data, moved, mapped, call)
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
    is_plain = call.effect == "none" and call.input_layouts is None and call.output_layouts is None
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


def _looped(axis_data: Any, arrays: Sequence[Any], mapped: Sequence[bool], call: KernelCall) -> Sequence[Any]:
    """Call a kernel for one element of a batch after the other, on each device for its elements."""

    def loop(*parts: Any) -> tuple[Any, ...]:
        def element(carry: tuple[()], moving: Sequence[Any]) -> tuple[tuple[()], Sequence[Any]]:
            rest = iter(moving)
            every = [next(rest) if is_mapped else a for a, is_mapped in zip(parts, mapped, strict=True)]
            return carry, kernel_call.bind(*every, call=call)

        moving = [a for a, is_mapped in zip(parts, mapped, strict=True) if is_mapped]
        return tuple(jax.lax.scan(element, (), moving, unroll=call.vmap_method == "sequential_unrolled")[1])

    mesh_axis = axis_data.explicit_mesh_axis
    if mesh_axis is None or not hasattr(jax, "shard_map"):  # JAX 0.6.0 has another one
        return loop(*arrays)
    specs = [jax.sharding.PartitionSpec(*[mesh_axis] * is_mapped) for is_mapped in mapped]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(
        loop, in_specs=tuple(specs), out_specs=jax.sharding.PartitionSpec(mesh_axis), axis_names={*_names(mesh_axis)}
    )(*arrays)
    return found


def _differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, call: KernelCall) -> tuple[Any, Any]:
    """Compute the results, and their tangents by the same kernel where it is linear."""
    moving = [index for index, tangent in enumerate(tangents) if type(tangent) is not ad.Zero]
    lacking = [index for index in moving if index not in dict(call.transposes)]
    if lacking:
        is_linear = f" with respect to argument {lacking[0]}" if call.transposes else ""
        module, _, name = call.label.rpartition(".")
        rules = (
            f'give it one: {call.label}.defvjp(forward, backward), with kernels by name, such as "{name}_bwd"',
            "or, if it is linear in an argument, deftranspose; or stop it by jax.lax.stop_gradient",
        )
        raise TransformError(
            f"{call.label} has no derivative{is_linear}",
            hints=rules if module else ("give it one by jax.custom_vjp", "or stop it by jax.lax.stop_gradient"),
        )
    results = kernel_call.bind(*primals, call=call)
    parts = [kernel_call.bind(*primals[:i], tangents[i], *primals[i + 1 :], call=call) for i in moving]
    summed = [functools.reduce(ad.add_tangents, each) for each in zip(*parts, strict=True)]
    exact = [not jnp.issubdtype(each.dtype, jnp.inexact) for each in results]
    pairs = zip(results, summed, exact, strict=True)
    return results, [zero_tangent(result) if is_exact else tangent for result, tangent, is_exact in pairs]


def _transpose(cotangents: Sequence[Any], *operands: Any, call: KernelCall) -> list[Any]:
    """Map the cotangents of the results to that of the input in which the kernel is linear."""
    (index,) = (i for i, operand in enumerate(operands) if ad.is_undefined_primal(operand))
    given = [ad.instantiate_zeros(each) for each in cotangents[: len(call.split.results)]]
    found = jax_vjp.transposed(dict(call.transposes)[index], call.split, index, operands, given)
    return [found if i == index else None for i in range(len(operands))]


def _lower(platform: str, ctx: Any, *operands: Any, call: KernelCall) -> Sequence[Any]:
    is_for_several = len(ctx.module_context.platforms) > 1  # branches for one platform are lowered for all of them
    target = dict(call.targets).get(platform, call.targets[0][1] if is_for_several else None)
    if target is None:
        raise _not_registered(call, platform)
    if call.effect != "ordered" and not jax_internals.is_local(ctx.module_context.axis_context):
        return _lower_split(target, ctx, operands, call)
    ordered = call.effect == "ordered"
    if call.split.merged:
        return mlir.lower_fun(functools.partial(_flat, call), multiple_results=True)(ctx, *operands)  # type: ignore[no-any-return]
    rule = jax.ffi.ffi_lowering(
        target,
        operand_layouts=_minor_to_major(call.input_layouts, ordered=ordered),
        result_layouts=_minor_to_major(call.output_layouts, ordered=ordered),
        has_side_effect=call.effect != "none",
        operand_output_aliases=dict(call.aliases),
    )
    attributes = {name: as_jax(value) for name, value in call.attributes}
    if not ordered:
        return rule(ctx, *operands, **attributes)
    effect, token = _EFFECTS["ordered"], jax_internals.abstract_token
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token])
    *results, done = rule(inner, *operands, ctx.tokens_in.get(effect), **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: done})))
    return results


def _flat(call: KernelCall, *arrays: Any) -> Sequence[Any]:
    """Call a kernel with the batches as more elements along its first axis."""
    split, shown = call.split, len(call.split.results)
    given = [a.reshape(split.kernel_shape(each, a.shape)) for each, a in zip(split.operands, arrays, strict=True)]
    structs = zip(split.results, call.results[:shown], strict=True)
    made = [jax.ShapeDtypeStruct(split.kernel_shape(each, result.shape), result.dtype) for each, result in structs]
    scratch = split.scratch_shapes([a.shape for a in given], ())
    hidden = [jax.ShapeDtypeStruct(shape, jnp.uint8) for shape in scratch]
    alone = Split(tuple(() for _ in given), tuple(() for _ in made))
    found = kernel_call.bind(*given, call=call._replace(results=(*made, *hidden), split=alone))
    results = [each.reshape(result.shape) for each, result in zip(found, call.results[:shown], strict=False)]
    return [*results, *(jnp.zeros(each.shape, each.dtype) for each in call.results[shown:])]


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
    attributes = {name: mlir.ir_attribute(as_jax(value)) for name, value in call.attributes}
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


jax_internals.hide_frames(str(Path(__file__).parents[1]))  # a call is where its author makes it
kernel_call.def_impl(_execute)
kernel_call.def_effectful_abstract_eval(_abstract)
jax_internals.batching_rules[kernel_call] = _batch
ad.primitive_jvps[kernel_call] = _differentiate
ad.primitive_transposes[kernel_call] = _transpose
for _platform in _PLATFORMS:
    mlir.register_lowering(kernel_call, functools.partial(_lower, _platform), platform=_platform)
