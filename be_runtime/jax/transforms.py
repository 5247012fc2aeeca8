"""The JAX primitive of an operation of several kernels, its transformations, and JAX's devices and timed loops.

An author's rules are for one element. A batched call that is differentiated uses them under ``vmap``, which batches the
calls in the rules, so that ``vmap`` and ``grad`` compose in any order.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from be_runtime.errors import ArgumentError, call_named
from be_runtime.jax.internals import Primitive, varying
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import many

Function = Callable[..., Any]
Rule = Function

batching_rules = batching.primitive_batchers
"""Rules for ``vmap`` by primitive: ``rule(arguments, axes, **parameters)`` returns the results and their axes."""

jvp_rules = ad.primitive_jvps
"""Rules by primitive: ``rule(primals, tangents, **parameters)`` returns the results and their tangents."""

transpose_rules = ad.primitive_transposes
"""Rules by primitive: ``rule(cotangents, *arguments, **parameters)`` returns the arguments' cotangents."""

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


def new_primitive(name: str, run: Function) -> Primitive:
    """Make a primitive with several results and one parameter, ``call``, a `be_runtime.kernels.dispatch.Call`.

    Parameters
    ----------
    name : str
    run : callable
        ``run(platform, *arguments, call=...)`` computes the results in a trace for a platform.
    """
    primitive = Primitive(name)
    primitive.multiple_results = True

    @partial(jax.jit, static_argnames="call")
    def bind(*arguments: Any, call: Any) -> Any:
        return primitive.bind(*arguments, call=call)

    def execute(*arguments: Any, call: Any) -> Any:
        return run_compiled(bind, arguments, call, name)

    def abstract(*avals: Any, call: Any) -> list[Any]:
        sizes = tuple(level.size for level in call.levels)
        results = [jax.ShapeDtypeStruct((*sizes, *out.shape), out.dtype) for out in call.outs]
        specs = _result_specs(run, call, avals) or [None] * len(results)
        return [result_aval(avals, each, spec) for each, spec in zip(results, specs, strict=True)]

    primitive.def_impl(execute)
    primitive.def_abstract_eval(abstract)
    for platform, lowered_for in _LOWERED_FOR.items():
        rule = mlir.lower_fun(partial(run, platform), multiple_results=True)
        for each in lowered_for:
            mlir.register_lowering(primitive, rule, platform=each)
    return primitive


