"""The images without compilers: kernels come from the folder of prebuilt ones, or there is a clear error."""

from __future__ import annotations

import re

import pytest

from tests.support.docker import KERNELS, RESTRICTED, Engine

pytestmark = pytest.mark.xdist_group("docker")

CALL_CPP = """
import runpy
import numpy as np
train = runpy.run_path("train.py")
train["load_kernels"]()
spikes, weights = np.float32(np.eye(3, 5)), np.float32(np.arange(20).reshape(5, 4))
print(np.array_equal(train["event_matmul"](spikes, weights), spikes @ weights))
"""
LOAD_CUDA = """
import runpy
import be_runtime
train = runpy.run_path("train.py")
print(be_runtime.load_cuda_inline("events", train["CUDA_SOURCE"], {}).path)
"""


def test_a_project_s_kernels_run_where_nothing_can_be_written_or_compiled(engine: Engine, aot: str):
    done = engine(*RESTRICTED, "-i", aot, "python", "-", text_in=CALL_CPP)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_a_package_s_kernels_run_there_too(engine: Engine, packaged: str):
    done = engine(*RESTRICTED, "--env", "BE_JIT=never", packaged, "python", "-m", "mykernels")
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^(\S+) +cpu 0 agrees", done.stdout, re.MULTILINE)
    assert ran == ["neurons.fire", "neurons.integrate", "decay"]
    numba = engine(*RESTRICTED, packaged, "python", "-c", "import numba")
    assert "No module named 'numba'" in numba.stderr


@pytest.mark.parametrize(("asked", "found"), [("9.0", True), ("12.0", True), ("8.6", False)])
def test_a_cuda_kernel_is_loaded_where_its_code_can_run(engine: Engine, aot: str, asked: str, *, found: bool):
    script = LOAD_CUDA.replace("{}", f"compute_capability={asked!r}")
    done = engine(*RESTRICTED, "-i", aot, "python", "-", text_in=script)
    if found:
        assert done.stdout.startswith("/opt/be-kernels/events/"), done.stderr
    else:
        assert done.returncode == 1
        assert "events is there, and its code for sm_90 does not run on sm_86" in done.stderr


def test_a_kernel_that_was_not_built_is_named(engine: Engine, runtime: str):
    done = engine("run", "--rm", "-i", runtime, "python", "-", text_in=KERNELS)
    assert done.returncode == 1
    assert "HostCompilerNotFoundError" in done.stderr
    assert "/opt/be-kernels holds no such cpp module: none named offline" in done.stderr
