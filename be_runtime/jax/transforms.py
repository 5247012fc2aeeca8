"""JAX's interface for new primitives, for `be_runtime.kernels.operation`.

It uses ``jax``, ``jax.extend`` and ``jax.interpreters``.

Only `devices` starts a JAX backend.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from be_runtime.jax.internals import varying

_LOWERED_FOR = {"cpu": ("cpu",), "gpu": ("cuda", "rocm"), "tpu": ("tpu",)}
"""JAX's platforms for each platform of an operation."""


class Level(NamedTuple):
    """One application of ``vmap``, which adds a leading axis.

    Parameters
    ----------
    size : int
        Size of the axis.
    mapped : tuple of bool
        True for each argument that has the axis.
    """

    size: int
    mapped: tuple[bool, ...]


def new_primitive(
    name: str,
    result_types: Callable[[Any], Sequence[jax.ShapeDtypeStruct]],
    run: Callable[..., Sequence[Any]],
) -> Primitive:
    """Make a primitive with several results and one parameter, ``call``, which is hashable.

    Parameters
    ----------
    name : str
    result_types : callable
        Function from the parameter to the shape and dtype of each result.
    run : callable
        ``run(platform, call, *arguments)`` computes the results while it is traced for a platform.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True

    def bind(*arguments: Any, call: Any) -> Any:
        return primitive.bind(*arguments, call=call)

    compiled = jax.jit(bind, static_argnames="call")

    def execute(*arguments: Any, call: Any) -> Any:
        return run_compiled(compiled, arguments, call, name)

    def abstract(*avals: Any, call: Any) -> list[Any]:
        results = result_types(call)
        specs = _result_specs(run, call, avals) or [None] * len(results)
        return [result_aval(avals, each, spec) for each, spec in zip(results, specs, strict=True)]

    primitive.def_impl(execute)
    primitive.def_abstract_eval(abstract)
    for platform, lowered_for in _LOWERED_FOR.items():
        rule = mlir.lower_fun(_on_platform(run, platform), multiple_results=True)
        for each in lowered_for:
            mlir.register_lowering(primitive, rule, platform=each)
    return primitive


def run_compiled(compiled: Callable[..., Any], arguments: Sequence[Any], call: Any, label: str) -> Any:
    """Run a primitive with arrays, outside of a program, by a jitted function that binds it.

    JAX calls a jitted function as Python under ``jax_disable_jit``, and after a NaN or an infinity under
    ``jax_debug_nans`` and ``jax_debug_infs``. That would bind the primitive with arrays again, without end, so these
    settings are off meanwhile, and the results are checked here.

    Raises
    ------
    FloatingPointError
        A result has a NaN or an infinity that the settings forbid.
    """
    with jax.disable_jit(disable=False), jax.debug_nans(False), jax.debug_infs(False):
        results = compiled(*arguments, call=call)
    floats = [each for each in results if jnp.issubdtype(each.dtype, jnp.inexact)]
    for is_on, kind, is_bad in (
        (jax.config.jax_debug_nans, "nan", jnp.isnan),  # type: ignore[attr-defined]
        (jax.config.jax_debug_infs, "inf", jnp.isinf),  # type: ignore[attr-defined]
    ):
        if is_on and any(is_bad(shard.data).any() for each in floats for shard in each.addressable_shards):
            raise FloatingPointError(f"invalid value ({kind}) encountered in {label}")
    return results


def _on_platform(run: Callable[..., Sequence[Any]], platform: str) -> Callable[..., Sequence[Any]]:
    def traced(*arguments: Any, call: Any) -> Sequence[Any]:
        return run(platform, call, *arguments)

    return traced


def _result_specs(run: Callable[..., Sequence[Any]], call: Any, avals: Sequence[Any]) -> list[Any] | None:
    """Return the partition specs that a kernel's results have in a mesh of explicit axes; None if they are whole.

    The kernel is that of JAX's default platform: what a program is compiled for is not known while it is traced. An
    error of the kernel is raised when the program is compiled.
    """
    if not any(name is not None for aval in avals for name in aval.sharding.spec):
        return None
    try:
        traced = jax.make_jaxpr(partial(run, jax.default_backend(), call))(*avals)
        return [each.sharding.spec for each in traced.out_avals]
    except Exception:  # noqa: BLE001 - see above
        return None


def result_aval(avals: Sequence[Any], result: jax.ShapeDtypeStruct, spec: Any = None) -> Any:
    """Return the abstract value of a result, which varies over the same axes of a mesh as the arguments.

    Parameters
    ----------
    spec : PartitionSpec, optional
        Axes of a mesh of explicit axes over which the result is split; by default none.
    """
    if not avals:
        return jax.core.ShapedArray(result.shape, result.dtype)
    first = max(avals, key=lambda aval: len(varying(aval)))
    meshes = [aval.sharding.mesh for aval in avals if not aval.sharding.mesh.empty]
    spec = jax.sharding.PartitionSpec(*[None] * len(result.shape)) if spec is None else spec
    sharding = jax.sharding.NamedSharding(meshes[0] if meshes else first.sharding.mesh, spec)
    return first.update(shape=result.shape, dtype=result.dtype, weak_type=False, sharding=sharding)


def set_batching(primitive: Primitive, rule: Callable[..., tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Use ``rule(arguments, axes, call=...)``, which returns the results and their axes, under ``vmap``."""
    batching.primitive_batchers[primitive] = rule


