"""A trial of a function that launches: whether a CUDA graph of its launches does what a call of it does.

CUDA refuses some of what a graph can't hold, while it records. What else is lost shows in the graph, which may be empty
or copy from the host, and in its replay, which may leave an output as it was.
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
"""What each byte of an output is before a call."""
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
    """Call a function on each device, with inputs of zeros: once as it is, which loads its kernels, and once recorded.

    Parameters
    ----------
    function : callable
        Takes the inputs, the outputs and a stream.
    aliases : dict of int to int
        Inputs by the outputs that lie in the same memory.
    name : str
        For errors.
    inputs, outputs : sequence of ArraySpec

    Raises
    ------
    ArgumentError
        A graph of what it launches can't be recorded, or does not do the same.
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
    """One rehearsal at a time: what one does on the default stream would break another one's recording."""

    def __init__(self) -> None:
        self.lock = ThreadLock()


class _Refusal(Exception):  # noqa: N818 - it never leaves this file
    """Why a function can't be recorded."""


def why_not(kinds: Sequence[str], host_copies: int) -> str:
    """Why a graph is refused; empty if it isn't.

    Parameters
    ----------
    kinds : sequence of str
        What each of its nodes does, as CUDA names it.
    host_copies : int
        How many of them copy from or to the host.

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
    """Why a replay is not the same as a call; empty if it may be.

    Parameters
    ----------
    called, replayed : sequence of bool
        Whether each of the outputs was written.

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
        """Memory for an array; a byte for an empty one."""
        return cls(import_cuda().device_array(max(spec.size * spec.dtype.size_bytes, 1), "uint8"), fill)

    @property
    def address(self) -> int:
        return int(self.array.__cuda_array_interface__["data"][0])

    def reset(self) -> None:
        """Undo what was written; on the default stream, as `is_written`, which waits for Numba's other streams."""
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
        """Let something write the outputs, as they are at first; whether it wrote each of them."""
        for buffer in (*self._read, *self._written):
            buffer.reset()
        launch()
        self.stream.synchronize()
        return [buffer.is_written() for buffer in self._written]


def _compare(function: Callable[..., None], stage: _Stage) -> None:
    """Refuse a function whose graph does not do what a call of it does."""

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
    """The graph of what is launched on a stream, recorded as XLA does: what isn't allowed is refused in this thread."""
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
    """What the nodes of a graph do, and how many copy from or to the host."""
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
    """The devices with a context, as JAX makes one for each of its own; Numba's first one where there is none."""
    devices = list(import_cuda().gpus)
    used = [device for device in devices if _ask(_driver().cuDevicePrimaryCtxGetState(device.id))[1]]
    return used or devices[:1]


def _driver() -> Any:
    """CUDA's driver as numba-cuda calls it."""
    from cuda.bindings import driver

    return driver


def _ask(answer: Sequence[Any]) -> Sequence[Any]:
    """What a function of the driver answers beside its status."""
    status, *found = answer
    if status:
        raise _Refusal(status.name)
    return found
