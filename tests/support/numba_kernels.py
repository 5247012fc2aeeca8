"""Numba CUDA kernels on the themes of Numba's own documentation, each with its result by NumPy.

They are kernels of numba-cuda if it is installed, else of its successor, numba-cuda-mlir. Importing this needs one.
"""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

PACKAGE = "numba" if importlib.util.find_spec("numba_cuda") else "numba_cuda_mlir"
"""The package of `cuda`: without numba-cuda, ``numba.cuda`` is Numba's older one."""

cuda: Any = importlib.import_module(f"{PACKAGE}.cuda")
types: Any = cuda.types

TILE = 16
OFFSET = 3.0


class Case(NamedTuple):
    """A kernel, what it is called with, and what it has to compute.

    Parameters
    ----------
    kernel : CUDADispatcher
    inputs : tuple of array
    outs : tuple of (shape, dtype)
    launch : dict
        Keyword arguments of `be_runtime.numba_cuda_kernel`.
    expected : callable
        Of the inputs: the arrays that the outputs have to be.
    rtol : float
    """

    kernel: Any
    inputs: tuple[np.ndarray, ...]
    outs: tuple[tuple[tuple[int, ...], Any], ...]
    launch: dict[str, Any]
    expected: Callable[..., Sequence[np.ndarray]]
    rtol: float = 1e-5


def random(*shape: int, seed: int = 0) -> np.ndarray:
    """Uniform float32 numbers."""
    return np.random.default_rng(seed).random(shape, np.float32)


@cuda.jit
def saxpy(x, y, out):
    for i in range(cuda.grid(1), out.size, cuda.gridsize(1)):
        out[i] = np.float32(2.5) * x[i] + y[i]


def make_polynomial(a: float, b: float) -> Any:
    """A kernel that closes over numbers."""

    @cuda.jit
    def polynomial(x, out):
        i = cuda.grid(1)
        if i < out.size:
            out[i] = a * x[i] * x[i] + b * x[i] + OFFSET

    return polynomial