def set_jvp(primitive: Primitive, rule: Callable[..., tuple[Sequence[Any], Sequence[Any]]]) -> None:
    """Use ``rule(primals, tangents, call=...)``, which returns the results and their tangents."""
    ad.primitive_jvps[primitive] = rule


def set_transpose(primitive: Primitive, rule: Callable[..., Sequence[Any]]) -> None:
    """Use ``rule(cotangents, *arguments, call=...)``, which returns the cotangents of the linear arguments."""
    ad.primitive_transposes[primitive] = rule


def front(array: Any, axis: int) -> Any:
    """Move an axis of an array to the front."""
    return jnp.moveaxis(array, axis, 0)


def vmap_levels(function: Callable[..., Any], levels: Sequence[Level]) -> Callable[..., Any]:
    """Map a function over leading axes, the outermost level first."""
    for level in reversed(levels):
        axes = tuple(0 if mapped else None for mapped in level.mapped)
        function = jax.vmap(function, in_axes=axes, axis_size=level.size)
    return function


def loop_levels(function: Callable[..., Any], levels: Sequence[Level]) -> Callable[..., Any]:
    """Map like `vmap_levels`, one element after the other, a function without a batching rule."""
    for level in reversed(levels):
        function = _looped(function, level)
    return function


def _looped(function: Callable[..., Any], level: Level) -> Callable[..., Any]:
    def run(*arguments: Any) -> Any:
        def element(moving: Sequence[Any]) -> Any:
            taken = iter(moving)
            return function(
                *(next(taken) if mapped else argument for argument, mapped in zip(arguments, level.mapped, strict=True))
            )

        return jax.lax.map(element, [x for x, mapped in zip(arguments, level.mapped, strict=True) if mapped])

    return run


def is_zero(tangent: Any) -> bool:
    """Return whether a tangent or cotangent is a symbolic zero."""
    return type(tangent) is ad.Zero


def zero_tangent(primal: Any) -> Any:
    """Return the zero tangent of a value."""
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def zero_cotangent(shape: Sequence[int], dtype: Any) -> Any:
    """Return the zero cotangent of an array."""
    return ad.Zero(jax.core.ShapedArray(tuple(shape), dtype).to_tangent_aval())


def zeros(shape: Sequence[int], dtype: Any) -> Any:
    """Make an array of zeros."""
    return jnp.zeros(shape, dtype)


