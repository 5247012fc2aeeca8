"""The real machine: its compilers, other packagings' layouts of the real files, and what other programs do with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from be_toolchain import CudaToolkit, ToolchainRequest, gencode_flags, resolve
from be_toolchain.known import layouts
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.values import Nvcc
from tests.support.accounts import ME, needs_root, open_place, run_as
from tests.support.machines import cuda_of
from tests.support.requirements import OPTIONAL, in_full

__all__ = ["open_place"]  # a fixture

ROOT = Path(__file__).resolve().parents[3]
CUDA = ToolchainRequest(need_cuda=True)
needs_nvcc = pytest.mark.needs("nvcc")

VECTOR_ADD = """
#include <cuda_fp16.h>
#include <cstdio>
__global__ void add(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + __half2float(__float2half(b[i]));
}
int main() { add<<<1, 1>>>(nullptr, nullptr, nullptr, 0); std::puts("linked"); }
"""


def local(tmp_path: Path, *path: Path, **environ: str) -> LocalSystem:
    """The machine with a PATH of its own, and no other setting of the user's."""
    folders = path or tuple(Path(entry) for entry in os.environ["PATH"].split(":"))
    return LocalSystem({"PATH": ":".join(map(str, folders)), "HOME": str(tmp_path), **environ})


def compilers_only(tmp_path: Path, *names: str) -> Path:
    """A folder with the machine's g++ and what it calls, or other programs, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in names or ("g++", "gcc", "as", "ld", "sh"):
        (folder / name.partition("-")[0]).symlink_to(str(shutil.which(name)))
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_the_compiler_of_this_machine(tmp_path: Path):
    compiler = resolve(system=local(tmp_path)).cxx
    assert compiler is not None
    assert compiler.path.is_absolute()
    banner = subprocess.run([compiler.path, "--version"], capture_output=True, text=True, check=True).stdout
    assert compiler.version in banner
    machine = subprocess.run([compiler.path, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    assert compiler.target == machine.strip()

    folder = compilers_only(tmp_path)
    linked = resolve(system=local(tmp_path, folder)).cxx
    assert linked == compiler._replace(path=folder / "g++"), "a link is called as the link"


def test_a_compiler_that_hangs_is_stopped(tmp_path: Path):
    hanging = script(tmp_path / "g++", "exec sleep 600")
    result = local(tmp_path).run((str(hanging), "-v"), timeout_s=0.3)
    assert (result.returncode, result.problem) == (None, "did not finish within 0.3 s")


def link_into(target: Path, *sources: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        (target / source.name).symlink_to(source)


def lay_out(real: CudaToolkit, root: Path, target: Path) -> None:
    """The real toolkit's files in two folders: no targets/, no lib64 and no unversioned libcudart.so in them."""
    assert isinstance(real.compiler, Nvcc)
    assert real.cudart_static is not None
    link_into(root / "bin", *real.ptxas.resolve().parent.iterdir())
    link_into(root / "nvvm" / "bin", real.compiler.cicc)
    link_into(root / "nvvm" / "libdevice", real.libdevice)
    link_into(target / "lib", real.cudart_static, real.cudart_static.parent / "libcudadevrt.a")
    (target / "include").symlink_to(real.include_dirs[0])


