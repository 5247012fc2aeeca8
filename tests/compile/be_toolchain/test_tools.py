"""What other programs do with what was found: CMake, the shell, the smoke trials, and machines with little on them."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import UnsupportedHostCompilerError
from be_toolchain.machine.local_system import LocalSystem
from tests.support.requirements import OPTIONAL

ROOT = Path(__file__).resolve().parents[3]
needs_nvcc = pytest.mark.needs("nvcc")

CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.18)
project(trial LANGUAGES CXX)
enable_language(CUDA)
add_executable(trial kernel.cu host.cc)
"""
KERNEL = """\
#include <cuda_fp16.h>
#include <cstdio>
int release();
__global__ void scale(float* x) { *x = __half2float(__float2half(*x)); }
int main() { std::printf("linked %d\\n", release()); if (release() < 0) scale<<<1, 1>>>(nullptr); }
"""
HOST = """\
#include <cuda_runtime.h>
int release() { return CUDART_VERSION; }
"""


def toolchain(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own, in an environment of its own."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment = {**inherited, "PYTHONPATH": str(ROOT), **environ}
    command = [sys.executable, "-m", "be_toolchain", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", check=False)


@needs_nvcc
@pytest.mark.needs("cmake")
@pytest.mark.parametrize("prefer", ["pip", "system"])
def test_cmake_builds_cuda_with_the_variables_alone(tmp_path: Path, prefer: str):
    """The shell starts with nothing but cmake's folder: compiler, headers and libraries come from `env`."""
    for name, text in (("CMakeLists.txt", CMAKE_LISTS), ("kernel.cu", KERNEL), ("host.cc", HOST)):
        (tmp_path / name).write_text(text)
    told = toolchain("env", "--shell", "bash", BE_NVCC_PREFER=prefer)
    assert told.returncode == 0, told.stderr
    script = (
        f"{told.stdout}\nset -e\ncmake -S . -B build -DCMAKE_CUDA_ARCHITECTURES=75\ncmake --build build\nbuild/trial\n"
        "grep CMAKE_CUDA_COMPILER: build/CMakeCache.txt\n"
    )
    cmake = shutil.which("cmake")
    assert cmake is not None
    environment = {"PATH": f"{Path(cmake).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "linked 1" in done.stdout
    nvcc = json.loads(toolchain("env", "--shell", "json", BE_NVCC_PREFER=prefer).stdout)["CUDACXX"]
    assert nvcc in done.stdout


def test_smoke_runs_for_real(tmp_path: Path):
    done = toolchain("doctor", "--smoke", "--json", HOME=str(tmp_path))
    report = json.loads(done.stdout)
    outcomes = {trial["name"]: trial["outcome"] for trial in report["smoke"]}
    assert outcomes["C++"] == "ok", report["smoke"]
    assert outcomes["FFI on the CPU"] == "ok", report["smoke"]
    assert "fail" not in outcomes.values(), report["smoke"]
    assert done.returncode == (0 if report["toolchain"]["cuda"] else 1)
    assert list(tmp_path.iterdir()) == []


@needs_nvcc
def test_only_an_unsupported_compiler(tmp_path: Path):
    """A script that claims to be gcc 99 and otherwise works: C++ is fine, CUDA is refused before a compile."""
    gxx = shutil.which("g++")
    assert gxx is not None
    script = tmp_path / "g++"
    script.write_text(
        f'#!/bin/sh\ncase "$1" in -v) echo "Target: x86_64-linux-gnu" >&2; echo "gcc version 99.0.0 (x)" >&2;;\n'
        f'*) exec {gxx} "$@";; esac\n'
    )
    script.chmod(0o755)
    done = toolchain("doctor", "--json", PATH=str(tmp_path), BE_NVCC=str(shutil.which("nvcc")))
    report = json.loads(done.stdout)
    assert (done.returncode, [problem["code"] for problem in report["problems"]]) == (1, ["TC302"])
    assert report["toolchain"]["cxx"]["version"] == "99.0.0"
    forced = toolchain("which", "host", PATH=str(tmp_path), BE_ALLOW_UNSUPPORTED_COMPILER="1", BE_NVCC_PREFER="system")
    assert forced.stdout.strip() == str(script)


@needs_nvcc
def test_only_the_systems_clang(tmp_path: Path):
    """A clang on libstdc++ builds all there is, nvcc's host side included."""
    names = ("clang++", *(f"clang++-{number}" for number in range(20, 6, -1)))
    clang = next((found for name in names if (found := shutil.which(name))), None)
    if clang is None:
        pytest.skip(f"{OPTIONAL}clang++, of a version that nvcc accepts")
    for name, program in (("clang++", clang), ("sh", "sh"), ("rm", "rm"), ("ld", "ld"), ("as", "as")):
        (tmp_path / name).symlink_to(shutil.which(program) or program)
    done = toolchain("doctor", "--smoke", "--json", PATH=str(tmp_path), BE_NVCC=str(shutil.which("nvcc")))
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["smoke"]
    assert report["toolchain"]["cxx"]["family"] == report["toolchain"]["cuda"]["host_compiler"]["family"] == "clang"
    assert {trial["name"]: trial["outcome"] for trial in report["smoke"]}["CUDA"] == "ok"


@needs_nvcc
def test_only_zigs_clang(tmp_path: Path):
    """ziglang's clang++ behind a script: a compiler for C++; nvcc is not given it, since it has libc++."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip(f"{OPTIONAL}ziglang")
    script = tmp_path / "clang++"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m ziglang c++ "$@"\n')
    script.chmod(0o755)
    environ = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    system = LocalSystem({**environ, "BE_NVCC": str(shutil.which("nvcc"))})
    cxx = resolve(system=system).cxx
    assert cxx is not None
    assert (cxx.path, cxx.family) == (script, "clang")
    with pytest.raises(UnsupportedHostCompilerError, match=r"libc\+\+"):
        resolve(ToolchainRequest(need_cuda=True), system=system)


NAMELESS = """
import os, sys
os.setgid(54321), os.setuid(54321)
import pwd
try:
    pwd.getpwuid(os.getuid())
except KeyError:
    pass
else:
    sys.exit("the uid has a name")
from be_toolchain.cli.main import main
code = main(["doctor"])
from pathlib import Path
from be_toolchain import resolve
print(resolve(record_dir=Path(os.environ["HOME"], "records")).cxx.path)
sys.exit(code)
"""


@pytest.mark.skipif(os.getuid() != 0, reason=f"{OPTIONAL}root, to become a user without a name")
@pytest.mark.parametrize("home", ["readonly", "absent"])
def test_a_user_without_a_name_and_a_home_that_cannot_be_written(tmp_path: Path, home: str):
    """For root nothing is read-only; for this user the folder is."""
    folder = tmp_path / "home"
    if home == "readonly":
        folder.mkdir(mode=0o755)
    _let_through(tmp_path)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(folder)}
    command = [_python_for_all(), "-c", NAMELESS]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/", check=False)
    assert done.returncode in (0, 1), done.stderr
    assert "can't be written" in done.stdout
    assert "set BE_CACHE_DIR" in done.stdout
    assert not list(tmp_path.rglob("records"))


@needs_nvcc
def test_a_copy_of_the_toolkit_without_records_still_tells_its_versions(tmp_path: Path):
    """cicc is asked by a translation, CCCL by its headers."""
    nvcc = resolve(ToolchainRequest(need_cuda=True), system=LocalSystem({"PATH": os.environ["PATH"]})).cuda
    assert nvcc is not None
    copy = tmp_path / "cuda"
    shutil.copytree(nvcc.root, copy, copy_function=os.symlink, ignore=_records)
    system = LocalSystem({"PATH": os.environ["PATH"], "BE_NVCC": str(copy)})
    cuda = resolve(ToolchainRequest(need_cuda=True), system=system).cuda
    assert cuda is not None
    told = {part.name: (part.version, part.source) for part in cuda.components}
    real = {part.name: part.version for part in nvcc.components}
    assert told["nvvm"] == (real["nvvm"], "cicc's output")
    assert told["cccl"][1] == "CCCL_VERSION"
    assert told["ptxas"][0] == real["ptxas"]


def _records(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("dist-info", "version.json")]


@pytest.mark.skipif(os.getuid() != 0, reason=f"{OPTIONAL}root, to mount")
@pytest.mark.needs("unshare", "mount")
def test_a_noexec_cache_is_named(tmp_path: Path):
    command = f"mount -t tmpfs -o noexec tmpfs {tmp_path} && exec {sys.executable} -m be_toolchain doctor"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BE_CACHE_DIR": f"{tmp_path}/cache"}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command], env=environment, capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr or "unshare" in done.stderr:
        pytest.skip(f"{OPTIONAL}the right to mount")
    assert "is mounted noexec" in done.stdout
    assert "set BE_CACHE_DIR" in done.stdout


def _python_for_all() -> str:
    """A Python, 3.11 or newer, that a user without rights can start; the doctor needs nothing but its own modules."""
    trial = "import os, sys; os.setuid(54321); import json, tomllib, ctypes, argparse, be_toolchain.cli.main"
    for name in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        if Path(name).exists():
            done = subprocess.run([name, "-c", trial], env={"PYTHONPATH": str(ROOT)}, capture_output=True, check=False)
            if done.returncode == 0:
                return name
    pytest.skip(f"{OPTIONAL}a Python and a checkout that every user may read")


def _let_through(folder: Path) -> None:
    """Let every user pass to a folder of pytest's."""
    for each in (folder, *folder.parents):
        if each == Path("/tmp"):  # noqa: S108 - where to stop
            break
        each.chmod(each.stat().st_mode | 0o055)
