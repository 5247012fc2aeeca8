"""Installations into fresh environments: of small stand-ins for the CUDA wheels, and of the real ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from be_toolchain.doctor.doctor import examine_machine, render_report
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.install.apply import gather_situation
from be_toolchain.machine.files import INTERRUPTED
from tests.packaging.wheel.conftest import uv
from tests.support.fresh_environments import NO_INDEX, STRANGERS, Environment, make_environment
from tests.support.machines import cuda_of
from tests.support.requirements import in_full
from tests.support.small_wheels import write_wheels

pytestmark = pytest.mark.xdist_group("toolchain-install")

RELEASE = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]==13.0.2"
Make = Callable[..., Environment]


@pytest.fixture(scope="session")
def small_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One release, and three of a later one, in a few KB each."""
    return write_wheels(tmp_path_factory.mktemp("small"))


@pytest.fixture
def new_environment(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes environments, with options of ``python -m venv``."""
    return lambda *options: make_environment(tmp_path_factory.mktemp("fresh"), *options)


@pytest.fixture(params=["uv", in_full("pip")])
def fresh(request: pytest.FixtureRequest, new_environment: Make, tmp_path: Path) -> Environment:
    """An environment with pip, or one without but with uv on PATH."""
    if request.param == "pip":
        return new_environment()
    (tmp_path / "uv").symlink_to(uv())
    return replace(new_environment("--without-pip"), path=f"{tmp_path}:/usr/bin:/bin")


def succeed(environment: Environment, *arguments: str | Path, timeout_s: float = 250) -> str:
    """What a command said that has to succeed."""
    code, text = environment.run(*arguments, timeout_s=timeout_s)
    assert code == 0, text
    return text


def test_a_toolkit_is_installed_verified_repaired_and_removed(fresh: Environment, small_wheels: Path):
    with pytest.raises(CudaNotFoundError):
        cuda_of(fresh.system)
    install = ("install", "--cuda", "13.0", "--wheels", small_wheels)
    managed = (*install, "--into", "managed")
    (plan,) = json.loads(succeed(fresh, *managed, "--dry-run", "--json"))["plans"]
    assert (plan["version"], plan["into"], plan["is_done"], len(plan["wheels"])) == ("13.0.2", "managed", False, 5)
    code, text = fresh.run(*managed)
    assert code == 4
    assert "pass --yes" in text
    assert not fresh.store.exists()

    succeed(fresh, *managed, "--yes")
    assert fresh.store.stat().st_mode & 0o777 == 0o700
    root = cuda_of(fresh.system).root
    assert root == fresh.store / "cuda-13.0.2" / "nvidia" / "cu13"
    assert "is already installed" in succeed(fresh, *managed)
    damaged = root / "include" / "cuda_runtime.h"
    damaged.write_text("damaged")
    assert fresh.run("list", "--verify")[0] == 1
    succeed(fresh, *managed, "--yes")
    succeed(fresh, "list", "--verify")
    assert damaged.read_text() != "damaged"

    succeed(fresh, "use", "13.0")
    assert cuda_of(fresh.system).found_via == "python -m be_toolchain use"
    succeed(fresh, *install, "--into", "env", "--yes")
    succeed(fresh, "remove", "13.0", "--yes")
    assert list(fresh.store.iterdir()) == []
    assert cuda_of(fresh.system).root == fresh.site / "nvidia" / "cu13"


def test_mixed_wheels_are_diagnosed_and_fixed(fresh: Environment, small_wheels: Path):
    offline: list[str | Path] = ["--no-index", "--find-links", small_wheels, "--no-deps", "--python", fresh.python]
    wanted = ["nvidia-cuda-nvcc==13.0.88", *STRANGERS]
    subprocess.run([uv(), "pip", "install", *offline, *wanted], check=True, capture_output=True)
    with pytest.raises(CudaNotFoundError):
        cuda_of(fresh.system)
    fix = ("doctor", "--fix", "--wheels", small_wheels)
    code, text = fresh.run(*fix)
    assert code == 4
    assert "nvidia-nvvm 13.0.88  (replaces 13.5.37)" in text
    succeed(fresh, *fix, "--yes")
    assert cuda_of(fresh.system).root == fresh.site / "nvidia" / "cu13"
    assert not (fresh.site / INTERRUPTED).exists()


@pytest.mark.full
def test_the_plugin_of_jax_says_which_releases_it_takes(new_environment: Make, small_wheels: Path):
    environment = new_environment()
    environment.pip("install", "--no-deps", "jax-cuda13-plugin")
    situation = gather_situation(environment.system, site=environment.site)
    assert situation.jax_cuda == "13"
    assert dict(situation.minimums)["nvidia-cuda-nvcc"].startswith("13.")
    (plan,) = json.loads(succeed(environment, "install", "--dry-run", "--json", "--wheels", small_wheels))["plans"]
    assert (plan["version"], plan["into"]) == ("13.0.2", "env")


@pytest.mark.full
def test_the_wheels_of_jax_for_cuda_12_hold_no_nvcc_and_the_doctor_says_what_they_do(new_environment: Make):
    environment = new_environment()
    environment.pip("install", "--no-deps", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12==12.9.*")
    assert (environment.site / "nvidia" / "cuda_nvcc" / "bin" / "ptxas").is_file()
    assert gather_situation(environment.system, site=environment.site).jax_cuda == "12"
    report = examine_machine(environment.system)
    assert report.exit_code == 1
    assert "holds ptxas and libdevice" in render_report(report, verbose=True)
    assert any("python -m be_toolchain install" in hint for hint in report.problems[0].hints)


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


@pytest.mark.full
def test_a_managed_toolkit_compiles_and_cmake_finds_it(new_environment: Make, tmp_path: Path):
    """CMake links a program with the shared CUDA runtime through ``find_package(CUDAToolkit)``."""
    environment = new_environment()
    wheels = tmp_path / "wheels"
    environment.pip("download", "--dest", wheels, RELEASE)
    succeed(environment, "install", "--cuda", "13.0", "--into", "managed", "--wheels", wheels, "--yes")
    report = json.loads(succeed(environment, "doctor", "--smoke", "--json"))
    assert report["toolchain"]["cuda"]["root"].startswith(str(environment.store))
    assert ("CUDA", "ok") in [(trial["name"], trial["outcome"]) for trial in report["smoke"]]
    (tmp_path / "CMakeLists.txt").write_text(CMAKE_LISTS)
    (tmp_path / "host.cc").write_text(HOST)
    environment.pip("install", "cmake", "ninja")
    tools = environment.python.parent
    variables = json.loads(succeed(environment, "env", "--shell", "json"))
    variables["PATH"] = f"{tools}:{variables['PATH']}"
    for words in (("-G", "Ninja", "-S", ".", "-B", "build"), ("--build", "build")):
        command = [str(tools / "cmake"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert str(environment.store) in (tmp_path / "build" / "CMakeCache.txt").read_text()
    assert subprocess.run([tmp_path / "build" / "trial"], check=False).returncode == 0


CALLED = '''
import sys, time
import jax, jax.numpy as jnp
import be_runtime
began = time.monotonic()
module = be_runtime.load_cpp_inline(sys.argv[1], r"""
#include <sstream>
#include <stdexcept>
#include "brainevent/common.h"
// @BE add_one arg ret
void add_one(const BE::Tensor x, BE::Tensor out) {
  try { throw std::runtime_error("1"); } catch (const std::exception& error) {
    float step = 0;
    std::istringstream(error.what()) >> step;
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + step;
  }
}
""")
took_s = time.monotonic() - began
x = jnp.arange(100, dtype=jnp.float32)
print(float(module.add_one(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype)).sum()), took_s)
'''


@pytest.mark.full
def test_a_machine_without_a_compiler_gets_one_and_builds_kernels(new_environment: Make, tmp_path: Path):
    """Its first kernel does not wait for a C++ library; a folder holds what a wrapper script calls, and no compiler."""
    (tmp_path / "bin").mkdir()
    for name in ("sh", "env", "dirname", "readlink"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    bare = replace(new_environment(), path=str(tmp_path / "bin"))
    code, text = bare.run("which", "cxx")
    assert code == 2
    assert "python -m be_toolchain install --host-compiler" in text
    code, text = bare.run("install", "--host-compiler", "--yes", timeout_s=800)
    if code and any(sign in text for sign in NO_INDEX):
        pytest.skip("no package index with ziglang can be reached")
    assert code == 0, text
    assert "nvcc's host side still needs the system's compiler: " in text
    assert "building its C++ library" in text
    compiler = Path(succeed(bare, "which", "cxx").strip())
    assert compiler.is_relative_to(bare.store)

    def seconds_to_load(name: str, **environ: str) -> float:
        """Build a kernel and call it from JAX in a process of its own."""
        variables = {**bare.environ, "JAX_PLATFORMS": "cpu", "BE_CACHE_DIR": str(tmp_path / name), **environ}
        command = [sys.executable, "-c", CALLED, name]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        total, took_s = map(float, done.stdout.split())
        assert total == 5050
        assert len(list(bare.store.glob("zig-*/cache/o/*/libc++.a"))) == 1
        return took_s

    assert seconds_to_load("without") < 20, "3 s on an idle machine, a minute with the library"
    # Another compiler on PATH, whose headers zig would take for the system's, changes nothing.
    seconds_to_load("beside", PATH=os.environ["PATH"], BE_CXX=str(compiler))
