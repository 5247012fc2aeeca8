"""The JAX primitive of a kernel's call: its execution, derivatives, batching and lowering.

To import this module registers its rules with JAX.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad
from jaxlib.mlir import ir

from be_runtime.errors import RegistrationError, TransformError
from be_runtime.jax import internals, partition
from be_runtime.jax.arrays import VMAPPED, EffectKind, Fields, Layouts, Split, Value, as_jax, is_symbolic
from be_runtime.jax.internals import Primitive, effects, mlir
from be_runtime.jax.transforms import devices, is_zero, result_aval, run_compiled, zero_tangent
from be_toolchain.named import NamedTuple

_LOOPS = ("sequential", "sequential_unrolled")

_MERGED = "merged"
"""Method of kernels that compute the elements of the first axis independently: a batch becomes more elements."""

_WHOLE_BATCH = ("broadcast_all", "expand_dims", "legacy_vectorized")


def pull_back(
    function: Callable[..., Any], arrays: Sequence[Any], cotangents: Callable[[Any], Any]
) -> tuple[list[Any], list[Any]]:
    """Return cotangents of the results, and the resulting cotangent of each array."""
    results, pull = jax.vjp(function, *map(jnp.asarray, arrays))
    given = jax.tree_util.tree_map(cotangents, results)
    return jax.tree_util.tree_leaves(given), list(pull(given))


def on_explicit_parts(function: Callable[..., Any], split: Split, operands: Sequence[Any]) -> Sequence[Any] | None:
    """Call a function with the parts of arrays whose types are split; return None if no type is split.

    A kernel with a launch by a Python function of the arrays needs the shapes of one device.
    """
    axes = _split_axes(split, [jax.typeof(each) for each in operands])
    if not axes or not hasattr(jax, "shard_map"):  # JAX 0.6.0 has another one
        return None
    inputs, outputs = ([_spec(axes, factors) for factors in each] for each in (split.operands, split.results))
    summed = tuple(name for factor in split.partial_sums() if factor in axes for name in names_of(axes[factor]))

    def run(*parts: Any) -> tuple[Any, ...]:
        found = function(*parts)
        results = found if isinstance(found, tuple) else (found,)
        return tuple(jax.lax.psum(each, summed) if summed else each for each in results)

    placed = [jax.sharding.reshard(each, spec) for each, spec in zip(operands, inputs, strict=True)]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(run, in_specs=tuple(inputs), out_specs=tuple(outputs))(*placed)
    return found


def _spec(axes: Mapping[str, Any], factors: Sequence[str]) -> Any:
    return jax.sharding.PartitionSpec(*(axes.get(factor) for factor in factors))


def _split_axes(split: Split, avals: Sequence[Any]) -> dict[str, Any]:
    """Return the axes of a mesh of explicit axes for each factor, chosen as `Placement` chooses."""
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


@dataclasses.dataclass(frozen=True, repr=False)
class KernelEffect(effects.Effect):
    """The effect of a kernel with side effects. Exported programs contain the name of the class."""

    def __repr__(self) -> str:
        return "kernel (side effect)"


@dataclasses.dataclass(frozen=True, repr=False)
class OrderedKernelEffect(KernelEffect):
    """The effect of kernels that run in the order of the program."""

    def __repr__(self) -> str:
        return "kernel (ordered)"


EFFECTS = {"side": KernelEffect(), "ordered": OrderedKernelEffect()}
for _registry in ("lowerable", "control_flow_allowed", "custom_derivatives_allowed", "remat_allowed"):
    for _kind in (KernelEffect, OrderedKernelEffect):
        getattr(effects, f"{_registry}_effects").add_type(_kind)
effects.ordered_effects.add_type(OrderedKernelEffect)


class BatchLoop(NamedTuple):
    """A loop over a batch.

    Parameters
    ----------
    element : KernelCall
        The call for one element.
    mapped : tuple of bool
        True for each operand whose first axis is the batch's.
    """

    element: KernelCall
    mapped: tuple[bool, ...]

    def run(self, *operands: Any, count: int) -> list[Any]:
        """Compute the first results of the batch, one element after the other."""
        element = self.element

        def step(none: tuple[()], moving: Any) -> tuple[tuple[()], Any]:
            rest = iter(moving)
            every = [next(rest) if is_mapped else a for a, is_mapped in zip(operands, self.mapped, strict=True)]
            return none, kernel_call.bind(*every, call=element)[:count]

        moving = [a for a, is_mapped in zip(operands, self.mapped, strict=True) if is_mapped]
        unroll = element.vmap_method == "sequential_unrolled"
        return [*jax.lax.scan(step, (), moving, unroll=unroll)[1]]


class KernelCall(NamedTuple):
    """A call without its arrays: the only parameter of the primitive.

    Parameters
    ----------
    label : str
        Name of the entry point, for messages.
    targets : tuple of (str, str)
        Names of JAX's platforms, and the target on each.
    results : tuple of jax.ShapeDtypeStruct
        Results, including scratch memory, which the caller does not see.
    attributes : tuple of (str, Value)
        See `be_runtime.jax.arrays`.
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
    loop : BatchLoop or None
        The call for one element of the leading axis, if that axis is a batch whose elements are computed one after the
        other. In that case, aliases, layouts and attributes describe one element.
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
    loop: BatchLoop | None = None

    def __repr__(self) -> str:
        """Return the text in a printed program."""
        each = "" if self.loop is None else " for each element of a batch"
        return f"{self.label}({', '.join(f'{name}={as_jax(value)!r}' for name, value in self.attributes)}){each}"


