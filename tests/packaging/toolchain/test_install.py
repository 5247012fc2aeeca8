"""Real installations into fresh environments, from downloaded wheels."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import CudaNotFoundError, IncoherentToolchainError
from be_toolchain.machine.store_paths import INTERRUPTED
from be_toolchain.model import CudaToolkit
from tests.support.fresh_environments import STRANGERS, Environment

pytestmark = pytest.mark.xdist_group("toolchain-install")

KERNEL = """
#include <cuda_fp16.h>
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" int launch(const float* x, float* y, int n) {
  twice<<<(n + 127) / 128, 128>>>(x, y, n);
  return static_cast<int>(cudaGetLastError());
}
"""


def cuda_of(environment: Environment) -> CudaToolkit:
    toolchain = resolve(ToolchainRequest(need_cuda=True), system=environment.system)
    assert toolchain.cuda is not None
    return toolchain.cuda


def compile_kernel(toolkit: CudaToolkit, folder: Path) -> None:
    """Compile and link a kernel with a toolkit and no other."""
    source, library = folder / "kernel.cu", folder / "kernel.so"
    source.write_text(KERNEL)
    folders = [word for path in toolkit.library_dirs for word in ("-L", str(path))]
    command = [str(toolkit.nvcc), "-ccbin", str(toolkit.host_compiler.path), "-arch=sm_90", "-shared"]
    options = ["-Xcompiler", "-fPIC", *folders, str(source), "-o", str(library)]
    done = subprocess.run(
        [*command, *options], env={"PATH": "/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"twice" in library.read_bytes()


CMAKE_LISTS = """
cmake_minimum_required(VERSION 3.18)
project(trial LANGUAGES CXX)
find_package(CUDAToolkit REQUIRED)
add_executable(trial host.cc)
target_link_libraries(trial CUDA::cudart)
"""
HOST = """
#include <cuda_runtime.h>
int main() { int version = 0; return cudaRuntimeGetVersion(&version) == cudaSuccess && version >= 13000 ? 0 : 1; }
"""


def build_with_cmake(environment: Environment, folder: Path) -> None:
    """Link a program with the shared CUDA runtime through ``find_package(CUDAToolkit)``, and run it."""
    (folder / "CMakeLists.txt").write_text(CMAKE_LISTS)
    (folder / "host.cc").write_text(HOST)
    environment.pip("install", "cmake", "ninja")
    tools = environment.python.parent
    code, text = environment.run("env", "--shell", "json")
    assert code == 0, text
    variables = json.loads(text)
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    for words in (("-G", "Ninja", "-S", ".", "-B", "build"), ("--build", "build")):
        done = subprocess.run(
            [str(tools / "cmake"), *words], cwd=folder, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert str(environment.store) in (folder / "build" / "CMakeCache.txt").read_text()
    assert subprocess.run([folder / "build" / "trial"], check=False).returncode == 0


def test_a_managed_toolkit_compiles_where_there_is_no_other(
    new_environment: Callable[[], Environment], wheels: Path, tmp_path: Path
):
    fresh = new_environment()
    with pytest.raises(CudaNotFoundError):
        cuda_of(fresh)
    install = ("install", "--cuda", "13.0", "--into", "managed", "--wheels", wheels)

    code, text = fresh.run(*install, "--dry-run", "--json")
    (plan,) = json.loads(text)["plans"]
    assert code == 0
    assert (plan["version"], plan["into"], plan["is_done"], len(plan["wheels"])) == ("13.0.2", "managed", False, 5)

    code, text = fresh.run(*install)
    assert code == 4
    assert "pass --yes" in text
    assert not fresh.store.exists()

    code, text = fresh.run(*install, "--yes")
    assert code == 0, text
    assert fresh.store.stat().st_mode & 0o777 == 0o700

    toolkit = cuda_of(fresh)
    assert toolkit.root == fresh.store / "cuda-13.0.2" / "nvidia" / "cu13"
    compile_kernel(toolkit, tmp_path)
    build_with_cmake(fresh, tmp_path)

    assert "is there already" in fresh.run(*install)[1]
    damaged = toolkit.root / "include" / "cuda_runtime.h"
    damaged.write_text("")
    assert fresh.run("list", "--verify")[0] == 1
    assert fresh.run(*install, "--yes")[0] == 0
    assert fresh.run("list", "--verify")[0] == 0
    assert damaged.stat().st_size > 0

    assert fresh.run("use", "13.0")[0] == 0
    assert cuda_of(fresh).found_via == "python -m be_toolchain use"
    assert fresh.run("remove", "13.0", "--yes")[0] == 0
    assert list(fresh.store.iterdir()) == []
    with pytest.raises(CudaNotFoundError):
        cuda_of(fresh)


def test_mixed_wheels_are_diagnosed_and_fixed(new_environment: Callable[[], Environment], wheels: Path, tmp_path: Path):
    mixed = new_environment()
    offline = ("install", "--no-index", "--find-links", wheels, "--no-deps", "--no-compile")
    mixed.pip(*offline, "nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-cccl==13.0.85", *STRANGERS)
    with pytest.raises(IncoherentToolchainError, match=r"nvvm 13\.5\.37"):
        cuda_of(mixed)

    code, text = mixed.run("doctor", "--fix", "--wheels", wheels)
    assert code == 4
    assert "nvidia-nvvm 13.0.88  (replaces 13.5.37)" in text
    with pytest.raises(IncoherentToolchainError):
        cuda_of(mixed)

    code, text = mixed.run("doctor", "--fix", "--yes", "--wheels", wheels)
    assert code == 0, text
    toolkit = cuda_of(mixed)
    assert toolkit.root == mixed.site / "nvidia" / "cu13"
    assert not (mixed.site / INTERRUPTED).exists()
    compile_kernel(toolkit, tmp_path)