@needs_nvcc
@pytest.mark.parametrize("layout", [in_full("as it is"), "wheels", in_full("conda")])
def test_a_layout_compiles_with_no_other_toolkit_in_sight(tmp_path: Path, layout: str):
    """Device and host code are built with nothing but what the toolkit's value says, and the program is started."""
    system = local(tmp_path)
    real = toolkit = cuda_of(system)
    assert real.nvcc is not None
    assert real.nvcc.samefile(real.root / "bin" / "nvcc")
    assert real.nvcc_version.startswith(f"{real.release}.")
    if layout == "wheels":
        site = tmp_path / "site-packages"
        root = site / "nvidia" / "cu13"
        lay_out(real, root, root)
        for name in ("cuda_nvcc", "nvvm"):
            (site / f"nvidia_{name}-{real.nvcc_version}.dist-info").mkdir()
        system = local(tmp_path, compilers_only(tmp_path))
        system.site_dirs = (site,)
        toolkit = cuda_of(system)
        assert (toolkit.found_via, toolkit.layout, toolkit.root) == ("pip wheels", "pip", root)
        assert toolkit.library_dirs == (root / "lib",)
    elif layout == "conda":
        prefix = tmp_path / "conda"
        target = prefix / "targets" / f"{os.uname().machine}-linux".replace("aarch64", "sbsa")
        lay_out(real, prefix, target)
        (prefix / "conda-meta").mkdir()
        (prefix / "conda-meta" / "history").touch()
        (target / "bin").mkdir()
        (target / "bin" / "nvcc").symlink_to(prefix / "bin" / "nvcc")
        system = local(tmp_path, compilers_only(tmp_path), BE_NVCC=str(target / "bin" / "nvcc"))
        toolkit = cuda_of(system)
        assert toolkit.nvcc_version == real.nvcc_version
    (tmp_path / "add.cu").write_text(VECTOR_ADD)
    command = [str(toolkit.nvcc), "-ccbin", str(toolkit.host_compiler.path), *gencode_flags(toolkit.archs[:1])]
    command += [f"-L{path}" for path in toolkit.library_dirs]
    subprocess.run([*command, "add.cu", "-o", "add"], check=True, env=dict(system.environ), cwd=tmp_path)
    assert subprocess.run([tmp_path / "add"], capture_output=True, check=True).stdout == b"linked\n"


@needs_nvcc
def test_a_wrapper_and_a_bare_link_lead_to_the_root(tmp_path: Path):
    root = cuda_of(local(tmp_path)).root.resolve()
    wrapper = script(tmp_path / "wrapped" / "nvcc", f'exec {root}/bin/nvcc "$@"')
    link_into(tmp_path / "linked", root / "bin" / "nvcc")
    for folder in (wrapper.parent, tmp_path / "linked"):
        toolkit = cuda_of(local(tmp_path, folder, Path("/usr/bin"), Path("/bin"), BE_NVCC_PREFER="path"))
        assert (toolkit.root, toolkit.found_via) == (root, "PATH")


@needs_nvcc
def test_flags_in_the_environment_do_not_disturb_the_search(tmp_path: Path):
    system = local(tmp_path, NVCC_PREPEND_FLAGS="--no-such-flag", NVCC_APPEND_FLAGS="-arch=sm_1", PTXAS_FLAGS="-v")
    toolchain = resolve(CUDA, system=system)
    assert dict(toolchain.environment)["NVCC_PREPEND_FLAGS"] == "--no-such-flag"
    assert toolchain.cuda is not None