kernel_call = Primitive("be_kernel")
kernel_call.multiple_results = True


@functools.partial(jax.jit, static_argnames="call")
def _compiled(*arrays: Any, call: KernelCall) -> Any:
    return kernel_call.bind(*arrays, call=call)


def execute(*arrays: Any, call: KernelCall) -> Any:
    """Run a call with arrays, outside of a program."""
    return run_compiled(_compiled, arrays, call, call.label)


def abstract(*avals: Any, call: KernelCall) -> tuple[list[Any], set[Any]]:
    """Return the abstract values of the results, and the effects."""
    axes = _split_axes(call.split, avals)
    specs = [_spec(axes, factors) for factors in call.split.results]
    specs += [None] * (len(call.results) - len(specs))  # scratch memory
    results = [result_aval(avals, each, spec) for each, spec in zip(call.results, specs, strict=True)]
    return results, {effect for kind, effect in EFFECTS.items() if kind == call.effect}


def differentiate(primals: Sequence[Any], tangents: Sequence[Any], *, call: KernelCall) -> tuple[Any, Any]:
    """Compute the results, and the tangents by the same kernel for inputs in which it is linear."""
    moving = [index for index, tangent in enumerate(tangents) if not is_zero(tangent)]
    lacking = [index for index in moving if index not in dict(call.transposes)]
    if lacking:
        is_linear = f" with respect to argument {lacking[0]}" if call.transposes else ""
        module, _, name = call.label.rpartition(".")
        by_name = f', or the names of kernels, such as "{name}_bwd"' if module else ""
        raise TransformError(
            f"{call.label} has no derivative{is_linear}",
            hints=(
                f"pass two functions: {call.label}.defvjp(forward, backward){by_name}",
                "or, if it is linear in an argument, deftranspose; or stop it by jax.lax.stop_gradient",
            ),
        )
    results = kernel_call.bind(*primals, call=call)
    parts = [kernel_call.bind(*primals[:i], tangents[i], *primals[i + 1 :], call=call) for i in moving]
    summed = [functools.reduce(ad.add_tangents, each) for each in zip(*parts, strict=True)]
    pairs = zip(results, summed, strict=True)
    return results, [t if jnp.issubdtype(r.dtype, jnp.inexact) else zero_tangent(r) for r, t in pairs]