def run_compiled(compiled: Function, arguments: Sequence[Any], call: Any, label: str) -> Any:
    """Run a primitive with arrays, outside of a program, by a jitted function that binds it.

    JAX calls a jitted function as Python under ``jax_disable_jit``, and after a NaN or an infinity under
    ``jax_debug_nans`` and ``jax_debug_infs``. That would bind the primitive with arrays again in an endless recursion,
    so these settings are off meanwhile, and the results are checked here.

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


def _result_specs(run: Function, call: Any, avals: Sequence[Any]) -> list[Any] | None:
    """Return the partition specs of a kernel's results in a mesh of explicit axes; None if the results are whole.

    The kernel of JAX's default platform is traced, since the platform of the program is not known yet.
    An error of the kernel is raised when the program is compiled.
    """
    if not any(name is not None for aval in avals for name in aval.sharding.spec):
        return None
    try:
        traced = jax.make_jaxpr(partial(run, jax.default_backend(), call=call))(*avals)
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


def batch(bind: Rule, arguments: Sequence[Any], axes: Sequence[int | None], *, call: Any) -> tuple[Any, Any]:
    """Compute all elements in one call with one more level; add no level if no argument has an axis."""
    moved, level = lead(arguments, axes)
    if level is None:
        results = bind(*arguments, call=call)
        return results, [None] * len(results)
    results = bind(*moved, call=call._replace(levels=(level, *call.levels)))
    return results, [0] * len(results)


def lead(arguments: Sequence[Any], axes: Sequence[int | None]) -> tuple[list[Any], Level | None]:
    """Move the axes of a batch to the front; the level is None if no argument has one."""
    mapped = tuple(axis is not None for axis in axes)
    moved = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arguments, axes, strict=True)]
    return moved, Level(moved[mapped.index(True)].shape[0], mapped) if any(mapped) else None


def vmap_levels(function: Function, levels: Sequence[Level]) -> Function:
    """Map a function over leading axes, the outermost level first."""
    for level in reversed(levels):
        axes = tuple(0 if mapped else None for mapped in level.mapped)
        function = jax.vmap(function, in_axes=axes, axis_size=level.size)
    return function


def loop_levels(function: Function, levels: Sequence[Level]) -> Function:
    """Map a function without a batching rule like `vmap_levels`, for one element after the other."""
    for level in reversed(levels):
        function = partial(_loop, function, level)
    return function


def _loop(function: Function, level: Level, *arguments: Any) -> Any:
    pairs = list(zip(arguments, level.mapped, strict=True))

    def element(moving: Sequence[Any]) -> Any:
        rest = iter(moving)
        return function(*(next(rest) if mapped else argument for argument, mapped in pairs))

    return jax.lax.map(element, [argument for argument, mapped in pairs if mapped])


def jvp(name: str, rule: Rule, primals: Sequence[Any], tangents: Sequence[Any], *, call: Any) -> tuple[Any, Any]:
    """Compute the results and their tangents by the author's rule for an operation."""
    what = f"the JVP rule of {name}"
    if not call.levels:
        outs, out_tangents = call_named(what, rule, tuple(primals), tuple(tangents), **call.parameters())
        return leaves(outs), leaves(out_tangents)
    count = len(primals)
    live = [index for index, tangent in enumerate(tangents) if not is_zero(tangent)]

    def one(*values: Any) -> tuple[list[Any], list[Any]]:
        given = dict(zip(live, values[count:], strict=True))
        filled = tuple(given.get(i, zero_tangent(primal)) for i, primal in enumerate(values[:count]))
        outs, out_tangents = call_named(what, rule, values[:count], filled, **call.parameters())
        return leaves(outs), [ad.instantiate_zeros(tangent) for tangent in leaves(out_tangents)]

    levels = [Level(size, (*mapped, *(mapped[i] for i in live))) for size, mapped in call.levels]
    outs, out_tangents = vmap_levels(one, levels)(*primals, *(tangents[i] for i in live))
    return outs, out_tangents


