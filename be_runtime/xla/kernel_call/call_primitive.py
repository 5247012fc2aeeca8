"""The primitive: its parameter, its effects, the types of its results, and its call outside of a program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.extend.core import Primitive

from be_runtime.xla.arrays import EffectKind, Layouts
from be_runtime.xla.attribute_values import Value, as_jax
from be_runtime.xla.jax_internals import effects
from be_runtime.xla.jax_primitive import result_aval, run_compiled
from be_runtime.xla.kernel_call.explicit_mesh import result_specs
from be_runtime.xla.split import Split


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


EFFECTS = {"side": KernelEffect("side effect"), "ordered": OrderedKernelEffect("ordered")}
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
        True for each operand that has the batch's axis, its first.
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
    loop : BatchLoop or None
        The call for one element of the leading axis, if that is a batch whose elements are computed one after the
        other; aliases, layouts and attributes are those of one element.
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
        """The text in a printed program."""
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
    specs = result_specs(call.split, avals)
    specs += [None] * (len(call.results) - len(specs))  # scratch memory
    results = [result_aval(avals, each, spec) for each, spec in zip(call.results, specs, strict=True)]
    return results, {effect for kind, effect in EFFECTS.items() if kind == call.effect}
