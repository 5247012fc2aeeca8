"""`numba_cuda_callable`: call a Python function that launches Numba CUDA kernels on XLA's stream."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Unpack

from be_runtime import dtypes, errors, frames
from be_runtime.call.attributes import KernelOptions, check_options
from be_runtime.jax import port
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.numba import cpu
from be_runtime.kernels.numba.gpu import MLIR, package_of
from be_runtime.kernels.numba.source import import_cuda
from be_runtime.load.registry import Target
from be_toolchain.machine.forks import ThreadLock

Function = Callable[..., Any]
_CFunction = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)

_UNWRITTEN = 0xA5
"""Value of each byte of an output before a call."""

_HINTS = (
    "launch everything on the given stream, and neither wait for it, allocate nor copy from or to the host",
    "or pass graph=False: Python then runs at every call",
)

_REHEARSING = ThreadLock()
"""Allows one rehearsal at a time, since work on the default stream breaks another recording."""

_PREFIX = "be_runtime.callable"

_LACKING = tuple(row.name for row in dtypes.DTYPES if row.module != "np")
"""Dtypes without a type string in the CUDA array interface."""


class Memory(NamedTuple):
    """The memory and type of an array.

    Parameters
    ----------
    address : int
        Address; 0 for an empty array.
    shape : tuple of int
    parameter : Parameter
        Dtype and rank of the array.
    readonly : bool
    """

    address: int
    shape: tuple[int, ...]
    parameter: cpu.Parameter
    readonly: bool


def python_function(
    function: Function,
    signature: cpu.Signature,
    array: Callable[[Memory], Any],
    stream: Callable[[int], Any] | None = None,
    *,
    capturable: bool = False,
) -> cpu.HostFunction:
    """Make a host function that calls a Python function with arrays.

    Parameters
    ----------
    function : callable
        Python function, called with the inputs, the outputs and, if `stream` is given, the stream.
    signature : Signature
    array : callable
        Function that makes an array from its memory.
    stream : callable, optional
        Function that makes a stream object from a stream's address.
    capturable : bool
        True if a command buffer may capture the function's launches.
    """
    parameters = (*signature.inputs, *signature.outputs)
    count, total = len(parameters), sum(parameter.rank for parameter in parameters)

    def run(data: int, extents: int, message: int) -> int:
        try:
            addresses = (ctypes.c_void_p * (count + 1)).from_address(data)
            sizes = iter((ctypes.c_int64 * total).from_address(extents))
            places = [
                Memory(address or 0, tuple(itertools.islice(sizes, each.rank)), each, index < len(signature.inputs))
                for index, (address, each) in enumerate(zip(addresses[:count], parameters, strict=True))
            ]
            streams = () if stream is None else (stream(addresses[count] or 0),)
            function(*map(array, places), *streams)
        except BaseException as error:  # noqa: BLE001 - no exception may pass through C
            cpu.report(type(error), error, message)
            return 1
        return 0

    compiled = _CFunction(run)
    address = ctypes.cast(compiled, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return cpu.HostFunction(address, compiled, has_stream=stream is not None, capturable=capturable)


def _cuda_of(function: Function) -> Any:
    """Import ``cuda`` of the package whose kernels a function names, or else of the installed package."""
    try:
        used = inspect.getclosurevars(function if inspect.isroutine(function) else type(function).__call__)
    except (TypeError, ValueError):  # not a Python function, or its closure has no value yet
        values: list[object] = []
    else:
        values = [*used.nonlocals.values(), *used.globals.values()]
    is_mlir = any(package_of(value).is_mlir for value in values)
    return importlib.import_module(MLIR.api) if is_mlir else import_cuda("numba_cuda_callable")


def device_array(cuda: Any, memory: Memory) -> Any:
    """Make a view of device memory."""
    import numpy as np

    typestr, data = np.dtype(memory.parameter.dtype.name).str, (memory.address, memory.readonly)
    description = {"shape": memory.shape, "strides": None, "typestr": typestr, "data": data, "version": 3}
    return cuda.from_cuda_array_interface(description, sync=False)


def rehearse(
    cuda: Any,
    function: Function,
    aliases: Mapping[int, int],
    name: str,
    inputs: Sequence[ArraySpec],
    outputs: Sequence[ArraySpec],
) -> None:
    """Call a function on zeros on each device: first directly, which loads its kernels, and then in a recording.

    Parameters
    ----------
    cuda : module
        Module of the arrays and streams that the function takes.
    function : callable
        Function of the inputs, the outputs and a stream.
    aliases : dict of int to int
        Maps inputs to the outputs that share their memory.
    name : str
        Name in errors.
    inputs, outputs : sequence of ArraySpec

    Raises
    ------
    ArgumentError
        The function's launches can't be recorded, or the effect of the graph differs from the effect of a call.
    """
    if not any(spec.size for spec in outputs):
        return  # Such a call is skipped.
    with _REHEARSING:
        for device in _devices(cuda):
            try:
                with device:
                    _compare(function, _Stage(cuda, inputs, outputs, aliases))
            except _Refusal as refusal:
                raise errors.ArgumentError(
                    f"{name} can't be recorded into a CUDA graph: {refusal}", hints=_HINTS
                ) from refusal.__cause__


class _Refusal(Exception):  # noqa: N818 - it never leaves this file
    """The reason why a function can't be recorded."""