@cuda.jit
def block_sum(x, zero, total):
    shared = cuda.shared.array(256, types.float32)
    thread, i = cuda.threadIdx.x, cuda.grid(1)
    shared[thread] = x[i] if i < x.size else 0.0
    cuda.syncthreads()
    width = 128
    while width > 0:
        if thread < width:
            shared[thread] += shared[thread + width]
        cuda.syncthreads()
        width //= 2
    if thread == 0:
        cuda.atomic.add(total, 0, shared[0])


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), types.float32)
    right = cuda.shared.array((TILE, TILE), types.float32)
    row, column = cuda.grid(2)
    x, y = cuda.threadIdx.x, cuda.threadIdx.y
    total = types.float32(0.0)
    for step in range((a.shape[1] + TILE - 1) // TILE):
        left[x, y] = 0
        right[x, y] = 0
        if row < a.shape[0] and y + step * TILE < a.shape[1]:
            left[x, y] = a[row, y + step * TILE]
        if column < b.shape[1] and x + step * TILE < b.shape[0]:
            right[x, y] = b[x + step * TILE, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[x, k] * right[k, y]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def histogram(x, zero, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, min(int(x[i] * counts.size), counts.size - 1), 1)


def make_monte_carlo_pi() -> Any:
    """A kernel that draws random numbers, which the successor does not have."""
    from numba.cuda.random import init_xoroshiro128p_state, xoroshiro128p_dtype, xoroshiro128p_uniform_float32

    @cuda.jit
    def monte_carlo_pi(seeds, hits):
        i = cuda.grid(1)
        if i < hits.size:
            states = cuda.local.array(1, xoroshiro128p_dtype)
            init_xoroshiro128p_state(states, 0, seeds[i])
            inside = 0
            for _ in range(200):
                x = xoroshiro128p_uniform_float32(states, 0)
                y = xoroshiro128p_uniform_float32(states, 0)
                if x * x + y * y <= 1.0:
                    inside += 1
            hits[i] = inside

    return monte_carlo_pi


_MASK = (1 << 64) - 1


def _rotated(value: int, by: int) -> int:
    return ((value << by) | (value >> (64 - by))) & _MASK


def _hits(seed: int) -> int:
    """The generator of the kernel, in Python: xoroshiro128+ seeded by SplitMix64."""
    z = (seed + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    s0 = s1 = z ^ (z >> 31)
    inside, draws = 0, []
    for draw in range(400):
        draws.append(np.float32(((s0 + s1) & _MASK) >> 11) * np.float32(2.0**-53))
        s1 ^= s0
        s0, s1 = (_rotated(s0, 55) ^ s1 ^ (s1 << 14)) & _MASK, _rotated(s1, 36)
        if draw % 2:
            inside += bool(draws[-1] * draws[-1] + draws[-2] * draws[-2] <= 1.0)
    return inside


@cuda.jit
def odd_even_sort(x, out):
    shared = cuda.shared.array(0, types.float32)
    i, n = cuda.threadIdx.x, x.size
    shared[i] = x[i]
    cuda.syncthreads()
    for turn in range(n):
        if i % 2 == turn % 2 and i + 1 < n and shared[i] > shared[i + 1]:
            shared[i], shared[i + 1] = shared[i + 1], shared[i]
        cuda.syncthreads()
    out[i] = shared[i]


@cuda.jit
def fill3d(out):
    i, j, k = cuda.grid(3)
    if i < out.shape[0] and j < out.shape[1] and k < out.shape[2]:
        out[i, j, k] = i * 10000 + j * 100 + k


@cuda.jit
def libdevice_math(x, out, also):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = cuda.libdevice.rsqrt(x[i]) + math.erf(x[i])
        also[i] = cuda.libdevice.fast_cosf(types.float32(x[i]))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x])


_seeds = np.arange(1, 65, dtype=np.uint64)

CASES: dict[str, Case] = {
    "saxpy": Case(
        saxpy,
        (random(3000), random(3000, seed=1)),
        (((3000,), np.float32),),
        {"grid": 4, "block": 128},
        lambda x, y: [np.float32(2.5) * x + y],
    ),
    "polynomial": Case(
        make_polynomial(2.0, -1.0),
        (random(500),),
        (((500,), np.float32),),
        {"launch_dims": 500},
        lambda x: [2 * x * x - x + OFFSET],
    ),
    "block_sum": Case(
        block_sum,
        (random(10000), np.zeros(1, np.float32)),
        (((1,), np.float32),),
        {"grid": 40, "block": 256, "input_output_aliases": {1: 0}},
        lambda x, _: [x.sum(keepdims=True)],
        1e-4,
    ),
    "matmul": Case(
        matmul,
        (random(70, 45), random(45, 33, seed=1)),
        (((70, 33), np.float32),),
        {"launch_dims": (70, 33)},
        lambda a, b: [a @ b],
    ),
    "histogram": Case(
        histogram,
        (random(20000), np.zeros(64, np.int32)),
        (((64,), np.int32),),
        {"launch_dims": 20000, "input_output_aliases": {1: 0}},
        lambda x, _: [np.bincount(np.minimum((x * 64).astype(int), 63), minlength=64)],
    ),
    "odd_even_sort": Case(
        odd_even_sort,
        (random(200),),
        (((200,), np.float32),),
        {"grid": 1, "block": 200, "shared_mem": 800},
        lambda x: [np.sort(x)],
    ),
    "fill3d": Case(
        fill3d,
        (),
        (((5, 9, 17), np.int32),),
        {"launch_dims": (5, 9, 17)},
        lambda: [np.add.outer(np.add.outer(np.arange(5) * 10000, np.arange(9) * 100), np.arange(17))],
    ),
    "libdevice_math": Case(
        libdevice_math,
        (random(100) + np.float32(0.5),),
        (((100,), np.float32), ((100,), np.float32)),
        {"launch_dims": 100},
        lambda x: [1 / np.sqrt(x) + _erf(x), np.cos(x)],
        1e-4,
    ),
}
if PACKAGE == "numba":
    CASES["monte_carlo_pi"] = Case(
        make_monte_carlo_pi(),
        (_seeds.astype(np.uint32),),
        (((64,), np.int32),),
        {"launch_dims": 64},
        lambda seeds: [np.array([_hits(int(seed)) for seed in seeds])],
    )