@needs_nvcc
def test_nvcc_honours_the_variables_that_count_as_changing_a_compile(tmp_path: Path):
    toolkit = cuda_of(local(tmp_path))
    command = (str(toolkit.nvcc), "--dryrun", "-ccbin", str(toolkit.host_compiler.path), "x.cu")
    names = {"NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "CUDAFE_FLAGS", "PTXAS_FLAGS"}
    names |= {"INCLUDES", "SYSTEM_INCLUDES", "LIBRARIES"}
    assert names <= set(layouts.COMPILE_VARIABLES)
    for name in names:
        text = local(tmp_path, **{name: "-I/marked"}).run(command).text
        commands = [line for line in text.splitlines() if not re.match(r"#\$ \w+=", line)]
        assert any("/marked" in line for line in commands), name


CMAKE_LISTS = """\
cmake_minimum_required(VERSION 3.18)
project(trial LANGUAGES CXX)
enable_language(CUDA)
add_executable(trial add.cu host.cc)
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
@pytest.mark.parametrize("prefer", [in_full("pip"), in_full("system")])
def test_cmake_builds_cuda_with_the_variables_alone(tmp_path: Path, prefer: str):
    """The shell starts with nothing but cmake's folder: compiler, headers and libraries come from `env`."""
    for name, text in (("CMakeLists.txt", CMAKE_LISTS), ("add.cu", VECTOR_ADD), ("host.cc", HOST)):
        (tmp_path / name).write_text(text)
    told = toolchain("env", "--shell", "bash", BE_NVCC_PREFER=prefer)
    assert told.returncode == 0, told.stderr
    script = (
        f"{told.stdout}\nset -e\ncmake -S . -B build -DCMAKE_CUDA_ARCHITECTURES=75\ncmake --build build\nbuild/trial\n"
        "grep CMAKE_CUDA_COMPILER: build/CMakeCache.txt\n"
    )
    environment = {"PATH": f"{Path(str(shutil.which('cmake'))).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    command = ["/bin/sh", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "linked" in done.stdout
    assert json.loads(toolchain("env", "--shell", "json", BE_NVCC_PREFER=prefer).stdout)["CUDACXX"] in done.stdout


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
def test_only_the_systems_clang(tmp_path: Path):
    """A clang on libstdc++ builds all there is, nvcc's host side included."""
    names = ("clang++", *(f"clang++-{number}" for number in range(20, 6, -1)))
    clang = next((found for name in names if (found := shutil.which(name))), None)
    if clang is None:
        pytest.skip(f"{OPTIONAL}clang++, of a version that nvcc accepts")
    folder = compilers_only(tmp_path, Path(clang).name, "sh", "rm", "ld", "as")
    done = toolchain("doctor", "--smoke", "--json", PATH=str(folder), BE_NVCC=str(shutil.which("nvcc")))
    report = json.loads(done.stdout)
    assert done.returncode == 0, report["smoke"]
    assert report["toolchain"]["cxx"]["family"] == report["toolchain"]["cuda"]["host_compiler"]["family"] == "clang"
    assert {trial["name"]: trial["outcome"] for trial in report["smoke"]}["CUDA"] == "ok"


NAMELESS = """
os.environ["HOME"] = {home!r}
try:
    pwd.getpwuid(os.getuid())
except KeyError:
    pass
else:
    sys.exit("the uid has a name")
code = cli.main(["doctor"])
print(resolver.resolve(record_dir=local_system.Path(os.environ["HOME"], "records")).cxx.path)
sys.exit(code)
"""


@needs_root
def test_a_user_without_a_name_and_a_home_that_cannot_be_written(open_place: Path):
    """For root nothing is read-only; for this user the folder is."""
    (open_place / "readonly").mkdir()
    for home in ("readonly", "absent"):
        done = run_as(ME, NAMELESS.format(home=str(open_place / home)), open_place)
        assert done.returncode in (0, 1), done.stderr
        assert "can't be written" in done.stdout
        assert "set BE_CACHE_DIR" in done.stdout
    assert not list(open_place.rglob("records"))


@needs_nvcc
def test_a_copy_of_the_toolkit_without_records_still_tells_its_versions(tmp_path: Path):
    """cicc is asked by a translation, CCCL by its headers."""
    real = cuda_of(LocalSystem({"PATH": os.environ["PATH"]}))
    copy = tmp_path / "cuda"
    shutil.copytree(
        real.root, copy, copy_function=os.symlink, ignore=shutil.ignore_patterns("dist-info", "version.json")
    )
    copied = cuda_of(LocalSystem({"PATH": os.environ["PATH"], "BE_NVCC": str(copy)}))
    told = {part.name: (part.version, part.source) for part in copied.components}
    versions = {part.name: part.version for part in real.components}
    assert told["nvvm"] == (versions["nvvm"], "cicc's output")
    assert told["cccl"][1] == "CCCL_VERSION"
    assert told["ptxas"][0] == versions["ptxas"]
