"""Calls of raw kernels, wherever their code is from: parameters are bound, and the geometry is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.call.array_function import ArrayKernel, array_function
from be_runtime.call.call_options import Options
from be_runtime.call.compiled_function import CompiledFunction
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import Resolved
from be_runtime.call.tracing import KernelTarget
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda.calls import Obtained, launch
from be_runtime.kernels.cuda.describe import KernelParam, LaunchParam, pointer_param, scalar_param
from be_runtime.kernels.cuda.geometry import Dims, explicit_geometry
from be_runtime.kernels.cuda.sizes import read_sizes
from be_runtime.spec.model import Param, Role
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.attribute_values import Numbers, Value

_SCRATCH_UNIT = 256
"""Bytes at a multiple of which each scratch memory begins, also in a batch."""


class RawPrototype(NamedTuple):
    """A kernel as calls see it.

    Parameters
    ----------
    name, label : str
        Last part of its name, and the whole of it.
    params : tuple of KernelParam
    """

    name: str
    label: str
    params: tuple[KernelParam, ...]


def raw_function(
    prototype: RawPrototype,
    obtain: Callable[[], Obtained],
    signature: object,
    sizes: Mapping[str, Any],
    cluster: Dims | None,
    options: Options,
    report: Callable[[Sequence[int] | None], Any] | None = None,
) -> CompiledFunction:
    """Make the function of a raw kernel, wherever its code is from; see `cuda_kernel`.

    Parameters
    ----------
    prototype : RawPrototype
    obtain : callable
        Function that obtains the kernel, called for each call that is traced.
    signature : str, sequence of str or None
    sizes : mapping of str to Size
        ``grid``, ``block`` and ``shared_mem``.
    cluster : int, tuple of int or None
    options : Options
    report : callable, optional
        Function that makes the kernel's report for block sizes.
    """
    name, label, params = prototype
    pointers = [param.name for param in params if param.is_pointer]
    declared = read_signature(label, signature, pointers, scalar_params(params))
    read = read_sizes(label, sizes, declared, partial(explicit_geometry, cluster=cluster))
    read.check(options.outs)

    def make_target(call: Resolved, scalars: Mapping[str, Value]) -> KernelTarget:
        bound = bind_params(label, params, call, scalars)
        geometry = read.geometry(call)
        return launch(obtain(), geometry, bound, read.local(geometry))

    described = ArrayKernel(
        name,
        label,
        f"The CUDA kernel {label}; see `be_runtime.cuda_kernel`.",
        declared,
        make_target,
        scalar_params(params) if declared is None else declared.with_role(Role.ATTR),
        _SCRATCH_UNIT,
        report,
    )
    return array_function(described, options)


def scalar_params(prototype: Sequence[KernelParam]) -> tuple[Param, ...]:
    """Return the scalars of a kernel as attributes of a call."""
    return tuple(Param(role=Role.ATTR, name=p.name, dtype=p.dtype) for p in prototype if not p.is_pointer)


def bind_params(
    name: str, prototype: Sequence[KernelParam], call: Resolved, scalars: Mapping[str, Value]
) -> tuple[LaunchParam, ...]:
    """Bind the parameters of a kernel to the buffers and scalars of one call. Pure.

    Raises
    ------
    ArgumentError
        The call doesn't fit the kernel.
    """
    taken = sum(param.is_pointer for param in prototype)
    groups = {"input": call.inputs, "output": call.shown, "scratch": call.hidden}
    buffers = [(what, number, spec) for what, specs in groups.items() for number, spec in enumerate(specs)]
    if taken != len(buffers):
        scratch = f" and {call.scratch} of scratch memory" if call.scratch else ""
        raise ArgumentError(
            f"{name} takes {taken} pointers, but the call has {len(call.inputs)} inputs and {len(call.shown)} outputs"
            f"{scratch}",
            hints=("a kernel's pointers are the inputs of the call, then the outputs, then scratch memory",),
        )
    rest = iter(enumerate(buffers))
    return tuple(
        _pointer(name, param, *next(rest)) if param.is_pointer else _scalar(scalars[param.name]) for param in prototype
    )


def _pointer(name: str, param: KernelParam, index: int, buffer: tuple[str, int, ArraySpec]) -> LaunchParam:
    kind, number, spec = buffer
    what = f"{kind} {number}"
    is_bytes = kind == "scratch" or (spec.dtype.is_for_arrays_only and param.dtype == BY_NAME["uint8"])
    if param.dtype is not None and param.dtype != spec.dtype and not is_bytes:
        raise ArgumentError(
            f"{name}: {what} is {spec}, but the parameter is {param.type} {param.name}",
            hints=(f"cast it to {param.dtype.name}, or use an instance of the kernel for {spec.dtype.name}",),
        )
    if kind == "input" and not param.is_const:
        raise ArgumentError(
            f"{name}: {what} is passed as {param.type} {param.name}, which the kernel could write",
            hints=(
                f"declare it 'const {param.type} {param.name}': JAX's arrays never change",
                "to work in place, write to an output and pass input_output_aliases",
            ),
        )
    if kind != "input" and param.is_const:
        raise ArgumentError(f"{name}: {what} is passed as {param.type} {param.name}, which the kernel can't write")
    return pointer_param(index, spec.ndim, spec.dtype.bits)


def _scalar(value: object) -> LaunchParam:
    assert isinstance(value, Numbers), "the scalars of a kernel are numbers"
    return scalar_param(value.data)
