"""Launches and modules under compute-sanitizer: every access lies in an array, and shared memory has no race."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime.kernels.launcher import Again, Kernel, Launcher
from tests.support import launch_frame
from tests.support.cuda import load_exercise
from tests.support.kernel_calls import attributes, kernel_calls
from tests.support.requirements import OPTIONAL

SHARED = ("block_sum", "matmul", "histogram", "odd_even_sort", "fill3d")
FOUND = 77
RAW = """
__global__ void past(const float* x, float* y) { y[threadIdx.x + 1] = x[threadIdx.x]; }

template <bool kWaits>
__global__ void reverse(const float* x, float* y) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = x[threadIdx.x];
  if (kWaits) __syncthreads();
  y[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
"""
X = np.arange(256, dtype=np.float32)
PLANTED = {"memcheck": ("past", "Invalid __global__ write"), "racecheck": ("reverse<false>", "Race reported between")}
CLEAN = {"memcheck": "ERROR SUMMARY: 0 errors", "racecheck": "RACECHECK SUMMARY: 0 hazards"}

pytestmark = pytest.mark.needs("compute-sanitizer")


@pytest.fixture
def defined(monkeypatch: pytest.MonkeyPatch) -> dict[str, Kernel]:
    """The kernels that the launcher is told about, by their ids."""
    kernels: dict[str, Kernel] = {}
    define = Launcher.define

    def noted(launcher: Launcher, kernel: Kernel, again: Again | None = None) -> None:
        kernels[kernel.id] = kernel
        define(launcher, kernel, again)

    monkeypatch.setattr(Launcher, "define", noted)
    return kernels


def raw_job(name: str, defined: dict[str, Kernel], folder: Path) -> dict[str, Any]:
    """A launch of a kernel of `RAW`."""
    shared_mem = X.nbytes if name.startswith("reverse") else 0
    kernel = be_runtime.cuda_kernel(RAW, name, lambda x: x, grid=1, block=X.size, shared_mem=shared_mem)
    return as_job(kernel, (X,), defined, folder / name)


def as_job(function: Any, inputs: tuple[np.ndarray, ...], defined: dict[str, Kernel], folder: Path) -> dict[str, Any]:
    """One launch for `launch_frame`."""
    (call,) = kernel_calls(function, *inputs)
    given = attributes(call)
    numbers = {name: value if isinstance(value, str) else value.tolist() for name, value in given.items()}
    folder.mkdir()
    images = []
    for number, image in enumerate(defined[numbers["kernel"]].images):
        data = folder / f"image{number}"
        data.write_bytes(image.data)
        arch = image.cuda_arch.major * 10 + image.cuda_arch.minor
        row = {"arch": arch, "is_ptx": image.is_ptx, "form": int(image.form), "entry": image.entry}
        images.append(row | {"data": str(data)})
    arguments = []
    for number, array in enumerate(inputs):
        path = folder / f"input{number}"
        path.write_bytes(array.tobytes())
        arguments.append({"file": str(path), "shape": array.shape})
    outs = [{"bytes": var.aval.size * var.aval.dtype.itemsize, "shape": var.aval.shape} for var in call.outvars]
    return {"images": images, "attributes": numbers, "inputs": arguments, "outs": outs}


def sanitized(tool: str, *program: str) -> tuple[int, str]:
    """The exit status and the report of a Python program under a tool of compute-sanitizer."""
    command = ("compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), sys.executable, "-S", *program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    report = done.stdout + done.stderr
    if "device not supported" in report.lower():
        pytest.skip(f"{OPTIONAL}a compute-sanitizer that knows this device: {report[-600:]}")
    return done.returncode, report


def sanitized_jobs(tool: str, jobs: list[dict[str, Any]], folder: Path) -> tuple[int, str]:
    (folder / "jobs.json").write_text(json.dumps(jobs))
    mapped = {line.rsplit(maxsplit=1)[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    modules = [path for path in mapped if ("/images/" in path or "/shipped/" in path) and path.endswith(".so")]
    (launcher,) = [path for path in modules if b"be_launch_define" in Path(path).read_bytes()]
    return sanitized(tool, str(launch_frame.__file__), launcher, str(folder / "jobs.json"))


@pytest.mark.parametrize("tool", PLANTED)
def test_a_planted_fault_is_found(tool: str, tmp_path: Path, defined: dict[str, Kernel]):
    """What the test of clean launches relies on."""
    name, message = PLANTED[tool]
    status, report = sanitized_jobs(tool, [raw_job(name, defined, tmp_path)], tmp_path)
    assert status == FOUND, report
    assert message in report, report


@pytest.mark.parametrize("tool", CLEAN)
def test_launches_are_clean(tool: str, tmp_path: Path, defined: dict[str, Kernel]):
    numba_kernels = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)
    jobs = [raw_job("reverse<true>", defined, tmp_path)]
    for name in SHARED:
        case = numba_kernels.CASES[name]
        outs = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in case.outs]
        function = be_runtime.numba_cuda_kernel(case.kernel, outs, **case.launch)
        jobs.append(as_job(function, case.inputs, defined, tmp_path / name))
    status, report = sanitized_jobs(tool, jobs, tmp_path)
    assert status == 0, report
    assert CLEAN[tool] in report, report


CALL = "import ctypes, sys; sys.exit(max(ctypes.CDLL(path).exercise() for path in sys.argv[1:]))"


def test_modules_are_clean():
    """Without JAX, whose thousands of kernels would take minutes under the tool."""
    status, report = sanitized("memcheck", "-c", CALL, str(load_exercise("out_of_bounds").path))
    if "Invalid __global__ write" not in report:
        pytest.skip(f"{OPTIONAL}a compute-sanitizer that works: {report[-600:]}")
    assert status == FOUND
    paths = [str(load_exercise(name).path) for name in ("training", "events", "styles")]
    for tool, summary in CLEAN.items():
        status, report = sanitized(tool, "-c", CALL, *paths)
        assert status == 0, report
        assert summary in report, report