class _Buffer(NamedTuple):
    """Memory of the current device."""

    array: Any
    fill: int

    @classmethod
    def make(cls, cuda: Any, spec: ArraySpec, fill: int) -> _Buffer:
        """Allocate memory for an array; one byte for an empty one."""
        return cls(cuda.device_array(max(spec.size * spec.dtype.size_bytes, 1), "uint8"), fill)

    @property
    def address(self) -> int:
        return int(self.array.__cuda_array_interface__["data"][0])

    def reset(self) -> None:
        """Restore the initial value on the default stream, which waits for Numba's other streams."""
        _ask(_driver().cuMemsetD8(self.address, self.fill, self.array.size))

    def is_written(self) -> bool:
        return bool((self.array.copy_to_host() != self.fill).any())


class _Stage:
    """Arrays for calls on the current device, and a stream.

    Parameters
    ----------
    cuda : module
    inputs, outputs : sequence of ArraySpec
    aliases : dict of int to int
    """

    def __init__(
        self, cuda: Any, inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], aliases: Mapping[int, int]
    ) -> None:
        self.cuda = cuda
        inputs_of = {target: source for source, target in aliases.items()}
        self._read = [_Buffer.make(cuda, spec, 0) for spec in inputs]
        self._written = [
            self._read[inputs_of[index]] if index in inputs_of else _Buffer.make(cuda, spec, _UNWRITTEN)
            for index, spec in enumerate(outputs)
        ]
        self.arrays = [
            device_array(
                cuda, Memory(buffer.address, spec.shape, cpu.Parameter(spec.dtype, spec.ndim), index < len(inputs))
            )
            for index, (buffer, spec) in enumerate(zip(self._read + self._written, (*inputs, *outputs), strict=True))
        ]
        self.stream = cuda.stream()

    def run(self, launch: Callable[[], object]) -> list[bool]:
        """Reset the outputs, launch, and return for each output whether it was written."""
        for buffer in (*self._read, *self._written):
            buffer.reset()
        launch()
        self.stream.synchronize()
        return [buffer.is_written() for buffer in self._written]


def _compare(function: Function, stage: _Stage) -> None:
    """Refuse a function whose graph has a different effect than a call."""

    def call() -> None:
        function(*stage.arrays, stage.stream)

    called = stage.run(call)
    with _recorded(call, stage) as graph:
        kinds, host_copies = _nodes(graph)
        if host_copies:
            raise _Refusal(
                "it copies from or to the host, whose memory may have another use when the graph is replayed"
            )
        if not set(kinds) - {"EMPTY"}:
            raise _Refusal("it launches nothing on the given stream")
        replayed = stage.run(lambda: _replay(graph, stage.stream))
    lost = [index for index, (call_, replay) in enumerate(zip(called, replayed, strict=True)) if call_ and not replay]
    if lost:
        raise _Refusal(f"a replay does not write output {lost[0]}, which a call does")


