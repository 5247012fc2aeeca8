"""`numba_kernel`: compile a Numba CPU kernel and make it a function of JAX arrays; the targets of host functions."""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime import dtypes, errors, frames
from be_runtime.call import attributes, compiled_function, resolve
from be_runtime.call.array_function import ArrayFunction, ArrayKernel
from be_runtime.call.signature import read_signature
from be_runtime.jax import fault_names, port
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.kernels.content import function_content
from be_runtime.kernels.numba.source import check_dtypes, import_error
from be_runtime.load import process, registry
from be_runtime.load.native_library import native_library
from be_runtime.store.index import Carried, Demand
from be_toolchain.machine.forks import ThreadLock

SOURCE = "host_call"
_CAPTURABLE = 1
"""XLA's trait for a handler that a command buffer may capture."""

_PREFIX = "be_runtime.numba"
"""Prefix of targets."""


MESSAGE_SIZE = 1024
"""Size in bytes of the native handler's message, including the final zero."""

LACKING = tuple(row.name for row in dtypes.DTYPES if row.is_narrow or row.is_for_arrays_only)
"""Dtypes that Numba lacks on the CPU."""

VALUE_RAISED = "be_value_raised"
"""Symbol that no library has: code that raises an exception with a value of run time requires it."""


def report(kind: type[BaseException], value: object, address: int) -> None:
    """Write an exception's name and text to the native handler's message.

    Parameters
    ----------
    kind : type
        Type of the exception.
    value : object
        The exception, or the arguments to construct it.
    address : int
        Address of `MESSAGE_SIZE` bytes.
    """
    message = message_of(kind, value)
    ctypes.memmove(address, message, len(message))


def message_of(kind: type[BaseException], value: object) -> bytes:
    """Return the message of an exception, at most `MESSAGE_SIZE` bytes with the final zero."""
    text = _text(kind, value).encode("utf-8", "replace").replace(b"\0", b" ")
    return text[: MESSAGE_SIZE - 1].decode("utf-8", "ignore").encode() + b"\0"


def _text(kind: type[BaseException], value: object) -> str:
    if not isinstance(value, BaseException):
        arguments = value if isinstance(value, tuple) else () if value is None else (value,)
        value = kind(*arguments)
    try:
        shown = str(value)
    except Exception as error:  # noqa: BLE001 - the author's second error would hide the first
        shown = f"(its text can't be made: {type(error).__name__})"
    return f"{kind.__name__}: {shown}" if shown else kind.__name__


class Parameter(NamedTuple):
    """One array of a function.

    Parameters
    ----------
    dtype : DType
    rank : int
        Number of dimensions.
    """

    dtype: dtypes.DType
    rank: int

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(':' * self.rank)}]"


class Signature(NamedTuple):
    """The arrays of a function.

    Parameters
    ----------
    inputs, outputs : tuple of Parameter
        The inputs, which the function can't write to, and the outputs.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> str(Signature((Parameter(BY_NAME["float32"], 2),), (Parameter(BY_NAME["int8"], 0),)))
    '(float32[:,:]) -> (int8[])'
    """

    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]

    def __str__(self) -> str:
        return " -> ".join(f"({', '.join(map(str, side))})" for side in (self.inputs, self.outputs))


def signature_of(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], lacking: Sequence[str] = ()) -> Signature:
    """Make the signature for some arrays.

    Parameters
    ----------
    lacking : sequence of str
        Names of unsupported dtypes.

    Raises
    ------
    ArgumentError
        An array has an unsupported dtype.
    """
    check_dtypes(inputs, outputs, lacking)
    sides = (tuple(Parameter(spec.dtype, spec.ndim) for spec in side) for side in (inputs, outputs))
    return Signature(*sides)


def check_count(function: Callable[..., Any], name: str, signature: Signature, more: Sequence[str] = ()) -> None:
    """Check that a function takes the arrays of a signature, followed by the parameters in `more`.

    Raises
    ------
    ArgumentError
        The function takes a different number of arguments.
    """
    parameters = inspect.signature(function)
    names = ", ".join(parameters.parameters)
    counts = len(signature.inputs), len(signature.outputs)
    try:
        parameters.bind(*range(sum(counts) + len(more)))
    except TypeError as error:
        order = ", then ".join(("the inputs of the call", "the outputs", *more))
        raise errors.ArgumentError(
            f"{name}({names}) can't take {counts[0]} inputs and {counts[1]} outputs: {error}",
            hints=(f"its parameters are {order}",),
        ) from None


class HostFunction(NamedTuple):
    """A host function that a target runs.

    Parameters
    ----------
    address : int
        Address of a C function as ``native/host_call.cc`` describes it, valid while `owner` exists.
    owner : object
    exclusive : bool
        True if only one call of such functions may run at a time.
    has_stream : bool
        True if the function takes the stream of the call.
    capturable : bool
        True if a command buffer may capture the function's launches.
    guarded : compiled function, optional
        Source function of the C function, see `compile_handler`.
    """

    address: int
    owner: object
    exclusive: bool = False
    has_stream: bool = False
    capturable: bool = False
    guarded: Any | None = None


