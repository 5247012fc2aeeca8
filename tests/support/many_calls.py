"""Calls on two devices at once, from one thread and from two: ``PLATFORM CALLS``. It prints an object of JSON.

A program adds 1 with each of its kernels: a module's with scratch memory and state, and on GPUs a raw one and one of
Numba's. Each execution takes what the one before gave, so one wrong result shows at the end. The module's kernel also
compares the device of its state, of its arrays and of the call.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import importlib.util
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from tests.support.jax_names import make_mesh

BOTH = r"""
#include <cstring>

#include "brainevent/common.h"
#include "brainevent/state.h"

static long long calls[2];
extern "C" __attribute__((visibility("default"))) long long count_calls(int recorded) {
  return __atomic_load_n(&calls[recorded], __ATOMIC_SEQ_CST);
}
static void count(bool recorded) { __atomic_add_fetch(&calls[recorded], 1, __ATOMIC_SEQ_CST); }
"""
CPP = r"""
struct Plan { BE::PerDevice<int> here; };

// @BE step arg[n]:int32 ret[n]:int32 scratch[4*n] state parallel[n]
void step(const BE::Tensor x, BE::Tensor y, BE::Workspace room, const BE::State<Plan>& plan) {
  BE_CHECK(plan->here.get(7) == 7);
  count(false);
  std::memcpy(room.data(), x.data_ptr(), x.nbytes());
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<int32_t>()[i] = room.data_as<int32_t>()[i] + 1;
}
"""
CUDA = r"""
#include <cuda_runtime.h>

struct Here {
  Here() { BE_CUDA_CHECK(cudaGetDevice(&device)); }
  int device = -1;
};
struct Plan { BE::PerDevice<Here> here; };

__global__ void copy_all(const int* x, int* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i];
}
__global__ void plus_one(const int* x, int* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}

