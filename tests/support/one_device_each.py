"""One process of a job whose GPUs make one mesh: ``NUMBER COUNT PORT``. It prints an object of JSON.

It calls a module, a raw kernel and a kernel of Numba on arrays that are split over the processes. The object has the
devices, whether the parts that lie here are right, and where each entry of this process's cache came from.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime.store.manifest import parse_manifest
from tests.support import jobs
from tests.support.jax_names import make_mesh
from tests.support.runtime import script

CUDA = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"

__global__ void double_all(const float* x, float* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

// @BE twice arg[b n] ret[b n] stream parallel[b]
void twice(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  double_all<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}

__global__ void sum_columns(const float* x, float* y, int64_t rows, int64_t n) {
  const int64_t column = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  float sum = 0;
  for (int64_t i = 0; column < n && i < rows; ++i) sum += x[i * n + column];
  if (column < n) y[column] = sum;
}

// @BE total arg[b n] ret[n] stream reduce[b]
void total(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  sum_columns<<<(x.size(1) + 127) / 128, 128, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(),
                                                                      x.size(0), x.size(1));
}
"""
RAW = "__global__ void thrice(const float* x, float* y) { int i = blockIdx.x; y[i] = 3 * x[i]; }"
X = np.arange(16 * 24, dtype=np.float32).reshape(16, 24) / 8


class Job(NamedTuple):
    """What became of two processes.

    Parameters
    ----------
    devices : list of (int, int)
        For each process all devices, and its own.
    right, wrong : set of str
        Kernels by their results.
    built, fetched : Counter
        Names of entries, counted over both caches by where they came from.
    compiled : int
        Number of compilers that were started for the module.
    """

    devices: list[list[int]]
    right: set[str]
    wrong: set[str]
    built: Counter[str]
    fetched: Counter[str]
    compiled: int


def run_two(folder: Path) -> Job:
    """Run two processes with a GPU and a cache each, which share what they build."""
    log = folder / "compilers.log"
    launcher = script(folder / "launcher", f'echo "$*" >> "{log}"', 'exec "$@"')
    gpus = (os.environ.get("CUDA_VISIBLE_DEVICES") or "0,1").split(",")
    shared = {
        "BE_CLUSTER": "1",
        "BE_COMPILER_LAUNCHER": str(launcher),
        "JAX_PLATFORMS": "cuda",
        "XLA_FLAGS": "",
    }
    variables = [
        {**shared, "BE_CACHE_DIR": str(folder / f"cache_{number}"), "CUDA_VISIBLE_DEVICES": gpus[number]}
        for number in range(2)
    ]
    with jobs.running("tests.support.one_device_each", [[]] * 2, variables) as job:
        answers = job.last_answers()
    right = Counter(name for answer in answers for name, is_right in answer["right"].items() if is_right)
    wrong = {name for answer in answers for name, is_right in answer["right"].items() if not is_right}
    made = [(name, source) for answer in answers for _, name, source in answer["made"]]
    lines = log.read_text().splitlines()
    return Job(
        devices=[answer["devices"] for answer in answers],
        right={name for name, count in right.items() if count == len(answers)},
        wrong=wrong,
        built=Counter(name for name, source in made if not source),
        fetched=Counter(name for name, source in made if source),
        compiled=sum("src/one_device_each." in line and " -c " in line for line in lines),
    )


def main(number: str, count: str, port: str) -> None:
    """Join the others, call the kernels, and say how it went."""
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number))
    mesh = make_mesh((len(jax.devices()),), "x")

    def placed(array: Any, spec: P) -> Any:
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda at: array[at])

    module = be_runtime.load_cuda_inline("one_device_each", CUDA)
    thrice = be_runtime.cuda_kernel(RAW, "thrice", signature="arg[n] ret[n] parallel[n]", grid="n", block=1)
    x = placed(X, P("x", None))
    found = {
        "parallel": (jax.jit(module.twice)(x), 2 * X),
        "reduce": (jax.jit(module.total)(x), X.sum(axis=0)),
        "raw": (jax.jit(thrice)(placed(X.ravel(), P("x"))), 3 * X.ravel()),
    }
    if importlib.util.find_spec("numba_cuda"):
        found["numba"] = (jax.jit(_numba())(x), X + 1)
    right = {
        name: all(np.allclose(part.data, expected[part.index], rtol=1e-5) for part in array.addressable_shards)
        for name, (array, expected) in found.items()
    }
    devices = [len(jax.devices()), len(jax.local_devices())]
    sys.stdout.write(json.dumps({"devices": devices, "right": right, "made": _made()}) + "\n")
    sys.stdout.flush()
    jax.distributed.shutdown()


def _numba() -> Any:
    from numba import cuda

    @cuda.jit  # type: ignore[untyped-decorator]
    def successor(x: Any, y: Any) -> None:
        i, j = cuda.grid(2)
        if i < y.shape[0] and j < y.shape[1]:
            y[i, j] = x[i, j] + 1

    return be_runtime.numba_cuda_kernel(successor, signature="arg[b n] ret[b n] parallel[b]", launch_dims=("b", "n"))


def _made() -> list[list[str]]:
    """Kind, name and source of each entry in this process's cache; the source is empty for what was built here."""
    paths = Path(os.environ["BE_CACHE_DIR"]).rglob("manifest.json")
    manifests = [parse_manifest(path.read_text(encoding="utf-8")) for path in paths]
    return sorted([each.kind, each.name, each.made.source] for each in manifests)


if __name__ == "__main__":
    main(*sys.argv[1:])