def add(first: Any, second: Any) -> Any:
    """Add two tangents."""
    return ad.add_tangents(first, second)


def materialize(tangent: Any) -> Any:
    """Convert a tangent to an array."""
    return ad.instantiate_zeros(tangent)


def is_linear(argument: Any) -> bool:
    """Return whether the cotangent of a transpose rule's argument is wanted."""
    return bool(ad.is_undefined_primal(argument))


def linear(shape: Sequence[int], dtype: Any) -> Any:
    """Make an argument of a transpose rule whose cotangent is wanted."""
    return ad.UndefinedPrimal(jax.core.ShapedArray(tuple(shape), dtype))


def sum_axes(array: Any, axes: Sequence[int]) -> Any:
    """Sum an array over some axes."""
    return array.sum(axis=tuple(axes)) if axes else array


def wait(tree: Any) -> None:
    """Wait until all arrays of a pytree are computed."""
    jax.block_until_ready(tree)


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a pytree; None counts as a leaf."""
    return jax.tree_util.tree_leaves(tree, is_leaf=lambda leaf: leaf is None or is_zero(leaf))


def struct(shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
    """Make the shape and dtype of a result."""
    return jax.ShapeDtypeStruct(tuple(map(operator.index, shape)), dtype)


def forget_programs() -> None:
    """Drop everything that JAX has traced or compiled in this process, so that it is traced again."""
    jax.clear_caches()


def devices(platform: str) -> Sequence[Any]:
    """List the devices of a platform; empty if there are none."""
    try:
        return jax.devices(platform)
    except RuntimeError:
        return ()


def default_device() -> Any:
    """Return the device that JAX puts arrays on."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.devices(chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


def ordinal(device: Any) -> int:
    """Return the number of a device on its host."""
    return int(getattr(device, "local_hardware_id", None) or 0)


def type_of(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape that an argument has in programs."""
    kind = jax.typeof(value)
    return kind.dtype.name, tuple(kind.shape)


def is_traced(value: Any) -> bool:
    """Return whether a value is known only when a program runs."""
    return isinstance(value, jax.core.Tracer)


def results_of(function: Callable[..., Any], arguments: Sequence[Any], device: Any) -> list[Any]:
    """Run a function once as a program, and return the leaves of its results as numpy's arrays."""
    placed = jax.device_put(list(arguments), device)
    with jax.default_device(device):
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(*placed))]


def repeated(
    function: Callable[..., Any], arguments: Sequence[Any], device: Any, flush_bytes: int = 0
) -> Callable[[int], None]:
    """Compile a program that calls a function a number of times, one call after the other, and waits for all results.

    The arguments of each call pass a barrier together with all results of the call before, so the compiler can't remove
    a call, move it out of the loop or merge it with another.

    Parameters
    ----------
    flush_bytes : int
        Size of an array that is read and written before each call, to displace everything else from caches.
    """
    placed = jax.device_put(list(arguments), device)

    def program(count: Any, values: Sequence[Any]) -> Any:
        def step(_: Any, state: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            inputs, flushed, _results = jax.lax.optimization_barrier(state)
            if flushed:
                inputs, flushed = jax.lax.optimization_barrier((inputs, [each + 1 for each in flushed]))
            return inputs, flushed, function(*inputs)

        first = jax.tree_util.tree_map(lambda out: jnp.zeros(out.shape, out.dtype), jax.eval_shape(function, *values))
        flushed = [jnp.zeros(flush_bytes // 4, jnp.float32)] if flush_bytes else []
        _, flushed, results = jax.lax.fori_loop(0, count, step, (list(values), flushed, first))
        return results, [each[:1] for each in flushed]

    compiled = jax.jit(program)

    def run(count: int) -> None:
        with jax.default_device(device):
            jax.block_until_ready(compiled(count, placed))

    return run