// @BE step arg[n]:int32 ret[n]:int32 scratch[4*n] state stream parallel[n]
void step(const BE::Tensor x, BE::Tensor y, BE::Workspace room, const BE::State<Plan>& plan, cudaStream_t stream) {
  int device = -1;
  BE_CUDA_CHECK(cudaGetDevice(&device));
  BE_CHECK(plan->here.get().device == device) << "the state of device " << plan->here.get().device << " on " << device;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  BE_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  count(status == cudaStreamCaptureStatusActive);
  const void* const addresses[] = {x.data_ptr(), y.data_ptr(), room.data()};
  for (const void* address : addresses) {
    cudaPointerAttributes found{};
    if (status == cudaStreamCaptureStatusActive) continue;
    BE_CUDA_CHECK(cudaPointerGetAttributes(&found, address));
    BE_CHECK(found.device == device) << "an array of device " << found.device << " on " << device;
  }
  const int64_t n = x.numel();
  copy_all<<<(n + 127) / 128, 128, 0, stream>>>(x.data_ptr<int32_t>(), room.data_as<int32_t>(), n);
  plus_one<<<(n + 127) / 128, 128, 0, stream>>>(room.data_as<int32_t>(), y.data_ptr<int32_t>(), n);
}
"""
RAW = "__global__ void successor(const int* x, int* y) { int i = blockIdx.x; y[i] = x[i] + 1; }"
START = np.arange(256, dtype=np.int32)
PATIENCE_S = 120


class Calls:
    """The calls of this process.

    Parameters
    ----------
    kernels : list of callable
        Each adds 1.
    devices : list
        Two.
    rounds : int
        How often a way executes the program on both devices, in all its threads together.
    """

    def __init__(self, kernels: list[Callable[[Any], Any]], devices: list[Any], rounds: int) -> None:
        self.kernels, self.devices, self.rounds = kernels, devices, rounds

    def program(self) -> Callable[[Any], Any]:
        """A new program, so that the first executions of each way meet."""

        def run(x: Any) -> Any:
            for kernel in self.kernels:
                x = kernel(x)
            return x

        return jax.jit(run)

    def in_turn(self) -> list[tuple[Any, int]]:
        """One thread, one device after the other."""
        return self._alternate(self.program(), self.rounds)

    def split(self) -> list[tuple[Any, int]]:
        """One thread, and an array that is split over the devices."""
        run, x = self.program(), jax.device_put(START, NamedSharding(make_mesh((2,), "x"), P("x")))
        for _ in range(self.rounds):
            x = run(x)
        return [(x, self.rounds)]

    def a_thread_each(self) -> list[tuple[Any, int]]:
        """Two threads, each with a device of its own."""
        run = self.program()

        def work(device: Any) -> list[tuple[Any, int]]:
            x = jax.device_put(START, device)
            for _ in range(self.rounds):
                x = run(x)
            return [(x, self.rounds)]

        return in_threads([functools.partial(work, device) for device in self.devices])

    def both_each(self) -> list[tuple[Any, int]]:
        """Two threads, each with both devices in turn."""
        run = self.program()
        return in_threads([lambda: self._alternate(run, self.rounds // 2)] * 2)

    def _alternate(self, run: Callable[[Any], Any], rounds: int) -> list[tuple[Any, int]]:
        arrays = [jax.device_put(START, device) for device in self.devices]
        for _ in range(rounds):
            arrays = [run(x) for x in arrays]
        assert [x.devices() for x in arrays] == [{device} for device in self.devices]
        return [(x, rounds) for x in arrays]


def in_threads(works: list[Callable[[], list[tuple[Any, int]]]]) -> list[tuple[Any, int]]:
    """What functions give that run at the same time; a function that raises gives less."""
    found: list[tuple[Any, int]] = []
    errors: list[BaseException] = []
    start = threading.Barrier(len(works))

    def work(function: Callable[[], list[tuple[Any, int]]]) -> None:
        try:
            start.wait()
            found.extend(function())
        except BaseException as error:  # noqa: BLE001 - it is raised below
            errors.append(error)

    threads = [threading.Thread(target=work, args=(function,)) for function in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return found


def kernels(platform: str) -> tuple[Any, list[Callable[[Any], Any]]]:
    """The module, and the kernels that this platform has."""
    if platform == "cpu":
        module = be_runtime.load_cpp_inline("many_calls", BOTH + CPP)
        return module, [module.step]
    module = be_runtime.load_cuda_inline("many_calls", BOTH + CUDA)
    signature = "arg[n]:int32 ret[n]:int32 parallel[n]"
    found: list[Any] = [module.step, be_runtime.cuda_kernel(RAW, "successor", signature=signature, grid="n", block=1)]
    if importlib.util.find_spec("numba_cuda"):
        from numba import cuda

        @cuda.jit  # type: ignore[untyped-decorator]
        def numba_successor(x: Any, y: Any) -> None:
            i = cuda.grid(1)
            if i < y.size:
                y[i] = x[i] + 1

        found.append(be_runtime.numba_cuda_kernel(numba_successor, signature=signature, launch_dims="n"))
    return module, found


def main(platform: str, count: str) -> None:
    """Make so many calls in each way, and say how many elements are wrong."""
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    module, found = kernels(platform)
    library = ctypes.CDLL(str(module.path))
    library.count_calls.restype = ctypes.c_longlong
    calls = Calls(found, jax.devices()[:2], -(-int(count) // (2 * len(found))))
    report: dict[str, Any] = {"kernels": len(found), "ways": {}}
    for way in (calls.in_turn, calls.split, calls.a_thread_each, calls.both_each):
        began = time.perf_counter()
        results = [(np.asarray(x), START + len(found) * rounds) for x, rounds in way()]
        wrong = sum(int((x != expected).sum()) for x, expected in results)
        report["ways"][way.__name__] = {"wrong": wrong, "seconds": time.perf_counter() - began}
        sys.stderr.write(f"{way.__name__}: {report['ways'][way.__name__]}\n")
    report["called"], report["recorded"] = library.count_calls(0), library.count_calls(1)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