def transpose(cotangents: Sequence[Any], *operands: Any, call: KernelCall) -> list[Any]:
    """Compute the cotangent of the input in which the kernel is linear, even of a batch."""
    (index,) = (i for i, operand in enumerate(operands) if ad.is_undefined_primal(operand))
    split, own, linear = call.split, call.split.operands[index], operands[index].aval
    levels = [factor for factor in split.results[0] if factor.startswith(VMAPPED)]
    values: list[Any] = []
    for i, (array, factors) in enumerate(zip(operands, split.operands, strict=True)):
        names = [f"argument {i}: {level}" for level in levels]
        added = [axis for axis, factor in enumerate(factors) if factor in names]
        values.append(None if i == index else jnp.squeeze(array, added))  # added by ``vmap_method="expand_dims"``
    given = [ad.instantiate_zeros(each) for each in cotangents[: len(split.results)]]
    values[index] = given[0] if len(given) == 1 else tuple(given)
    has = [set(split.results[0] if i == index else factors) for i, factors in enumerate(split.operands)]
    batched = sum(factor in levels or factor.startswith(f"argument {index}: {VMAPPED}") for factor in own)
    rule, like = dict(call.transposes)[index], jax.ShapeDtypeStruct(linear.shape[batched:], linear.dtype)
    function = functools.partial(rule, like)
    for level in reversed(levels):
        function = jax.vmap(function, in_axes=tuple(0 if level in factors else None for factors in has))
    found = function(*values)
    for axis, level in enumerate(levels):  # an input that all elements share gets the sum
        if level not in own:
            found = found.sum(axis=axis, keepdims=True)
    lacking = [i for i, level in enumerate(levels) if not {level, f"argument {index}: {level}"} & set(own)]
    found = jnp.squeeze(found, lacking)
    return [found if i == index else None for i in range(len(operands))]


def lower(platform: str, ctx: Any, *operands: Any, call: KernelCall) -> Sequence[Any]:
    """Emit a call for a platform under the kernel's name, which profilers show."""
    with _named(ir.Location.current, call.label):
        return _lower(platform, ctx, operands, call)


def _named(here: Any, label: str) -> Any:
    """Return the location of an operation that is lowered, with a kernel's name instead of the primitive's.

    The location is a name around the line of the call, or only a name if JAX caches the lowering and adds the line of
    each call later. Newer releases put another name around it, the kind of the operation with a colon.
    """
    is_name = here.is_a_name() if hasattr(here, "is_a_name") else hasattr(here, "name_str")
    if not is_name:
        return ir.Location.name(label)
    if here.name_str.endswith(":"):
        return ir.Location.name(here.name_str, childLoc=_named(here.child_loc, label))
    return ir.Location.name(here.name_str.removesuffix(kernel_call.name) + label, childLoc=here.child_loc)


