"""The product of a sparse matrix and a vector, tuned for this machine.

How many threads of a GPU should share a row depends on the entries that a row has, and on the GPU: the kernels in
`csr.cu` leave it open, and `be_runtime.autotune` chooses, once for each size. On a CPU, `csr.cc` leaves open how many
sums are made side by side. The first configuration is the default, a warp for a row.

The program makes matrices with some numbers of entries in a row, tunes the product for each, and prints what the
default and the choice take. A second run times nothing, since the choices are kept in the cache. It exits with status 1
unless every product agrees with numpy's.

Run it: ``python csr.py [--rows N] [--entries K ...] [--json]``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

import be_runtime

HERE = Path(__file__).resolve().parent
GPU_CONFIGS = {"threads": [32, 16, 8, 4, 2, 1], "block": [256, 128, 512]}
CPU_CONFIGS = {"sums": [1, 2, 4, 8]}
TOLERANCE = 1e-5


class Csr(NamedTuple):
    """A matrix: where rows start in the other two, the columns of entries, and their values."""

    starts: np.ndarray[Any, Any]
    columns: np.ndarray[Any, Any]
    values: np.ndarray[Any, Any]


def gpu_product(threads: int, block: int) -> Callable[..., Any]:
    """The product by `csr.cu`, for some threads to a row and to a block."""
    flags = [f"-DTHREADS={threads}", f"-DBLOCK={block}"]
    module = be_runtime.load_cuda_file(HERE / "csr.cu", name=f"csr_{threads}_{block}", extra_cuda_cflags=flags)
    return module.product


def cpu_product(sums: int) -> Callable[..., Any]:
    """The product by `csr.cc`, in some sums side by side."""
    module = be_runtime.load_cpp_file(HERE / "csr.cc", name=f"csr_{sums}", extra_cflags=[f"-DSUMS={sums}"])
    return module.product


def tune(arrays: list[list[Any]]) -> be_runtime.Tuned:
    """The tuned product for JAX's default device, timed with some arrays unless the cache has a choice for them."""
    if jax.default_backend() == "gpu":
        return be_runtime.autotune(gpu_product, GPU_CONFIGS, arrays)
    return be_runtime.autotune(cpu_product, CPU_CONFIGS, arrays)


def make_matrix(rows: int, entries: int) -> Csr:
    """A square matrix with so many entries in each row, at random columns."""
    random = np.random.default_rng(entries)
    columns = random.integers(0, rows, (rows, entries), dtype=np.int32)
    values = random.standard_normal((rows, entries), dtype=np.float32)
    return Csr(np.arange(rows + 1, dtype=np.int32) * np.int32(entries), columns.reshape(-1), values.reshape(-1))


def expected(matrix: Csr, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The product by numpy."""
    rows = len(matrix.starts) - 1
    terms = (matrix.values * x[matrix.columns]).astype(np.float64)
    sums: np.ndarray[Any, Any] = terms.reshape(rows, -1).sum(axis=1)
    return sums


def main() -> int:
    """Tune, print and check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=1 << 16)
    parser.add_argument("--entries", type=int, nargs="+", default=[4, 16, 64, 300])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    x = np.random.default_rng(0).standard_normal(options.rows, dtype=np.float32)
    matrices = {entries: make_matrix(options.rows, entries) for entries in options.entries}
    arrays = [[*map(jax.numpy.asarray, (*matrix, x))] for matrix in matrices.values()]
    tuned = tune(arrays)
    product = jax.jit(tuned)
    report: dict[str, Any] = {"platform": jax.default_backend(), "tunings": len(tuned.results), "sizes": {}}
    right = True
    for (entries, matrix), given in zip(matrices.items(), arrays, strict=True):
        wanted = expected(matrix, x)
        error = float(np.abs(np.asarray(product(*given)) - wanted).max() / np.abs(wanted).max())
        right &= error <= TOLERANCE
        report["sizes"][entries] = {"config": tuned.config(*given), "error": error}
    for trials, given in zip(tuned.results, report["sizes"].values(), strict=False):
        first, chosen = trials.trials[0], next(each for each in trials.trials if each.config == trials.chosen)
        given |= {"default_us": first.cold_us or first.warm_us, "tuned_us": chosen.cold_us or chosen.warm_us}
    if options.json:
        print(json.dumps(report))
    else:
        print(*(f"{trials}\n" for trials in tuned.results), sep="\n", end="")
        print(f"{report['tunings']} sizes were timed now")
        for entries, found in report["sizes"].items():
            print(f"{entries} entries in a row: {found['config']}, error {found['error']:.1e}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
