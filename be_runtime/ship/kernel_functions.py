"""Kernels without host code as they were built ahead of time: functions that need no compiler, source or Numba."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from be_runtime.bundle.index import reading
from be_runtime.bundle.mapped_images import Bundle
from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.kernels.cuda.calls import Obtained
from be_runtime.kernels.cuda.describe import KernelParam
from be_runtime.kernels.cuda.geometry import DEFAULT_THREADS
from be_runtime.kernels.cuda.images import kernel_of
from be_runtime.kernels.cuda.launcher import launcher_of
from be_runtime.kernels.cuda.raw_calls import RawPrototype, raw_function
from be_runtime.kernels.numba.cpu.caller import Called, host_array_function
from be_runtime.kernels.numba.cpu.signature import LACKING, Parameter, Signature
from be_runtime.kernels.numba.gpu.numba_calls import NumbaPrototype, numba_function, types_text
from be_runtime.load.image_target import register_image_target
from be_runtime.load.process import PROCESS
from be_runtime.ship.kernel_tables import call_options
from be_runtime.xla.arrays import ArraySpec
from be_toolchain.machine.forks import ThreadLock

Obtain = Callable[[Sequence[ArraySpec], Sequence[ArraySpec]], Obtained]


def open_function(record: Mapping[str, Any], bundle: Bundle) -> Callable[..., Any]:
    """Make the function of a kernel that was built; nothing is mapped before its first call.

    Parameters
    ----------
    record : mapping
        Its row of ``functions``, as `build_function` made it.
    bundle : Bundle
    """
    if record["language"] == "numba":
        return _host_function(record, bundle)
    opened = _Opened(record, bundle)
    make = cuda_function if record["language"] == "cuda" else numba_cuda_function
    return make(record, opened.obtain)


class _Opened:
    """The variants of a kernel for GPUs, read at their first calls."""

    def __init__(self, record: Mapping[str, Any], bundle: Bundle) -> None:
        self._record, self._bundle = record, bundle
        self._made: dict[tuple[str, ...], Obtained] = {}
        self._lock = ThreadLock()

    def obtain(self, inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> Obtained:
        """Return the kernel for these arrays."""
        variants: dict[tuple[str, ...], str] = {
            tuple(each["types"]): each["kernel"] for each in self._record["variants"]
        }
        types: tuple[str, ...] = () if () in variants else tuple(types_text(inputs, outs))
        if types not in variants:
            raise _not_built(self._record["label"], ", ".join(types), [", ".join(each) for each in variants])
        with self._lock:
            if types not in self._made:
                self._made[types] = self._read(variants[types])
            return self._made[types]

    def _read(self, identity: str) -> Obtained:
        target, bundle = self._record["launcher"], self._bundle
        with reading(bundle.where):
            digest = bundle.table.targets[target].image
            launcher = launcher_of(target, lambda: bundle.library(digest), PROCESS.registry)
            return Obtained(kernel_of(identity, bundle.table.kernels[identity], bundle.image), launcher)


def cuda_function(record: Mapping[str, Any], obtain: Obtain) -> Callable[..., Any]:
    """Make the function of a raw kernel from its row."""
    params = [KernelParam(**row)._replace(dtype=BY_NAME.get(row["dtype"])) for row in record["parameters"]]
    prototype = RawPrototype(record["name"], record["label"], tuple(params))
    launch = {"shared_mem": 0, "cluster": None, **record["launch"]}
    sizes = {name: launch[name] for name in ("grid", "block", "shared_mem")}
    options = call_options(record["call"])
    return raw_function(prototype, lambda: obtain((), ()), record["signature"], sizes, launch["cluster"], options)


def numba_cuda_function(record: Mapping[str, Any], obtain: Obtain) -> Callable[..., Any]:
    """Make the function of a Numba CUDA kernel from its row."""
    prototype = NumbaPrototype(record["name"], tuple(record["parameters"]), record["doc"])
    given = {"grid": None, "block": None, "launch_dims": None, "shared_mem": 0, **record["launch"]}
    threads = given.pop("threads_per_block", DEFAULT_THREADS)
    options = call_options(record["call"])
    return numba_function(prototype, obtain, record["signature"], given, threads, options)


def _host_function(record: Mapping[str, Any], bundle: Bundle) -> Callable[..., Any]:
    """Make the function of a Numba CPU kernel from its row."""
    name = record["name"]
    targets = {_signature(row): row["target"] for row in record["variants"]}

    def target_for(signature: Signature) -> str:
        target = targets.get(signature)
        if target is None:
            raise _not_built(name, str(signature), [str(each) for each in targets])
        with reading(bundle.where):
            register_image_target(target, bundle, PROCESS.registry)
        return str(target)

    called = Called(name, tuple(record["parameters"]), record["doc"], target_for, lacking=LACKING)
    return host_array_function(called, record["signature"], call_options(record["call"]))


def _signature(row: Mapping[str, Any]) -> Signature:
    inputs, outputs = (tuple(Parameter(BY_NAME[name], rank) for name, rank in row[side]) for side in Signature._fields)
    return Signature(inputs, outputs)


def _not_built(label: str, asked: str, built: Sequence[str]) -> ArgumentError:
    return ArgumentError(
        f"{label} was not built for {asked}; it was built for {' and '.join(built)}",
        hints=("name the dtype in dtypes of its table in kernels.toml, or cast the arrays",),
    )
