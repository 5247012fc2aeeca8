"""The real machine: its g++, its nvcc, and toolkits in the layouts of other packagings, linked to the real files."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from be_toolchain import CudaToolkit, Toolchain, ToolchainRequest, gencode_flags, resolve
from be_toolchain.errors import CudaNotFoundError, HostCompilerNotFoundError, UnsupportedHostCompilerError
from be_toolchain.known import catalog
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.model import Nvcc

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


def compilers_only(tmp_path: Path) -> Path:
    """A folder with the machine's g++ and what it calls, and nothing else."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("g++", "gcc", "as", "ld", "sh"):
        found = shutil.which(name)
        assert found is not None
        (folder / name).symlink_to(found)
    return folder


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def compile_and_run(toolkit: CudaToolkit, system: LocalSystem, folder: Path) -> str:
    """Build a program from device and host code with nothing but what the toolkit's value says, and start it."""
    source, program = folder / "add.cu", folder / "add"
    source.write_text(VECTOR_ADD)
    command = [str(toolkit.nvcc), "-ccbin", str(toolkit.host_compiler.path), *gencode_flags(toolkit.archs[:1])]
    command += [f"-L{path}" for path in toolkit.library_dirs]
    subprocess.run([*command, str(source), "-o", str(program)], check=True, env=dict(system.environ))
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def resolved_cuda(toolchain: Toolchain) -> CudaToolkit:
    assert toolchain.cuda is not None
    return toolchain.cuda


def nvcc_of(toolkit: CudaToolkit) -> Nvcc:
    assert isinstance(toolkit.compiler, Nvcc)
    return toolkit.compiler


def test_the_compiler_of_this_machine(tmp_path: Path):
    compiler = resolve(system=local(tmp_path)).cxx
    assert compiler is not None
    assert compiler.path.is_absolute()
    banner = subprocess.run([compiler.path, "--version"], capture_output=True, text=True, check=True).stdout
    assert compiler.version in banner
    machine = subprocess.run([compiler.path, "-dumpmachine"], capture_output=True, text=True, check=True).stdout
    assert compiler.target == machine.strip()


def test_a_link_to_a_compiler_is_called_as_the_link(tmp_path: Path):
    folder = compilers_only(tmp_path)
    direct = resolve(system=local(tmp_path)).cxx
    assert direct is not None
    assert resolve(system=local(tmp_path, folder)).cxx == direct._replace(path=folder / "g++")


def test_no_compiler(tmp_path: Path):
    with pytest.raises(HostCompilerNotFoundError, match=r"g\+\+: not on PATH"):
        resolve(system=local(tmp_path, tmp_path))


def test_a_compiler_that_hangs_is_stopped(tmp_path: Path):
    hanging = script(tmp_path / "bin" / "g++", "sleep 60")
    started = time.monotonic()
    result = local(tmp_path).run((str(hanging), "-v"), timeout_s=0.3)
    assert time.monotonic() - started < 10
    assert (result.returncode, result.problem) == (None, "did not finish within 0.3 s")


def test_the_record_notices_an_upgrade(tmp_path: Path):
    fake = 'echo "Target: x86_64-linux-gnu" >&2; echo "gcc version {} (test)" >&2'
    compiler = script(tmp_path / "bin" / "g++", fake.format("12.1.0"))
    system = local(tmp_path, compiler.parent)
    records = tmp_path / "records"

    def version() -> str:
        found = resolve(system=system, record_dir=records).cxx
        assert found is not None
        return found.version

    assert version() == version() == "12.1.0"
    script(compiler, fake.format("12.10.0"))
    assert version() == "12.10.0"


@needs_nvcc
def test_this_machines_nvcc_compiles(tmp_path: Path):
    system = local(tmp_path)
    toolkit = resolved_cuda(resolve(CUDA, system=system))
    assert toolkit.nvcc is not None
    assert toolkit.nvcc.samefile(toolkit.root / "bin" / "nvcc")
    assert toolkit.nvcc_version.startswith(f"{toolkit.release}.")
    assert compile_and_run(toolkit, system, tmp_path) == "linked"


def real_root(tmp_path: Path) -> Path:
    return resolved_cuda(resolve(CUDA, system=local(tmp_path))).root.resolve()


