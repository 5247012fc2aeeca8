"""Calls of Numba CUDA kernels, wherever their code is from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime.call.array_function import ArrayKernel, array_function
from be_runtime.call.call_options import Options
from be_runtime.call.kernel_signature import read_signature
from be_runtime.call.resolve import Resolved
from be_runtime.call.tracing import KernelTarget, default_method
from be_runtime.dtypes import DTYPES
from be_runtime.kernels.cuda.calls import Obtained, launch
from be_runtime.kernels.cuda.describe import Geometry, Kernel, array_param
from be_runtime.kernels.cuda.geometry import choose_geometry
from be_runtime.kernels.cuda.sizes import read_sizes
from be_runtime.kernels.numba.numba_source import check_dtypes
from be_runtime.xla.arrays import BATCHING_METHODS, ArraySpec
from be_runtime.xla.attribute_values import Value

_LACKING = tuple(row.name for row in DTYPES if row.is_for_arrays_only)
"""Dtypes that Numba doesn't have on a GPU."""


class NumbaPrototype(NamedTuple):
    """A kernel as calls see it.

    Parameters
    ----------
    name : str
    parameters : tuple of str
        Names of its arrays; empty without a signature.
    doc : str or None
    """

    name: str
    parameters: tuple[str, ...]
    doc: str | None


def takes_batches(prototype: NumbaPrototype, signature: object, options: Options) -> bool:
    """Return whether a call may have a batch."""
    declared = read_signature(prototype.name, signature, prototype.parameters)
    return default_method(options, declared).vmap_method in BATCHING_METHODS


def numba_function(
    prototype: NumbaPrototype,
    obtain: Callable[[Sequence[ArraySpec], Sequence[ArraySpec]], Obtained],
    signature: object,
    sizes: Mapping[str, Any],
    threads_per_block: int,
    options: Options,
) -> Callable[..., Any]:
    """Make the function of a Numba CUDA kernel, wherever its code is from; see `numba_cuda_kernel`.

    Parameters
    ----------
    prototype : NumbaPrototype
    obtain : callable
        Function of the inputs and outputs of a call that obtains the kernel for them.
    signature : str, sequence of str or None
    sizes : mapping of str to Size
        ``grid``, ``block``, ``launch_dims`` and ``shared_mem``.
    threads_per_block : int
    options : Options
    """
    name = prototype.name
    declared = read_signature(name, signature, prototype.parameters)
    read = read_sizes(name, sizes, declared, partial(choose_geometry, threads_per_block=threads_per_block))
    read.check(options.outs)

    def make_target(call: Resolved, _scalars: Mapping[str, Value]) -> KernelTarget:
        check_dtypes(call.inputs, call.results, _LACKING)
        geometry = read.geometry(call)
        found = obtain(call.inputs, call.results)
        params = [array_param(i, s.ndim, s.dtype.bits) for i, s in enumerate((*call.inputs, *call.results))]
        fitted = _fit(geometry, found.kernel)
        return launch(found, fitted, params, read.local(fitted))

    return array_function(ArrayKernel(name, name, prototype.doc, declared, make_target), options)


def _fit(geometry: Geometry, kernel: Kernel) -> Geometry:
    """Complete the geometry with the properties of the kernel, such as the axis that a batch may use."""
    axis = kernel.batch_axis
    free = axis and geometry.grid[axis] == 1
    return geometry._replace(batch_axis=axis if free else 0, is_cooperative=kernel.is_cooperative)


def types_text(inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> list[str]:
    """Describe the types of arrays: dtypes, and numbers of axes."""
    return [f"const {spec.dtype.name}:{spec.ndim}" for spec in inputs] + [f"{s.dtype.name}:{s.ndim}" for s in outs]