class _Parameter(ctypes.Structure):
    """``Parameter`` of ``native/host_call.cc``."""

    _fields_ = (("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("item_size", ctypes.c_int64))


_Handler = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint64)
"""A Python handler around the native handler, for functions that run Python."""


class HostFunctions:
    """The registered functions of a process. The first function compiles the native library."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._alive: dict[str, tuple[object, ...]] = {}
        self._lock = ThreadLock()

    def add(
        self, target: registry.Target, name: str, signature: Signature, make: Callable[[], HostFunction], *alive: object
    ) -> None:
        """Make a function and register its target, unless the target is known.

        Parameters
        ----------
        target : Target
            Target, whose name contains the function's identity.
        name : str
            Name of the function, for errors.
        signature : Signature
        make : callable
        alive : object
            Objects to keep alive with the target.
        """
        with self._lock:
            if target.name in self._alive:
                return
            library = self._native()
            function = make()
            kernel = _describe(library, name, signature, function)
            handler: Any
            if function.guarded is None:
                handler = _Handler(lambda frame: library.be_host_call(frame, kernel))
                address = ctypes.cast(handler, ctypes.c_void_p).value
                assert address is not None, "a function has an address"
            else:
                from be_runtime.kernels.numba import cpu_handler  # it needs Numba, which a Python function does not

                native = cpu_handler.in_library(library, kernel)
                direct = None if function.exclusive else function.guarded
                handler = cpu_handler.compile_handler(native, signature, direct)
                address = handler.address
            process.PROCESS.registry.add([target], {target.name: lambda: port.capsule(address)})
            if faulthandler.is_enabled():
                fault_names.NAMES.add_code(name, address, library)
            self._alive[target.name] = (function, handler, *alive)

    def _native(self) -> ctypes.CDLL:
        if self._library is None:
            self._library = native_library(SOURCE, process.PROCESS.session())
            make = self._library.be_host_kernel
            make.argtypes = (ctypes.c_char_p, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, ctypes.c_uint32)
            make.argtypes += (ctypes.c_int64, ctypes.c_int64, ctypes.POINTER(_Parameter))
            make.restype = ctypes.c_void_p
            call = self._library.be_host_call
            call.argtypes, call.restype = (ctypes.c_uint64, ctypes.c_uint64), ctypes.c_uint64
        return self._library


def host_functions() -> HostFunctions:
    """Return the host functions of this process."""
    return process.PROCESS.only(HostFunctions, HostFunctions)


def _describe(library: ctypes.CDLL, name: str, signature: Signature, function: HostFunction) -> int:
    """Return the address of the native side's description of a function."""
    parameters = (*signature.inputs, *signature.outputs)
    made = [_Parameter(each.dtype.xla_code, each.rank, each.dtype.size_bytes) for each in parameters]
    rows = (_Parameter * len(made))(*made)
    how = function.exclusive, function.has_stream, _CAPTURABLE if function.capturable else 0
    address: int = library.be_host_kernel(name.encode(), function.address, *how, len(signature.inputs), len(rows), rows)
    return address


def import_numba() -> Any:
    """Import Numba.

    Raises
    ------
    ImportError
        Numba is not installed, or doesn't work with other installed packages.
    """
    try:
        import numba
    except (ImportError, AttributeError) as error:
        raise import_error("numba_kernel", "numba", error) from error
    return numba


def check_kernel(kernel: object) -> Any:
    """Check that the argument is a CPU dispatcher of Numba.

    Raises
    ------
    ImportError
        Numba can't be imported.
    TypeError
        The argument is not a CPU dispatcher.
    """
    import_numba()
    from numba.core.registry import CPUDispatcher

    if not isinstance(kernel, CPUDispatcher):
        kind = type(kernel)
        raise TypeError(
            f"kernel must be a function decorated with @numba.njit, not {kernel!r}, which is a {kind.__qualname__}"
        )
    if kernel.targetoptions.get("forceobj"):
        raise TypeError(f"kernel {kernel.py_func.__name__} is compiled in object mode, which needs the interpreter")
    return kernel


def versions() -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    import llvmlite

    return (import_numba().__version__, llvmlite.__version__)


class HostSource(ABC):
    """The code of a host function, whose target depends only on the arrays of a call."""

    platform = "cpu"
    """JAX's name of the platform."""

    def __init__(self) -> None:
        self._targets: dict[object, str] = {}

    @abstractmethod
    def register(self, inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> str:
        """Register the target for the inputs and outputs of a call, and return its name."""

    def target(self, call: resolve.Resolved, _scalars: Mapping[str, Value]) -> compiled_function.KernelTarget:
        """Return the target of a call, registered once for each combination of shapes."""
        arrays = call.inputs, call.results
        if arrays not in self._targets:
            self._targets[arrays] = self.register(*arrays)
        return compiled_function.KernelTarget(((self.platform, self._targets[arrays]),), ())


class NumbaHostSource(HostSource):
    """The code of a Numba CPU kernel, compiled for each combination of dtypes and ranks."""

    def __init__(self, dispatcher: Any) -> None:
        super().__init__()
        self._dispatcher, self._content = dispatcher, functools.cache(partial(function_content, dispatcher))

    def register(self, inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> str:
        """Compile the kernel unless its target is known."""
        from be_runtime.kernels.numba.cpu_handler import compile_entry

        arrays, function, content = signature_of(inputs, outputs, LACKING), self._dispatcher.py_func, self._content()
        check_count(function, function.__name__, arrays)
        digest = hashlib.sha256("\0".join((content.digest, str(arrays), *versions())).encode()).hexdigest()
        target = f"{_PREFIX}.{function.__name__}:{digest}"
        described = registry.Target(target, port.PLATFORMS["cpp"], target, partial(_carry, self._dispatcher, arrays))
        make = partial(compile_entry, self._dispatcher, arrays)
        host_functions().add(described, function.__name__, arrays, make, *content.anchors)
        return target


def host_array_function(
    name: str,
    parameters: Sequence[str],
    doc: str | None,
    source: HostSource,
    signature: object,
    options: attributes.Options,
) -> ArrayFunction:
    """Make the function of JAX arrays of a host function.

    Parameters
    ----------
    name : str
        Name of the function, for errors.
    parameters : sequence of str
        Names of the parameters: the inputs, the outputs, scratch memory.
    doc : str or None
    source : HostSource
    signature : str, sequence of str or None
    options : Options

    Raises
    ------
    ArgumentError
        `outs` or the signature are not allowed. When the function is called or traced: an input is not an array or has
        an unsupported dtype, or the number of inputs is wrong.
    """
    return ArrayFunction(ArrayKernel(name, name, doc, read_signature(name, signature, parameters), source), options)


@frames.public
def numba_kernel(
    kernel: Any,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> ArrayFunction:
    """Make a Numba CPU kernel callable from JAX.

    Numba compiles the kernel when JAX first traces a call, once for each combination of dtypes and numbers of
    dimensions. A call runs the compiled code without Python and without the GIL.

    Parameters
    ----------
    kernel : function decorated with ``@numba.njit``
        Kernel that takes the inputs and then the results as C-contiguous arrays, and returns nothing. The kernel can't
        write to the inputs. The kernel must write all elements of the results, which are uninitialized.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec, such as ``"arg[n k] arg[k] ret[n]"``. For a token ``scratch[4*n]``, the
        kernel takes one more argument after the results: an array of ``4*n`` uint8 elements.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. The kernel always gets the arrays of one element of the
        batch. With ``"broadcast_all"`` and ``"expand_dims"``, native code runs the kernel for each element of the
        batch. With ``"sequential"``, an XLA loop calls the kernel for each element. If the axes of each array in the
        signature begin with ``...``, the default is ``"broadcast_all"``. If all arrays have axes in the signature, but
        the axes of an array begin differently, the default is ``"sequential"``. If an array has no axes in the
        signature, ``vmap`` needs this argument.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of a result. When the kernel starts, the result contains the
        input's values.
    has_side_effect : bool, default False
        Run the kernel even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    input_layouts : sequence of (sequence of int or None), optional
        Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel reads this memory as a
        row-major array with the input's shape. If an input ``x`` equals ``[[1, 2, 3], [4, 5, 6]]`` and has the layout
        ``(1, 0)``, the kernel's array is ``[[1, 4, 2], [5, 3, 6]]``, which is ``x.T.reshape(x.shape)``.
    output_layouts : sequence of (sequence of int or None), optional
        Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel writes this memory as
        a row-major array with the result's shape. If a result ``y`` has the layout ``(1, 0)``, the kernel's array
        equals ``y.T.reshape(y.shape)``.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    TypeError
        The kernel is not decorated with ``@numba.njit``.
    ImportError
        Numba is not installed.
    ArgumentError
        An argument has a wrong type or value. At a call: the arrays don't fit the declaration, or Numba does not
        support the dtype of an input.
    SpecError
        The signature is invalid.
    BuildError
        At a call: Numba can't compile the kernel, for example because the kernel writes to an input.

    See Also
    --------
    - `numba_cuda_kernel`: call a Numba kernel on the GPU.
    - :doc:`/numba-cpu`: threads, errors and speed.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> import numba
    >>> @numba.njit
    ... def add(x, y, out):
    ...     for i in range(out.size):
    ...         out[i] = x[i] + y[i]
    >>> x = jnp.arange(3.0)
    >>> jax.jit(be_runtime.numba_kernel(add, signature="arg[n] arg[n] ret[n]"))(x, x).tolist()
    [0.0, 2.0, 4.0]
    """
    dispatcher = check_kernel(kernel)
    function = dispatcher.py_func
    parameters, options = tuple(inspect.signature(function).parameters), attributes.check_options(locals())
    source = NumbaHostSource(dispatcher)
    return host_array_function(function.__name__, parameters, function.__doc__, source, signature, options)


def _carry(dispatcher: Any, signature: Signature, wanted: Demand) -> Carried:
    """Return the library of a kernel for a signature, for an exported program."""
    from be_runtime.kernels.numba.cpu_library import build_host_kernel  # few kernels are exported

    return build_host_kernel(dispatcher, signature, process.PROCESS.session(), wanted.baseline)
