"""The rehearsal of a function that launches kernels: a check that a CUDA graph of its launches does the same as a call.

CUDA refuses some operations that a graph can't contain while it records. Other losses show in the graph, which may be
empty or copy from the host, and in its replay, which may leave an output unwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.kernels.numba.callable.callback import Memory
from be_runtime.kernels.numba.callable.cuda_arrays import device_array, import_cuda
from be_runtime.kernels.numba.cpu.signature import Parameter
from be_runtime.load.process import PROCESS
from be_runtime.xla.arrays import ArraySpec
from be_toolchain.machine.forks import ThreadLock

_UNWRITTEN = 0xA5
"""Value of each byte of an output before a call."""
_HINTS = (
    "launch everything on the given stream, and neither wait for it, allocate nor copy from or to the host",
    "or pass graph=False: Python then runs at every call",
)


def rehearse(
    function: Callable[..., None],
    aliases: Mapping[int, int],
    name: str,
    inputs: Sequence[ArraySpec],
    outputs: Sequence[ArraySpec],
) -> None:
    """Call a function on each device, with inputs of zeros: once directly, which loads its kernels, and once recorded.

    Parameters
    ----------
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
        A graph of its launches can't be recorded, or does not do the same as a call.
    """
    if not any(spec.size for spec in outputs):
        return  # Such a call is skipped.
    with PROCESS.only(_Turns, _Turns).lock:
        for device in _devices():
            try:
                with device:
                    _compare(function, _Stage(inputs, outputs, aliases))
            except _Refusal as refusal:
                raise ArgumentError(
                    f"{name} can't be recorded into a CUDA graph: {refusal}",
                    hints=_HINTS,
                ) from refusal.__cause__


class _Turns:
    """A lock that allows one rehearsal at a time: work on the default stream would break another one's recording."""

    def __init__(self) -> None:
        self.lock = ThreadLock()


class _Refusal(Exception):  # noqa: N818 - it never leaves this file
    """A reason that a function can't be recorded."""


def why_not(kinds: Sequence[str], host_copies: int) -> str:
    """Return the reason a graph is refused; empty if it isn't.

    Parameters
    ----------
    kinds : sequence of str
        Kinds of its nodes, as CUDA names them.
    host_copies : int
        Number of nodes that copy from or to the host.

    Examples
    --------
    >>> why_not(["EMPTY"], 0)
    'it launches nothing on the given stream'
    >>> why_not(["KERNEL", "MEMCPY"], 0)
    ''
    """
    if host_copies:
        return "it copies from or to the host, whose memory may have another use when the graph is replayed"
    return "" if set(kinds) - {"EMPTY"} else "it launches nothing on the given stream"


def what_is_lost(called: Sequence[bool], replayed: Sequence[bool]) -> str:
    """Return the difference between a replay and a call; empty if none is seen.

    Parameters
    ----------
    called, replayed : sequence of bool
        True for each output that was written.

    Examples
    --------
    >>> what_is_lost([True, True, False], [True, False, False])
    'a replay does not write output 1, which a call does'
    """
    lost = [index for index, (call, replay) in enumerate(zip(called, replayed, strict=True)) if call and not replay]
    return f"a replay does not write output {lost[0]}, which a call does" if lost else ""


class _Buffer(NamedTuple):
    """Memory of the current device."""

    array: Any
    fill: int

    @classmethod
    def make(cls, spec: ArraySpec, fill: int) -> _Buffer:
        """Allocate memory for an array; one byte for an empty one."""
        return cls(import_cuda().device_array(max(spec.size * spec.dtype.size_bytes, 1), "uint8"), fill)

    @property
    def address(self) -> int:
        return int(self.array.__cuda_array_interface__["data"][0])

    def reset(self) -> None:
        """Restore the initial value on the default stream, as `is_written` does: it waits for Numba's other streams."""
        _ask(_driver().cuMemsetD8(self.address, self.fill, self.array.size))

    def is_written(self) -> bool:
        return bool((self.array.copy_to_host() != self.fill).any())


class _Stage:
    """Arrays for calls on the current device, and a stream.

    Parameters
    ----------
    inputs, outputs : sequence of ArraySpec
    aliases : dict of int to int
    """

    def __init__(self, inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], aliases: Mapping[int, int]) -> None:
        inputs_of = {target: source for source, target in aliases.items()}
        self._read = [_Buffer.make(spec, 0) for spec in inputs]
        self._written = [
            self._read[inputs_of[index]] if index in inputs_of else _Buffer.make(spec, _UNWRITTEN)
            for index, spec in enumerate(outputs)
        ]
        self.arrays = [
            device_array(Memory(buffer.address, spec.shape, Parameter(spec.dtype, spec.ndim), index < len(inputs)))
            for index, (buffer, spec) in enumerate(zip(self._read + self._written, (*inputs, *outputs), strict=True))
        ]
        self.stream = import_cuda().stream()

    def run(self, launch: Callable[[], object]) -> list[bool]:
        """Reset the outputs, launch, and return for each output whether it was written."""
        for buffer in (*self._read, *self._written):
            buffer.reset()
        launch()
        self.stream.synchronize()
        return [buffer.is_written() for buffer in self._written]


def _compare(function: Callable[..., None], stage: _Stage) -> None:
    """Refuse a function whose graph does not do the same as a call."""

    def call() -> None:
        function(*stage.arrays, stage.stream)

    called = stage.run(call)
    with _recorded(call, stage.stream) as graph:
        _refuse(why_not(*_nodes(graph)))
        replayed = stage.run(lambda: _replay(graph, stage.stream))
    _refuse(what_is_lost(called, replayed))


def _refuse(reason: str) -> None:
    if reason:
        raise _Refusal(reason)


@contextmanager
def _recorded(launch: Callable[[], None], stream: Any) -> Iterator[Any]:
    """Record the launches on a stream as a graph, in XLA's mode: forbidden operations fail in this thread."""
    driver = _driver()
    handle = driver.CUstream(int(stream))
    _ask(driver.cuStreamBeginCapture(handle, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    failure: Exception | None = None
    try:
        with import_cuda().defer_cleanup():  # to free memory would not be allowed
            launch()
    except Exception as error:  # noqa: BLE001 - whatever it raises is why it can't be recorded
        failure = error
    finally:
        status, graph = driver.cuStreamEndCapture(handle)
    try:
        if failure is not None:
            raise _Refusal(f"{type(failure).__name__}: {failure}") from failure
        _ask((status,))
        yield graph
    finally:
        if graph is not None and int(graph):  # there is none where the recording was broken off
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


def _devices() -> list[Any]:
    """List the devices with a context, since JAX makes one for each of its own; without any, Numba's first device."""
    devices = list(import_cuda().gpus)
    used = [device for device in devices if _ask(_driver().cuDevicePrimaryCtxGetState(device.id))[1]]
    return used or devices[:1]


def _driver() -> Any:
    """Import CUDA's driver API, as numba-cuda calls it."""
    from cuda.bindings import driver

    return driver


def _ask(answer: Sequence[Any]) -> Sequence[Any]:
    """Check the status that a function of the driver returns, and return its other results."""
    status, *found = answer
    if status:
        raise _Refusal(status.name)
    return found