def link_into(target: Path, *sources: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for source in sources:
        (target / source.name).symlink_to(source)


def pip_layout(site: Path, tmp_path: Path, nvvm: str = "") -> Path:
    """The real toolkit under the wheels' folders: no targets/, no lib64, no unversioned libcudart.so."""
    real = resolved_cuda(resolve(CUDA, system=local(tmp_path)))
    root = site / "nvidia" / "cu13"
    link_into(root / "bin", *real.ptxas.resolve().parent.iterdir())
    link_into(root / "nvvm" / "bin", nvcc_of(real).cicc)
    link_into(root / "nvvm" / "libdevice", real.libdevice)
    (root / "include").symlink_to(real.include_dirs[0])
    assert real.cudart_static is not None
    link_into(root / "lib", real.cudart_static, real.cudart_static.parent / "libcudadevrt.a")
    for name, version in (("cuda_nvcc", real.nvcc_version), ("nvvm", nvvm or real.nvcc_version)):
        (site / f"nvidia_{name}-{version}.dist-info").mkdir()
    return root


class WithSites(LocalSystem):
    """The machine with other site-packages folders."""

    def __init__(self, site: Path, system: LocalSystem) -> None:
        super().__init__(system.environ)
        self.site_dirs = (site,)


@needs_nvcc
def test_the_wheels_layout_compiles_with_the_system_toolkit_hidden(tmp_path: Path):
    root = pip_layout(tmp_path / "site-packages", tmp_path)
    system = WithSites(tmp_path / "site-packages", local(tmp_path, compilers_only(tmp_path)))
    toolkit = resolved_cuda(resolve(CUDA, system=system))
    assert (toolkit.found_via, toolkit.layout, toolkit.root) == ("pip wheels", "pip", root)
    assert toolkit.library_dirs == (root / "lib",)
    assert compile_and_run(toolkit, system, tmp_path) == "linked"


@needs_nvcc
def test_mixed_wheels_are_rejected_before_a_compile(tmp_path: Path):
    root = pip_layout(tmp_path / "site-packages", tmp_path, nvvm="99.5.1")
    system = WithSites(tmp_path / "site-packages", local(tmp_path, BE_NVCC=str(root / "bin" / "nvcc")))
    with pytest.raises(CudaNotFoundError, match=r"nvvm 99\.5\.1[\s\S]*pip install"):
        resolve(CUDA, system=system)


@needs_nvcc
def test_condas_layout_compiles_not_activated(tmp_path: Path):
    real = resolved_cuda(resolve(CUDA, system=local(tmp_path)))
    prefix = tmp_path / "conda"
    target = prefix / "targets" / f"{os.uname().machine}-linux".replace("aarch64", "sbsa")
    (prefix / "conda-meta").mkdir(parents=True)
    link_into(prefix / "bin", *real.ptxas.resolve().parent.iterdir())
    link_into(prefix / "nvvm" / "bin", nvcc_of(real).cicc)
    link_into(prefix / "nvvm" / "libdevice", real.libdevice)
    assert real.cudart_static is not None
    link_into(target / "lib", real.cudart_static, real.cudart_static.parent / "libcudadevrt.a")
    (target / "include").symlink_to(real.include_dirs[0])
    (target / "bin").mkdir()
    (target / "bin" / "nvcc").symlink_to(prefix / "bin" / "nvcc")
    system = local(tmp_path, compilers_only(tmp_path), BE_NVCC=str(target / "bin" / "nvcc"))

    toolkit = resolved_cuda(resolve(CUDA, system=system))

    assert toolkit.nvcc_version == real.nvcc_version
    assert compile_and_run(toolkit, system, tmp_path) == "linked"


@needs_nvcc
def test_a_wrapper_and_a_bare_link_lead_to_the_root(tmp_path: Path):
    root = real_root(tmp_path)
    wrapper = script(tmp_path / "wrapped" / "nvcc", f'exec {root}/bin/nvcc "$@"')
    link_into(tmp_path / "linked", root / "bin" / "nvcc")
    for folder in (wrapper.parent, tmp_path / "linked"):
        searched = local(tmp_path, folder, Path("/usr/bin"), Path("/bin"), BE_NVCC_PREFER="path")
        toolkit = resolved_cuda(resolve(CUDA, system=searched))
        assert (toolkit.root, toolkit.found_via) == (root, "PATH")


@needs_nvcc
def test_an_unsupported_compiler_is_named_with_one_that_fits(tmp_path: Path):
    too_new = script(tmp_path / "new" / "g++", 'echo "Target: x" >&2; echo "gcc version 99.1.0 (test)" >&2')
    with pytest.raises(UnsupportedHostCompilerError, match=r"99\.1\.0 is newer[\s\S]*is here and fits: BE_CXX="):
        resolve(CUDA, system=local(tmp_path, BE_CXX=str(too_new)))
    toolkit = resolved_cuda(resolve(CUDA, system=local(tmp_path, too_new.parent, *_path())))
    assert toolkit.host_compiler.path != too_new


def _path() -> tuple[Path, ...]:
    return tuple(Path(entry) for entry in os.environ["PATH"].split(":"))


@needs_nvcc
def test_flags_in_the_environment_do_not_disturb_the_search(tmp_path: Path):
    system = local(tmp_path, NVCC_PREPEND_FLAGS="--no-such-flag", NVCC_APPEND_FLAGS="-arch=sm_1", PTXAS_FLAGS="-v")
    toolchain = resolve(CUDA, system=system)
    assert dict(toolchain.environment)["NVCC_PREPEND_FLAGS"] == "--no-such-flag"
    assert resolved_cuda(toolchain).release


def test_the_command_line(tmp_path: Path):
    command = [sys.executable, "-m", "be_toolchain", "which", "cxx"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert Path(done.stdout.strip()).is_file()


@needs_nvcc
@pytest.mark.parametrize(
    "name",
    [
        "NVCC_PREPEND_FLAGS",
        "NVCC_APPEND_FLAGS",
        "INCLUDES",
        "SYSTEM_INCLUDES",
        "LIBRARIES",
        "CUDAFE_FLAGS",
        "PTXAS_FLAGS",
    ],
)
def test_nvcc_honours_the_variables_that_count_as_changing_a_compile(tmp_path: Path, name: str):
    toolkit = resolved_cuda(resolve(CUDA, system=local(tmp_path)))
    command = (str(toolkit.nvcc), "--dryrun", "-ccbin", str(toolkit.host_compiler.path), "x.cu")
    text = local(tmp_path, **{name: "-I/marked"}).run(command).text
    commands = [line for line in text.splitlines() if not re.match(r"#\$ \w+=", line)]
    assert any("/marked" in line for line in commands)
    assert name in catalog.COMPILE_VARIABLES
