"""Numba CPU kernels as libraries for a baseline CPU, and their native handler over buffers as long as they say."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
import math
import subprocess
from collections.abc import Callable
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
from be_runtime.own_files import NATIVE_DIR
from be_runtime.xla.jax_port import ffi_include_dir
from tests.support.requirements import OPTIONAL, in_full
from tests.support.runtime import call, environment, real_compiler, run_python

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
def test_another_process_builds_the_same_bytes_and_a_baseline_cpu_gives_the_same_bits(tmp_path: Path):
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    program = f"""
import jax, numpy as np
from be_runtime import numba_kernel
from tests.compile.be_runtime.kernels.numba.cpu import test_host_library as t
x = np.load({str(tmp_path / "x.npy")!r})
np.save({str(tmp_path / "y.npy")!r}, numba_kernel(t.sums, signature="arg[n] ret[n]:like(0)")(x))
print(t.build_host_kernel(t.decay, t.UNARY, t.PROCESS.session(), "x86-64-v3").library)"""
    baseline = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "BE_CACHE_DIR": str(tmp_path / "cache")}
    made = run_python(program, env=environment(**baseline)).stdout.strip()
    assert made == build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v3").library, "its name is its content"
    target, _ = register(sums, tmp_path)
    found = np.asarray(call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    assert found.tobytes() == np.load(tmp_path / "y.npy").tobytes()


BIG = np.arange(2_000_000.0)


NOT_ALONE = [
    in_full("y[:] = np.cumsum(x)", {}, r"allocates an array \(NRT_"),
    in_full("print(x[0])", {}, r"calls Python: it prints"),
    in_full("if x[0] < 0: raise ValueError(x[0])", {}, "raises an exception with a value of run time"),
    ("y[0] = big[int(x[0])]", {}, "a global array of more than a megabyte"),
    ("for i in numba.prange(x.size): y[i] = x[i]", {"parallel": True}, "runs in threads"),
    in_full("y[0] = np.dot(x, x)", {}, "linear algebra of SciPy"),
]


@pytest.mark.parametrize(("line", "options", "reason"), NOT_ALONE)
def test_a_kernel_that_needs_numba(define: Callable[..., Any], line: str, options: dict[str, bool], reason: str):
    """It is refused by name."""
    kernel = define(line, parameters="x, y", known={"big": BIG}, **options)
    with pytest.raises(BuildError, match=f"the kernel kernel can't be built ahead of time: it .*{reason}") as caught:
        build_host_kernel(kernel, UNARY, PROCESS.session(), "x86-64-v3")
    assert caught.value.hints


def test_nothing_is_compiled_where_that_is_forbidden(monkeypatch: pytest.MonkeyPatch):
    build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v3")  # so our own library is there
    monkeypatch.setenv("BE_JIT", "never")
    with pytest.raises(LoadError, match="decay was not built ahead of time, and BE_JIT=never forbids to compile it"):
        build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v4")


PROGRAM = Path(__file__).parent / "programs" / "guarded_calls.cc"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def run(folder: Path, one_too_many: int) -> subprocess.CompletedProcess[str]:
    """Build the program and run it."""
    compiler = real_compiler()
    probe = (compiler, *SANITIZE, "-x", "c++", "-", "-o", str(folder / "probe"))
    if subprocess.run(probe, input=b"int main() {}", capture_output=True, check=False).returncode != 0:
        pytest.skip(OPTIONAL + "the compiler's sanitizers")
    flags = ("-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZE, f"-DONE_TOO_MANY={one_too_many}")
    command = (compiler, *flags, f"-I{ffi_include_dir()}", f"-I{NATIVE_DIR}", str(PROGRAM), "-o", str(folder / "main"))
    subprocess.run(command, check=True)
    return subprocess.run([folder / "main"], capture_output=True, text=True, check=False)


def test_calls_and_batches_stay_within_their_buffers(tmp_path: Path):
    done = run(tmp_path, 0)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.full
def test_the_program_would_notice(tmp_path: Path):
    """A function that touches one element too many is found."""
    done = run(tmp_path, 1)
    assert done.returncode != 0
    assert "heap-buffer-overflow" in done.stderr
