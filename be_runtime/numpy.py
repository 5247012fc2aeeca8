"""A CPU module's functions for NumPy's arrays, without JAX: ``functions(module).f(x, alpha=2)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from be_runtime.call.attributes import numpy_dtype
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.foreign import ArrayParts, ForeignFunction, ForeignFunctions, Functions, Row

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction


class NumpyArrays:
    """NumPy's arrays."""

    def key(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return the properties of inputs on which a call depends, as a key of a dictionary."""
        return tuple([(each.shape, each.dtype) if hasattr(each, "strides") else each.__class__ for each in given])

    def describe(self, array: Any, what: str) -> tuple[tuple[int, ...], str, Any]:
        """Return shape, dtype and no device."""
        import numpy as np

        if not isinstance(array, np.ndarray | np.generic):
            raise ArgumentError(f"{what} is {array!r}, not a NumPy array")
        if str(array.dtype) not in BY_NAME or not array.dtype.isnative:
            raise ArgumentError(f"{what} is of {array.dtype}, which a kernel can't take", hints=("cast it first",))
        return array.shape, str(array.dtype), None

    def dtype(self, name: str) -> Any:
        """Return NumPy's dtype of a name."""
        return numpy_dtype(BY_NAME[name])

    def make(self, rows: Sequence[Row | None], given: Sequence[Any], device: Any) -> list[Any]:
        """Return new arrays."""
        import numpy as np

        del given, device
        return [None if row is None else np.empty(row.shape, row.dtype) for row in rows]

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy."""
        return array.copy(order="C")

    def parts(self, array: Any) -> ArrayParts:
        """Return address, shape and strides. A stride that is no whole number of elements becomes 0."""
        if array.ndim == 0:
            array = array.reshape(())
        size = array.itemsize
        strides = tuple(0 if each % size else each // size for each in array.strides)
        return ArrayParts(array.ctypes.data, array.shape, strides, str(array.dtype))


def functions(module: Functions) -> ForeignFunctions:
    """Return a CPU module's functions in a form that takes NumPy arrays.

    A function takes arrays by position and attributes by name, and returns new arrays. The arg_spec declares the shapes
    and dtypes of these arrays.

    Parameters
    ----------
    module : CompiledModule or PlatformModule
        Loaded module. If you load the module with ``auto_register=False``, neither the load nor a call imports JAX.

    Returns
    -------
    object
        Object whose attributes and items are the functions: ``ops.scale``, ``ops["scale"]``.

    Raises
    ------
    TypeError
        `module` is not a loaded module.
    ArgumentError
        A function is not compiled for the CPU. The first use of the function raises this error.

    See Also
    --------
    - :doc:`/other-frameworks`: NumPy arrays, and arrays of all libraries that TVM-FFI supports.

    Examples
    --------
    >>> import be_runtime
    >>> import be_runtime.numpy
    >>> import numpy as np
    >>> module = be_runtime.load_cpp_inline(
    ...     "doc_numpy",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[... n]:float32 ret[... n]:float32
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''',
    ...     auto_register=False,
    ... )
    >>> be_runtime.numpy.functions(module).twice(np.arange(3, dtype=np.float32)).tolist()
    [0.0, 2.0, 4.0]
    """
    return ForeignFunctions(module, _make)


def _make(function: KernelFunction[..., Any]) -> ForeignFunction:
    for export in function.exports():
        if export.platform == "cpu":
            return ForeignFunction(export, NumpyArrays())
    raise ArgumentError(f"{function.__qualname__} is for GPUs; NumPy's arrays are on the CPU")
