"""Numba CUDA kernels on the themes of Numba's own documentation, each with its result by NumPy.

Importing this needs Numba with CUDA support.
"""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba import cuda
from numba.cuda import types
from numba.cuda.random import init_xoroshiro128p_state, xoroshiro128p_dtype, xoroshiro128p_uniform_float32

TILE, PADDED = 16, 17
WEIGHTS = np.array([0.25, 0.5, 0.25], np.float32)
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
def warp_sum(x, out):
    value = x[cuda.grid(1)]
    width = 16
    while width > 0:
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, width)
        width //= 2
    if cuda.laneid == 0:
        out[cuda.grid(1) // 32] = value


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
def transpose(x, out):
    tile = cuda.shared.array((TILE, PADDED), types.float32)
    i, j = cuda.grid(2)
    if i < x.shape[0] and j < x.shape[1]:
        tile[cuda.threadIdx.x, cuda.threadIdx.y] = x[i, j]
    cuda.syncthreads()
    i = cuda.blockIdx.x * TILE + cuda.threadIdx.y
    j = cuda.blockIdx.y * TILE + cuda.threadIdx.x
    if i < x.shape[0] and j < x.shape[1]:
        out[j, i] = tile[cuda.threadIdx.y, cuda.threadIdx.x]


@cuda.jit
def histogram(x, zero, counts):
    i = cuda.grid(1)
    if i < x.size:
        cuda.atomic.add(counts, min(int(x[i] * counts.size), counts.size - 1), 1)


@cuda.jit(device=True)
def pull(xi, yi, zi, xj, yj, zj):
    dx, dy, dz = xj - xi, yj - yi, zj - zi
    scale = 1.0 / math.sqrt((dx * dx + dy * dy + dz * dz + 0.01) ** 3)
    return dx * scale, dy * scale, dz * scale


@cuda.jit
def nbody(position, acceleration):
    i = cuda.grid(1)
    if i < position.shape[0]:
        ax, ay, az = 0.0, 0.0, 0.0
        for j in range(position.shape[0]):
            fx, fy, fz = pull(
                position[i, 0], position[i, 1], position[i, 2], position[j, 0], position[j, 1], position[j, 2]
            )
            ax, ay, az = ax + fx, ay + fy, az + fz
        acceleration[i, 0] = ax
        acceleration[i, 1] = ay
        acceleration[i, 2] = az


def nbody_expected(position: np.ndarray) -> Sequence[np.ndarray]:
    """The accelerations."""
    away = position[None, :, :].astype(np.float64) - position[:, None, :]
    scale = ((away**2).sum(-1) + 0.01) ** -1.5
    return [(away * scale[..., None]).sum(1)]


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
def heat(u, out):
    i, j = cuda.grid(2)
    rows, columns = u.shape
    if 0 < i < rows - 1 and 0 < j < columns - 1:
        out[i, j] = 0.25 * (u[i - 1, j] + u[i + 1, j] + u[i, j - 1] + u[i, j + 1])
    elif i < rows and j < columns:
        out[i, j] = u[i, j]


def heat_expected(u: np.ndarray) -> Sequence[np.ndarray]:
    """One step."""
    out = u.copy()
    out[1:-1, 1:-1] = 0.25 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:])
    return [out]


@cuda.jit
def block_scan(x, out):
    shared = cuda.shared.array(512, types.int32)
    i = cuda.threadIdx.x
    shared[i] = x[i]
    cuda.syncthreads()
    step = 1
    while step < 512:
        value = shared[i - step] if i >= step else 0
        cuda.syncthreads()
        shared[i] += value
        cuda.syncthreads()
        step *= 2
    out[i] = shared[i]


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
def mandelbrot(c, counts):
    i, j = cuda.grid(2)
    if i < c.shape[0] and j < c.shape[1]:
        z = complex(0.0, 0.0)
        count = 0
        while count < 50 and z.real * z.real + z.imag * z.imag <= 4.0:
            z = z * z + c[i, j]
            count += 1
        counts[i, j] = count