@contextmanager
def _recorded(launch: Callable[[], None], stage: _Stage) -> Iterator[Any]:
    """Record the launches on a stage's stream as a graph, in XLA's mode, in which forbidden operations fail."""
    driver = _driver()
    handle = driver.CUstream(int(stage.stream))
    _ask(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    failure: Exception | None = None
    try:
        with stage.cuda.defer_cleanup():  # a recording must not free memory
            launch()
    except Exception as error:  # noqa: BLE001 - any exception is a reason for a refusal
        failure = error
    finally:
        status, graph = driver.cuStreamEndCapture(handle)
    try:
        if failure is not None:
            raise _Refusal(f"{type(failure).__name__}: {failure}") from failure
        _ask((status,))
        yield graph
    finally:
        if graph is not None and int(graph):  # there is no graph if the recording was interrupted
            driver.cuGraphDestroy(graph)


def _nodes(graph: Any) -> tuple[list[str], int]:
    """Return the kinds of a graph's nodes, and the number of nodes that copy from or to the host."""
    driver = _driver()
    _, count = _ask(driver.cuGraphGetNodes(graph))
    nodes, _ = _ask(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    kinds = [_ask(driver.cuGraphNodeGetType(node))[0].name.removeprefix("CU_GRAPH_NODE_TYPE_") for node in nodes]
    copies = [
        _ask(driver.cuGraphMemcpyNodeGetParams(node))[0]
        for node, kind in zip(nodes, kinds, strict=True)
        if kind == "MEMCPY"
    ]
    on_host = driver.CUmemorytype.CU_MEMORYTYPE_HOST
    return kinds, sum(on_host in (copy.srcMemoryType, copy.dstMemoryType) for copy in copies)


def _replay(graph: Any, stream: Any) -> None:
    driver = _driver()
    (program,) = _ask(driver.cuGraphInstantiate(graph, 0))
    _ask(driver.cuGraphLaunch(program, driver.CUstream(int(stream))))
    stream.synchronize()
    driver.cuGraphExecDestroy(program)


def _devices(cuda: Any) -> list[Any]:
    """List the devices with a context, which JAX makes for its devices; without a context, Numba's first device."""
    devices = list(cuda.gpus)
    used = [device for device in devices if _ask(_driver().cuDevicePrimaryCtxGetState(device.id))[1]]
    return used or devices[:1]


def _driver() -> Any:
    """Import CUDA's driver API in numba-cuda's form."""
    from cuda.bindings import driver

    return driver


def _ask(answer: Sequence[Any]) -> Sequence[Any]:
    """Check the status in a result of the driver's functions, and return the other values."""
    status, *found = answer
    if status:
        raise _Refusal(status.name)
    return found


class PythonSource(cpu.HostSource):
    """The code of a Python function that launches kernels.

    Parameters
    ----------
    cuda : module
    function : callable
    name : str
        Name of the function, for errors and targets.
    recorded : dict of int to int, or None
        Aliases of a function whose launches a CUDA graph records; None for a function that runs at each call.
    """

    platform = "cuda"

    def __init__(self, cuda: Any, function: Function, name: str, recorded: Mapping[int, int] | None) -> None:
        super().__init__()
        self._cuda, self._function, self._name, self._recorded = cuda, function, name, recorded

    def register(self, inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> str:
        """Register the function, after a rehearsal if a CUDA graph records it."""
        cuda, function, name, recorded = self._cuda, self._function, self._name, self._recorded
        arrays = cpu.signature_of(inputs, outputs, _LACKING)
        cpu.check_count(function, name, arrays, ("the stream",))
        # Only the object itself identifies arbitrary Python; it lives as long as its target.
        target = f"{_PREFIX}.{name}:{id(function):x}:{'plain' if recorded is None else 'graph'}:{arrays}"
        array, capturable = partial(device_array, cuda), recorded is not None
        make = partial(python_function, function, arrays, array, cuda.external_stream, capturable=capturable)
        cpu.host_functions().add(Target(target, port.PLATFORMS["cuda"], target), name, arrays, make, function)
        if recorded is not None:
            rehearse(cuda, function, recorded, name, inputs, outputs)
        return target


@frames.public
def numba_cuda_callable(
    func: Function,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    graph: bool = False,
    **call_options: Unpack[KernelOptions],
) -> Function:
    """Make a function of JAX arrays from a Python function that launches Numba CUDA kernels.

    Parameters
    ----------
    func : callable
        Function, called as ``func(*inputs, *outputs, stream)`` with Numba's device arrays and Numba's object for the
        stream of the call. If `func` uses a kernel of numba-cuda-mlir, these objects come from numba-cuda-mlir. `func`
        must launch all work on the stream of the call, and write all outputs. `func` must not write to the inputs:
        nothing prevents such a write, which changes values in other parts of the program.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result, unless `signature` declares them. A callable receives the shapes and dtypes of
        the inputs.
    signature : str or sequence of str, optional
        Arrays of the function as an arg_spec, such as ``"arg[n k] arg[k] ret[n]"``. For a token ``scratch[4*n]``,
        `func` takes one more argument after the outputs: an array of ``4*n`` uint8 elements.
    graph : bool, default False
        Let XLA record the launches of `func` in a CUDA graph and replay them without Python. `func` must then launch
        the same work in all calls with the same shapes. When JAX traces a call, `func` runs twice with zeros as
        inputs, on each device that the process uses. An error is raised if CUDA can't record `func`, if `func` launches
        nothing on the stream, or if a replay leaves an output unwritten.
    vmap_method : str, optional
        Value of ``vmap_method`` for ``jax.ffi.ffi_call``. `func` always gets the arrays of one element of the batch.
        With ``"broadcast_all"`` and ``"expand_dims"``, native code calls `func` for each element of the batch. With
        ``"sequential"``, an XLA loop calls `func` for each element. If the axes of each array in the signature begin
        with ``...``, the default is ``"broadcast_all"``. If all arrays have axes in the signature, but the axes of an
        array begin differently, the default is ``"sequential"``. If an array has no axes in the signature, ``vmap``
        needs this argument.
    input_output_aliases : dict of int to int, optional
        Dictionary from the index of an input to the index of an output. When `func` is called, the output contains the
        input's values.
    has_side_effect : bool, default False
        Call `func` even if the program does not use the results. XLA chooses the order of such calls.
    ordered : bool, default False
        Run all calls with this option in the order of the program. This option implies `has_side_effect`.
    input_layouts : sequence of (sequence of int or None), optional
        Axes of each input from major to minor in memory, as for ``jax.ffi.ffi_call``.
    output_layouts : sequence of (sequence of int or None), optional
        Axes of each result from major to minor in memory, as for ``jax.ffi.ffi_call``.
    random : bool, default False
        Declare that results differ from call to call. Otherwise the checks of `be_runtime.debug` report the difference.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    ImportError
        Numba with CUDA support is not installed.
    TypeError
        `func` can't be called.
    ArgumentError
        An argument has a wrong type or value. At a call: the number of inputs is wrong, or `graph` is True and CUDA
        can't record `func`.

    See Also
    --------
    - `numba_cuda_kernel`: launch one kernel without Python.
    - :doc:`/kernels`: launch sizes, attributes, scratch memory and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> from numba_cuda_mlir import cuda  # doctest: +SKIP
    >>> @cuda.jit  # doctest: +SKIP
    ... def double(x, out):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = 2 * x[i]
    >>> def twice(x, middle, out, stream):
    ...     double[1, 64, stream](x, middle)
    ...     double[1, 64, stream](middle, out)
    >>> shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    >>> fourfold = be_runtime.numba_cuda_callable(twice, (shape, shape))  # doctest: +SKIP
    """
    if not callable(func):
        raise TypeError(f"func must be callable as func(*inputs, *outputs, stream), not {func!r}")
    cuda = _cuda_of(func)
    name = str(getattr(func, "__name__", type(func).__name__))
    errors.refuse_unknown(call_options, KernelOptions, "numba_cuda_callable")
    options = check_options({"outs": outs, **call_options})

    source = PythonSource(cuda, func, name, dict(options.aliases) if graph else None)
    parameters = tuple(inspect.signature(func).parameters)
    return cpu.host_array_function(name, parameters, func.__doc__, source, signature, options)