def _lower(platform: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call for a platform."""
    is_for_several = len(ctx.module_context.platforms) > 1  # a branch for one platform is lowered for all platforms
    target = dict(call.targets).get(platform, call.targets[0][1] if is_for_several else None)
    if target is None:
        raise _not_registered(call, platform)
    if call.effect != "ordered" and not internals.is_local(ctx.module_context.axis_context):
        return _lower_split(target, ctx, operands, call)
    if call.loop is not None:
        return _lower_loop(ctx, operands, call.loop)
    ordered = call.effect == "ordered"
    if ordered and _has_symbol(*ctx.avals_out):
        raise TransformError(
            f"{call.label} is ordered and its results have symbolic shapes, which XLA can't find in such a call",
            hints=("use has_side_effect=True instead of ordered=True", "or export the program once for each shape"),
        )
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
    effect, token = EFFECTS["ordered"], internals.abstract_token
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token])
    *results, done = rule(inner, *operands, ctx.tokens_in.get(effect), **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: done})))
    return results


def _has_symbol(*avals: Any) -> bool:
    return any(is_symbolic(extent) for aval in avals for extent in aval.shape)


def _lower_loop(ctx: Any, operands: Sequence[Any], loop: BatchLoop) -> Sequence[Any]:
    """Emit a loop over a batch; the scratch memory of its elements is not a result."""
    shown = len(loop.element.split.results)
    run = mlir.lower_fun(functools.partial(loop.run, count=shown), multiple_results=True)
    results = run(ctx.replace(avals_out=ctx.avals_out[:shown]), *operands)
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in ctx.avals_out[shown:])]


def _lower_flat(platform: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call of a kernel that gets a batch as further elements along its first axis."""
    split, shown = call.split, len(call.split.results)
    given, made = (
        [internals.shaped(split.kernel_shape(axes, a.shape), a.dtype) for axes, a in zip(factors, avals, strict=True)]
        for factors, avals in ((split.operands, ctx.avals_in), (split.results, ctx.avals_out[:shown]))
    )
    scratch = [internals.shaped(shape, np.uint8) for shape in split.scratch_shapes([a.shape for a in given], ())]
    inner = ctx.replace(avals_in=given, avals_out=[*made, *scratch])
    alone = call._replace(split=Split(tuple(() for _ in given), tuple(() for _ in made)))
    found = _lower(platform, inner, [mlir.reshape(ctx, *each) for each in zip(operands, given, strict=True)], alone)
    results = [mlir.reshape(ctx, *each) for each in zip(found[:shown], ctx.avals_out[:shown], strict=True)]
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in ctx.avals_out[shown:])]


def _lower_split(target: str, ctx: Any, operands: Sequence[Any], call: KernelCall) -> Sequence[Any]:
    """Emit a call for `be_runtime.jax.partition`, with the rule from which Shardy infers the results' shardings."""
    if _has_symbol(*ctx.avals_in, *ctx.avals_out):
        raise TransformError(
            f"{call.label} has a symbolic shape, and XLA can't split such a call over devices",
            hints=("export the program for one device", "or once for each shape"),
        )
    split = call.split if internals.sums_parts() else call.split.without_sums()
    shown, hidden = ctx.avals_out[: len(split.results)], ctx.avals_out[len(split.results) :]
    types = [ir.RankedTensorType.get(aval.shape, mlir.dtype_to_ir_type(aval.dtype)) for aval in shown]
    given = [each.type for each in operands]
    if split.computed is None and split.free:
        raise TransformError(
            f"{call.label} has a launch that Python functions compute, so XLA can't split the call over devices",
            hints=("write the sizes as arithmetic, as in grid='ceil(n/256)'", "or call it within jax.shard_map"),
        )
    attributes = {name: mlir.ir_attribute(_attribute(value)) for name, value in call.attributes}
    config = {
        "label": call.label,
        "target": target,
        "attributes": {name: str(value) for name, value in attributes.items()},
        "split": split._asdict(),
        "aliases": call.aliases,
        "has_side_effect": call.effect != "none",
        "elements": [[str(ir.RankedTensorType(each).element_type) for each in side] for side in (given, types)],
        "layouts": [call.input_layouts, call.output_layouts],
        "mesh": internals.manual_axes(ctx.module_context.axis_context),
    }
    op = mlir.custom_call(
        partition.TARGET,
        result_types=types,
        operands=operands,
        api_version=2,
        has_side_effect=call.effect != "none",
        backend_config=json.dumps(config, sort_keys=True),
    )
    op.attributes["sdy.sharding_rule"] = internals.sharding_rule(split, given, types)
    results = [mlir.lower_with_sharding_in_types(ctx, each, aval) for each, aval in zip(op.results, shown, strict=True)]
    return [*results, *(mlir.full_like_aval(ctx, 0, aval) for aval in hidden)]


def _attribute(value: Value) -> Any:
    """Convert an attribute to a value that JAX lowers. JAX refuses integers from 2**63 on, which XLA can carry."""
    if isinstance(value, Fields):
        return {name: _attribute(each) for name, each in value.items}
    found = as_jax(value)
    is_large = isinstance(found, np.uint64) and int(found) >> 63
    return ir.Attribute.parse(f"{found} : ui64") if is_large else found