def jvp_by_input(bind: Rule, rules: Sequence[Rule | None], name: str) -> Rule:
    """Combine rules for single inputs, ``rule(tangent, *primals, **parameters)`` or None for no effect, into one."""

    def combined(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> tuple[Any, Any]:
        if len(rules) != len(primals):
            raise ArgumentError(
                f"{name} has JVP rules for {many(len(rules), 'input')}, but the call has {len(primals)}"
            )
        outs = leaves(bind(*primals, **parameters))
        total = [zero_tangent(out) for out in outs]
        for rule, tangent in zip(rules, tangents, strict=True):
            if rule is not None and not is_zero(tangent):
                part = leaves(call_named(f"a JVP rule of {name}", rule, tangent, *primals, **parameters))
                if len(part) != len(total):
                    counts = f"{many(len(part), 'tangent')} for {many(len(total), 'result')}"
                    raise ArgumentError(f"a JVP rule of {name} gives {counts}")
                total = [ad.add_tangents(first, second) for first, second in zip(total, part, strict=True)]
        return outs, total

    return combined


def transpose(name: str, rule: Rule, cotangents: Sequence[Any], *arguments: Any, call: Any) -> Sequence[Any]:
    """Compute the cotangents of the linear arguments by the author's rule for an operation."""
    what = f"the transpose rule of {name}"
    if not call.levels:
        return call_named(what, rule, list(cotangents), *arguments, **call.parameters())  # type: ignore[no-any-return]
    wanted = [i for i, argument in enumerate(arguments) if ad.is_undefined_primal(argument)]
    known = [i for i in range(len(arguments)) if i not in wanted]
    live = [i for i, cotangent in enumerate(cotangents) if not is_zero(cotangent)]
    elements = {}
    for i in wanted:  # without their batch axes
        aval = arguments[i].aval
        elements[i] = jax.core.ShapedArray(aval.shape[sum(level.mapped[i] for level in call.levels) :], aval.dtype)

    def one(*values: Any) -> list[Any]:
        given = dict(zip(known, values, strict=False))
        filled = [given[i] if i in given else ad.UndefinedPrimal(elements[i]) for i in range(len(arguments))]
        there = dict(zip(live, values[len(known) :], strict=True))
        complete = [there.get(i, _zero_cotangent(out)) for i, out in enumerate(call.outs)]
        found = call_named(what, rule, complete, *filled, **call.parameters())
        return [ad.instantiate_zeros(_zero_cotangent(elements[i]) if found[i] is None else found[i]) for i in wanted]

    levels = [Level(size, (*(mapped[i] for i in known), *(True for _ in live))) for size, mapped in call.levels]
    found = vmap_levels(one, levels)(*(arguments[i] for i in known), *(cotangents[i] for i in live))
    results: list[Any] = [None] * len(arguments)
    for i, cotangent in zip(wanted, found, strict=True):
        shared = tuple(axis for axis, level in enumerate(call.levels) if not level.mapped[i])
        results[i] = cotangent.sum(axis=shared) if shared else cotangent
    return results


def is_zero(tangent: Any) -> bool:
    """Return whether a tangent or cotangent is a symbolic zero."""
    return isinstance(tangent, ad.Zero)


def zero_tangent(primal: Any) -> Any:
    """Return the symbolic zero tangent of a value."""
    return ad.Zero(jax.typeof(primal).to_tangent_aval())


def _zero_cotangent(array: Any) -> Any:
    return ad.Zero(jax.core.ShapedArray(array.shape, array.dtype).to_tangent_aval())


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a pytree; None and a symbolic zero count as leaves."""
    return jax.tree_util.tree_leaves(tree, is_leaf=lambda leaf: leaf is None or is_zero(leaf))


def forget_programs() -> None:
    """Drop all programs that JAX has traced or compiled in this process, so that they are traced again."""
    jax.clear_caches()


def struct(array: Any) -> jax.ShapeDtypeStruct:
    """Return the shape and dtype of an array, with extents that are plain integers."""
    return jax.ShapeDtypeStruct(tuple(map(operator.index, array.shape)), array.dtype)


def devices(platform: str) -> Sequence[Any]:
    """List the devices of a platform; empty if there are none."""
    try:
        return jax.devices(platform)
    except RuntimeError:
        return ()


def default_device() -> Any:
    """Return the device on which JAX places arrays."""
    chosen = jax.config.jax_default_device  # type: ignore[attr-defined]
    return jax.devices(chosen)[0] if chosen is None or isinstance(chosen, str) else chosen


def type_of(value: Any) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and the shape of an argument in programs."""
    kind = jax.typeof(value)
    return kind.dtype.name, tuple(kind.shape)


def is_tracing() -> bool:
    """Return whether this thread traces a program, in which no operation runs."""
    return isinstance(jnp.zeros(()), jax.core.Tracer)


def trace_only(function: Function, arguments: Sequence[Any]) -> None:
    """Trace a function without running it."""
    jax.eval_shape(function, *arguments)


def results_of(function: Function, arguments: Sequence[Any], device: Any) -> list[Any]:
    """Run a function once as a program, and return the leaves of its results as NumPy arrays."""
    placed = jax.device_put(list(arguments), device)
    with jax.default_device(device):
        return [np.asarray(leaf) for leaf in jax.tree_util.tree_leaves(jax.jit(function)(*placed))]


def repeated(function: Function, arguments: Sequence[Any], device: Any, flush_bytes: int = 0) -> Callable[[int], None]:
    """Return a compiled loop: ``run(count)`` calls a function `count` times, in order, and waits for all results.

    The arguments of each call pass a barrier together with all results of the call before, so the compiler can't remove
    a call, move it out of the loop or merge it with another.

    Parameters
    ----------
    flush_bytes : int
        Size of an array that is read and written before each call, to displace other data from caches.
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