def mandelbrot_expected(c: np.ndarray) -> Sequence[np.ndarray]:
    """Steps until each point escapes."""
    z, counts = np.zeros_like(c), np.zeros(c.shape, np.int32)
    for _ in range(50):
        alive = np.abs(z) <= 2
        z = np.where(alive, z * z + c, z)
        counts += alive
    return [counts]


@cuda.jit
def smooth(x, out):
    weights = cuda.const.array_like(WEIGHTS)
    i = cuda.grid(1)
    if i < out.size:
        total = 0.0
        for k in range(3):
            j = min(max(i + k - 1, 0), x.size - 1)
            total += weights[k] * x[j]
        out[i] = total


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


@cuda.jit
def k_means(points, centres, nearest):
    i = cuda.grid(1)
    if i < points.shape[0]:
        best, found = 1e30, -1
        for j in range(centres.shape[0]):
            dx, dy = points[i, 0] - centres[j, 0], points[i, 1] - centres[j, 1]
            if dx * dx + dy * dy < best:
                best, found = dx * dx + dy * dy, j
        nearest[i] = found


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(value) for value in x])


_seeds = np.arange(1, 65, dtype=np.uint64)
_plane = (np.linspace(-2, 1, 70)[:, None] + 1j * np.linspace(-1.2, 1.2, 50)[None, :]).astype(np.complex128)

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
    "warp_sum": Case(
        warp_sum,
        (random(256),),
        (((8,), np.float32),),
        {"grid": 2, "block": 128},
        lambda x: [x.reshape(8, 32).sum(1)],
    ),
    "matmul": Case(
        matmul,
        (random(70, 45), random(45, 33, seed=1)),
        (((70, 33), np.float32),),
        {"launch_dims": (70, 33)},
        lambda a, b: [a @ b],
    ),
    "transpose": Case(
        transpose,
        (random(50, 70),),
        (((70, 50), np.float32),),
        {"launch_dims": (50, 70)},
        lambda x: [x.T],
    ),
    "histogram": Case(
        histogram,
        (random(20000), np.zeros(64, np.int32)),
        (((64,), np.int32),),
        {"launch_dims": 20000, "input_output_aliases": {1: 0}},
        lambda x, _: [np.bincount(np.minimum((x * 64).astype(int), 63), minlength=64)],
    ),
    "nbody": Case(nbody, (random(200, 3),), (((200, 3), np.float32),), {"launch_dims": 200}, nbody_expected, 2e-4),
    "monte_carlo_pi": Case(
        monte_carlo_pi,
        (_seeds.astype(np.uint32),),
        (((64,), np.int32),),
        {"launch_dims": 64},
        lambda seeds: [np.array([_hits(int(seed)) for seed in seeds])],
    ),
    "heat": Case(heat, (random(40, 60),), (((40, 60), np.float32),), {"launch_dims": (40, 60)}, heat_expected),
    "block_scan": Case(
        block_scan,
        (np.arange(512, dtype=np.int32) % 7,),
        (((512,), np.int32),),
        {"grid": 1, "block": 512},
        lambda x: [np.cumsum(x)],
    ),
    "odd_even_sort": Case(
        odd_even_sort,
        (random(200),),
        (((200,), np.float32),),
        {"grid": 1, "block": 200, "shared_mem": 800},
        lambda x: [np.sort(x)],
    ),
    "mandelbrot": Case(
        mandelbrot,
        (_plane.astype(np.complex64),),
        (((70, 50), np.int32),),
        {"launch_dims": (70, 50)},
        lambda c: mandelbrot_expected(c.astype(np.complex128)),
    ),
    "smooth": Case(
        smooth,
        (random(300),),
        (((300,), np.float32),),
        {"launch_dims": 300},
        lambda x: [np.convolve(np.pad(x, 1, mode="edge"), WEIGHTS, mode="valid")],
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
    "k_means": Case(
        k_means,
        (random(400, 2), random(5, 2, seed=3)),
        (((400,), np.int32),),
        {"launch_dims": 400},
        lambda points, centres: [((points[:, None] - centres[None]) ** 2).sum(-1).argmin(1)],
    ),
}
