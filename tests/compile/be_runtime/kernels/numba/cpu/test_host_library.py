"""Numba CPU kernels as libraries for a baseline CPU: what they compute, what they need, and what is refused."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
import math
import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import BuildError, LoadError
from be_runtime.dtypes import BY_NAME
from be_runtime.kernels.numba.cpu.host_library import build_host_kernel
from be_runtime.kernels.numba.cpu.signature import Parameter, Signature
from be_runtime.load.process import PROCESS
from tests.support.requirements import in_full
from tests.support.runtime import call, environment, run_python

numba: Any = pytest.importorskip("numba")
njit = numba.njit

ROW = Parameter(BY_NAME["float32"], 1)
UNARY = Signature((ROW,), (ROW,))


@njit
def half_of(value):
    if value < 0:
        raise ValueError("a value is negative")
    return value / 2


@njit
def decay(x, y):
    for i in range(x.size):
        y[i] = half_of(x[i]) + x[1:].sum()


@njit(fastmath=True)
def sums(x, y):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * x[i] + math.sin(x[i])
    y[:] = total


BIG = np.arange(2_000_000.0)


@njit
def allocates(x, y):
    y[:] = np.cumsum(x)


@njit
def prints(x, y):
    print(x[0])  # noqa: T201
    y[:] = x


@njit
def raises_a_value(x, y):
    if x[0] < 0:
        raise ValueError(x[0])
    y[:] = x


@njit
def reads_a_large_global(x, y):
    y[0] = BIG[int(x[0])]


@njit(parallel=True)
def runs_in_threads(x, y):
    for i in numba.prange(x.size):
        y[i] = x[i]


@njit
def needs_scipy(x, y):
    y[0] = np.dot(x, x)


def register(kernel: Any, folder: Path) -> tuple[str, bytes]:
    """Build a kernel's library, load it, and register its handler under a target named after its content."""
    made = build_host_kernel(kernel, UNARY, PROCESS.session(), "x86-64-v3")
    target, (_, data) = made.target, made.images[made.library]
    path = folder / "kernel.so"
    path.write_bytes(data)
    handler = getattr(ctypes.CDLL(str(path)), made.stages["execute"])
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return target, data


def test_a_library_runs_batches_and_keeps_the_text_of_what_a_kernel_raises(tmp_path: Path):
    target, data = register(decay, tmp_path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    row = jax.ShapeDtypeStruct((3,), jnp.float32)
    np.testing.assert_array_equal(call(target, row, x[1]), x[1] / 2 + x[1, 1:].sum())
    batched = jax.vmap(jax.ffi.ffi_call(target, row, vmap_method="broadcast_all"))
    np.testing.assert_array_equal(batched(x), x / 2 + x[:, 1:].sum(axis=1, keepdims=True))
    with pytest.raises(Exception, match="decay: ValueError: a value is negative\n"):
        jax.block_until_ready(call(target, row, -x[1]))
    with pytest.raises(Exception, match=r"ValueError: a value is negative \(element 1 of a batch of 2\)"):
        jax.block_until_ready(batched(jnp.asarray([[1.0, 2, 3], [1, -2, 3]])))
    needed = subprocess.run(["readelf", "-dW", tmp_path / "kernel.so"], capture_output=True, text=True, check=True)
    names = {line.split("[")[1].rstrip("]") for line in needed.stdout.splitlines() if "NEEDED" in line}
    assert names <= {"libc.so.6", "libm.so.6"}, "neither Python nor a C++ library"
    assert str(Path.home()).encode() not in data
    assert b"numba" not in data


@pytest.mark.full
def test_two_builds_in_other_caches_are_the_same_bytes(tmp_path: Path):
    program = (
        "from tests.compile.be_runtime.kernels.numba.cpu import test_host_library as t\n"
        "if {0}: t.sums(t.np.ones(2), t.np.ones(2))\n"
        "print(t.build_host_kernel(t.decay, t.UNARY, t.PROCESS.session(), 'x86-64-v3').library)"
    )
    made = {
        run_python(program.format(first), env=environment(BE_CACHE_DIR=str(tmp_path / str(first)))).stdout.strip()
        for first in (0, 1)
    }
    assert len(made) == 1


@pytest.mark.full
def test_results_have_the_bits_of_a_process_whose_cpu_is_the_baseline(tmp_path: Path):
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    program = (
        "import jax, numpy as np\n"
        "from be_runtime import numba_kernel\n"
        "from tests.compile.be_runtime.kernels.numba.cpu.test_host_library import sums\n"
        f"x = np.load({str(tmp_path / 'x.npy')!r})\n"
        f"y = numba_kernel(sums, signature='arg[n] ret[n]:like(0)')(x)\n"
        f"np.save({str(tmp_path / 'y.npy')!r}, y)"
    )
    run_python(program, env=environment(NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES=""))
    target, _ = register(sums, tmp_path)
    found = np.asarray(call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    assert found.tobytes() == np.load(tmp_path / "y.npy").tobytes()


@pytest.mark.parametrize(
    ("kernel", "reason"),
    [
        (allocates, r"allocates an array \(NRT_"),
        in_full(prints, r"calls Python: it prints"),
        in_full(raises_a_value, "raises an exception with a value of run time"),
        (reads_a_large_global, "a global array of more than a megabyte"),
        (runs_in_threads, "runs in threads"),
        in_full(needs_scipy, "linear algebra of SciPy"),
    ],
)
def test_a_kernel_that_needs_numba_when_it_runs_is_refused_by_name(kernel: Any, reason: str):
    name = kernel.py_func.__name__
    with pytest.raises(BuildError, match=f"the kernel {name} can't be built ahead of time: it .*{reason}") as caught:
        build_host_kernel(kernel, UNARY, PROCESS.session(), "x86-64-v3")
    assert caught.value.hints


def test_nothing_is_compiled_where_that_is_forbidden(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_JIT", "never")
    with pytest.raises(LoadError, match="decay was not built ahead of time, and BE_JIT=never forbids to compile it"):
        build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v4")