def _minor_to_major(layouts: Layouts | None, *, ordered: bool) -> list[tuple[int, ...] | None] | None:
    flipped = [None if each is None else each[::-1] for each in layouts or ()]
    return None if layouts is None else flipped + [None] * ordered


def _not_registered(call: KernelCall, platform: str) -> RegistrationError:
    known, other = ", ".join(dict(call.targets)), call.targets[0][0]
    makers = (
        "load_cpp_* or numba_kernel"
        if platform == "cpu"
        else ("load_cuda_*, cuda_kernel or numba_cuda_kernel; without a GPU, load_inline with a compute_capability")
    )
    return RegistrationError(
        f"{call.label} has no kernel for {platform}, which the program is compiled for; it has {known}",
        hints=(
            f"make a kernel for {platform} with {makers}",
            *([f"or put the arrays on another device: jax.devices({other!r})"] if devices(other) else []),
            f"or export the program for it: platforms={other!r}",
        ),
    )


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
    elif call.vmap_method in (_MERGED, *_LOOPS) or any(mapped[index] for index in call.split.numbers):
        loop = BatchLoop(call, tuple(mapped))
        if call.effect != "ordered" and axis_data.explicit_mesh_axis is None:
            grown = _with_axis(call, size, [size if is_mapped else None for is_mapped in mapped])
            split = grown.split._replace(looped=call.split.looped + 1)
            results = kernel_call.bind(*moved, call=call._replace(results=grown.results, split=split, loop=loop))
        else:
            results = _looped(axis_data.explicit_mesh_axis, moved, loop)
    elif call.vmap_method in _WHOLE_BATCH:
        copies = [size] if call.vmap_method == "broadcast_all" or call.aliases else [1]
        if call.vmap_method == "legacy_vectorized" and not call.aliases:
            copies = []
        whole = [
            a if is_mapped or index in call.split.numbers else jnp.broadcast_to(a, (*copies, *a.shape))
            for index, (a, is_mapped) in enumerate(zip(moved, mapped, strict=True))
        ]
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
    """Return whether a batch can become further elements along the first axis, which are independent."""
    is_plain = call.effect == "none" and call.input_layouts is None and call.output_layouts is None and not call.loop
    pairs = zip(call.split.operands, mapped, strict=True)
    return is_plain and all(call.split.first in factors for factors, is_mapped in pairs if is_mapped)


def _with_axis(call: KernelCall, size: int, sizes: Sequence[int | None]) -> KernelCall:
    """Return the call of a batch; `sizes` has the extent of each operand's new axis, None for an operand without it."""

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
    """Call a kernel for one element of a batch after the other; each device computes its own elements."""
    run = functools.partial(loop.run, count=len(loop.element.results))
    if mesh_axis is None or not hasattr(jax, "shard_map"):  # JAX 0.6.0 has another one
        return run(*arrays)
    specs = [jax.sharding.PartitionSpec(*[mesh_axis] * is_mapped) for is_mapped in loop.mapped]
    shard: Any = jax.shard_map
    found: Sequence[Any] = shard(
        run, in_specs=tuple(specs), out_specs=jax.sharding.PartitionSpec(mesh_axis), axis_names={*names_of(mesh_axis)}
    )(*arrays)
    return found


internals.hide_frames(str(Path(__file__).parents[1]))  # the line of a call is its author's
kernel_call.def_impl(execute)
kernel_call.def_effectful_abstract_eval(abstract)
internals.batching_rules[kernel_call] = batch
ad.primitive_jvps[kernel_call] = differentiate
ad.primitive_transposes[kernel_call] = transpose
for _platform in ("cpu", "cuda", "rocm", "tpu"):
    internals.mlir.register_lowering(kernel_call, functools.partial(lower, _platform), platform=_platform)
