"""A CPU module's functions for NumPy's arrays, without JAX: ``functions(module).f(x, alpha=2)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.foreign import ArrayParts, ForeignFunction, ForeignFunctions, bind

if TYPE_CHECKING:
    from be_runtime.load.module import LoadedModule, ModuleInfo


class NumpyArrays:
    """NumPy's arrays."""

    def key(self, array: Any) -> Any:
        """Return all that calls with an array depend on, for a dictionary."""
        return (array.shape, array.dtype) if hasattr(array, "strides") else type(array)

    def describe(self, array: Any, what: str) -> tuple[tuple[int, ...], str, Any]:
        """Return shape, dtype and no device."""
        import numpy as np

        if not isinstance(array, np.ndarray | np.generic):
            raise ArgumentError(f"{what} is {array!r}, not a NumPy array")
        if str(array.dtype) not in BY_NAME or not array.dtype.isnative:
            raise ArgumentError(f"{what} is of {array.dtype}, which a kernel can't take", hints=("cast it first",))
        return array.shape, str(array.dtype), None

    def make(self, shape: tuple[int, ...], dtype: str, _device: Any) -> Any:
        """Return a new array."""
        import numpy as np

        if BY_NAME[dtype].module != "np":
            import ml_dtypes

            return np.empty(shape, getattr(ml_dtypes, dtype))
        return np.empty(shape, dtype)

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy."""
        return array.copy(order="C")

    def parts(self, array: Any) -> ArrayParts:
        """Return address, shape and strides; a stride of no whole elements becomes 0."""
        if array.ndim == 0:
            array = array.reshape(())
        size = array.itemsize
        strides = tuple(0 if each % size else each // size for each in array.strides)
        return ArrayParts(array.ctypes.data, array.shape, strides, str(array.dtype))


def functions(module: LoadedModule) -> ForeignFunctions:
    """Return the functions of a CPU module for NumPy's arrays.

    A function takes arrays by position and attributes by name, and returns new arrays. The arg_spec declares their
    shapes and dtypes.

    Parameters
    ----------
    module : CompiledModule
        Loaded module. With ``auto_register=False``, neither its load nor its calls import JAX.

    Returns
    -------
    object
        Object whose attributes and items are the functions: ``ops.scale``, ``ops["scale"]``.

    Raises
    ------
    ArgumentError
        The module is for GPUs.

    See Also
    --------
    - :doc:`/other-frameworks`: arrays of NumPy, and of all libraries that TVM-FFI takes.

    Examples
    --------
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
    info = module.__info__
    if info.platform != "cpu":
        raise ArgumentError(f"module {info.name!r} is for GPUs; NumPy's arrays are on the CPU")
    return ForeignFunctions(module, _make)


def _make(info: ModuleInfo, name: str) -> ForeignFunction:
    signature, function, _ = bind(info, name)
    return ForeignFunction(signature, function, NumpyArrays())
