"""The primitive of a call of an entry point: its types, its batching, its effects and its lowering.

It uses ``jax``, ``jax.extend``, ``jax.interpreters``, and of JAX's private modules ``jax._src.effects``, the only home
of effects: their registries ``lowerable_effects``, ``ordered_effects``, ``control_flow_allowed_effects``,
``custom_derivatives_allowed_effects`` and ``remat_allowed_effects`` are those of JAX 0.6 to 0.10.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax._src import core, effects
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from be_runtime.errors import RegistrationError, TransformError
from be_runtime.xla.arrays import ArraySpec, EffectKind, Layouts
from be_runtime.xla.attribute_values import Value, as_jax
from be_runtime.xla.jax_primitive import result_aval

_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")
_LOOPS = ("sequential", "sequential_unrolled")
_WHOLE_BATCH = ("broadcast_all", "expand_dims", "legacy_vectorized")


class KernelEffect(effects.Effect):
    """The effect of a kernel that does more than compute its results."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def __str__(self) -> str:
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
    vmap_method : str or None
    aliases : tuple of (int, int)
        Inputs, and the results that may use their memory.
    effect : {"none", "side", "ordered"}
    input_layouts, output_layouts : tuple of (tuple of int or None), or None
        Axes from major to minor.
    """

    label: str
    targets: tuple[tuple[str, str], ...]
    results: tuple[Any, ...]
    attributes: tuple[tuple[str, Value], ...]
    vmap_method: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()
    effect: EffectKind = "none"
    input_layouts: Layouts | None = None
    output_layouts: Layouts | None = None

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
    bound: Sequence[Any] = kernel_call.bind(*operands, call=KernelCall(results=structs, **fields))
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
    return [result_aval(avals, each) for each in call.results], {
        effect for kind, effect in _EFFECTS.items() if kind == call.effect
    }


def _batch(arrays: Sequence[Any], axes: Sequence[Any], *, call: KernelCall) -> tuple[Sequence[Any], Sequence[int]]:
    """Map a call over an axis, as the methods of ``jax.ffi.ffi_call`` do."""
    (size,) = {array.shape[axis] for array, axis in zip(arrays, axes, strict=True) if axis is not None}
    mapped = [axis is not None for axis in axes]
    moved = [jnp.moveaxis(a, axis, 0) if axis is not None else a for a, axis in zip(arrays, axes, strict=True)]
    if call.vmap_method in _LOOPS:
        results = _looped(moved, mapped, call)
    elif call.vmap_method in _WHOLE_BATCH:
        copies = size if call.vmap_method == "broadcast_all" or call.aliases else 1
        whole = [a if is_mapped else _repeat(a, copies, call) for a, is_mapped in zip(moved, mapped, strict=True)]
        grown = [not is_mapped and call.vmap_method == "legacy_vectorized" for is_mapped in mapped]
        results = kernel_call.bind(*whole, call=_with_axis(call, size, grown))
    else:
        raise TransformError(
            f"{call.label} has no rule for vmap",
            hints=(
                "declare leading axes, as in arg[... n], if the kernel takes them",
                'or choose "sequential", "broadcast_all" or "expand_dims": with_options(vmap_method="sequential")',
                "or pass vmap_method where a raw or Numba kernel is made",
            ),
        )
    return results, [0] * len(results)


def _repeat(array: Any, copies: int, call: KernelCall) -> Any:
    if call.vmap_method == "legacy_vectorized" and not call.aliases:
        return array
    return jnp.broadcast_to(array, (copies, *array.shape))


def _with_axis(call: KernelCall, size: int, same: Sequence[bool]) -> KernelCall:
    """Return the call of a batch; the arrays in `same` have no axis for it."""

    def layouts(each: Layouts | None, same: Sequence[bool]) -> Layouts | None:
        if each is None:
            return None
        pairs = zip(each, same, strict=True)
        return tuple(one if one is None or kept else (0, *(axis + 1 for axis in one)) for one, kept in pairs)

    return call._replace(
        results=tuple(jax.ShapeDtypeStruct((size, *each.shape), each.dtype) for each in call.results),
        input_layouts=layouts(call.input_layouts, same),
        output_layouts=layouts(call.output_layouts, [False] * len(call.results)),
    )


def _looped(arrays: Sequence[Any], mapped: Sequence[bool], call: KernelCall) -> Sequence[Any]:
    def element(carry: tuple[()], moving: Sequence[Any]) -> tuple[tuple[()], Sequence[Any]]:
        rest = iter(moving)
        every = [next(rest) if is_mapped else a for a, is_mapped in zip(arrays, mapped, strict=True)]
        return carry, kernel_call.bind(*every, call=call)

    moving = [a for a, is_mapped in zip(arrays, mapped, strict=True) if is_mapped]
    results: Sequence[Any] = jax.lax.scan(element, (), moving, unroll=call.vmap_method == "sequential_unrolled")[1]
    return results


def _differentiate(*_values: Any, call: KernelCall) -> Any:
    raise TransformError(
        f"{call.label} has no derivative",
        hints=("give it one by jax.custom_jvp or jax.custom_vjp", "or stop it by jax.lax.stop_gradient"),
    )


def _lower(platform: str, ctx: Any, *operands: Any, call: KernelCall) -> Sequence[Any]:
    target = dict(call.targets).get(platform)
    if target is None:
        raise _not_registered(call, platform)
    ordered = call.effect == "ordered"
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
    effect, token = _EFFECTS["ordered"], core.abstract_token
    inner = ctx.replace(avals_in=[*ctx.avals_in, token], avals_out=[*ctx.avals_out, token])
    *results, done = rule(inner, *operands, ctx.tokens_in.get(effect), **attributes)
    ctx.set_tokens_out(ctx.tokens_in.update_tokens(mlir.TokenSet({effect: done})))
    return results


def _minor_to_major(layouts: Layouts | None, *, ordered: bool) -> list[tuple[int, ...] | None] | None:
    if layouts is None:
        return None
    return [None if each is None else each[::-1] for each in layouts] + [None] * ordered


def _not_registered(call: KernelCall, platform: str) -> RegistrationError:
    known = ", ".join(f"{name} for {each}" for each, name in call.targets)
    makers = "load_cpp_* or numba_kernel" if platform == "cpu" else "load_cuda_*, cuda_kernel or numba_cuda_kernel"
    return RegistrationError(
        f"{call.label} has no kernel for {platform}, which the program is compiled for; registered is {known}",
        hints=(
            f"make a kernel for {platform} with {makers}",
            f"or put the arrays on another device: jax.devices({call.targets[0][0]!r})",
        ),
    )


kernel_call.def_impl(_execute)
kernel_call.def_effectful_abstract_eval(_abstract)
batching.primitive_batchers[kernel_call] = _batch
ad.primitive_jvps[kernel_call] = _differentiate
for _platform in _PLATFORMS:
    mlir.register_lowering(kernel_call, functools.partial(_lower, _platform), platform=_platform)
