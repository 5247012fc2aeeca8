"""The CUDA 12 wheels joined for clang, and what else has to know that there is no nvcc."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.cli.main import shell_variables
from be_toolchain.doctor.smoke import run_smoke
from be_toolchain.find.devices import probe_devices
from be_toolchain.install.compilers import join_wheels, try_clang
from be_toolchain.known.fatbin import Image, render_fatbin
from be_toolchain.machine.local_system import LocalSystem
from tests.support.machines import Libcuda, MemorySystem, cuda_of, with_compiler

VERSIONS = {"nvidia-cuda-nvcc-cu12": "12.9.86", "nvidia-cuda-runtime-cu12": "12.9.79"}
FILES = (
    *("cuda_nvcc/bin/ptxas", "cuda_nvcc/include/crt/host_config.h", "cuda_nvcc/nvvm/libdevice/libdevice.10.bc"),
    *("cuda_runtime/include/__init__.py", "cuda_runtime/include/cuda_runtime.h", "cuda_runtime/include/crt/device.h"),
    *("cuda_runtime/lib/libcudart_static.a", "cuda_cccl/include/nv/target", "cuda_cccl/lib/cmake/cccl.cmake"),
)
CURAND = "include/curand_mtgp32_kernel.h"
ROOT = "/home/ada/.local/share/be_toolchain/toolchains/cuda-12.9.2/nvidia/cu12"
CLANG = "/usr/bin/clang++-19"


def joined(folder: Path, *more: str) -> Path:
    """Wheels whose files hold their own names, in one folder."""
    for name in (*FILES, *more):
        path = folder / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return join_wheels(folder, VERSIONS)


def test_one_folder_has_what_all_wheels_have_and_can_be_moved(tmp_path: Path):
    assert joined(tmp_path / "staging") == tmp_path / "staging" / "nvidia" / "cu12"
    (tmp_path / "staging").rename(tmp_path / "published")
    root = tmp_path / "published" / "nvidia" / "cu12"
    parts = {name: name.partition("/")[2] for name in FILES if not name.endswith("__init__.py")}
    assert {name: (root / part).read_text() for name, part in parts.items()} == {name: name for name in parts}
    assert not (root / "include" / "__init__.py").exists()
    assert (root / "lib64" / "libcudart_static.a").is_file()
    assert json.loads((root / "version.json").read_text())["nvidia-cuda-nvcc-cu12"]["version"] == "12.9.86"
    assert not (root.parent / "cuda_runtime" / CURAND).exists(), "the wheels stay whole"
    assert "#" not in (root / CURAND).read_text()


def test_curand_s_own_header_is_not_replaced(tmp_path: Path):
    own = f"cuda_runtime/{CURAND}"
    assert (joined(tmp_path, own) / CURAND).read_text() == own


def test_its_fatbinary_packs(tmp_path: Path):
    root = joined(tmp_path)
    ptx = b".version 8.5\n.target sm_90\n"
    (tmp_path / "a.s").write_bytes(ptx)
    command = (str(root / "bin" / "fatbinary"), "-64", "--create", "a.fatbin", "--image=profile=compute_90,file=a.s")
    subprocess.run(command, cwd=tmp_path, check=True)
    assert (tmp_path / "a.fatbin").read_bytes() == render_fatbin((Image("ptx", "90", ptx),))


def test_a_clang_that_fails_is_told_of(tmp_path: Path):
    clang = tmp_path / "clang++"
    clang.write_text("#!/bin/sh\necho \"$@\"; echo 'error: no such texture' >&2; exit 1\n")
    clang.chmod(0o755)
    told = try_clang(str(clang), tmp_path / "root", tmp_path, LocalSystem())
    assert "no such texture" in told
    assert f"--cuda-path={tmp_path / 'root'}" in told
    clang.write_text("#!/bin/sh\nexit 0\n")
    assert try_clang(str(clang), tmp_path / "root", tmp_path, LocalSystem()) == ""


@pytest.fixture
def machine() -> MemorySystem:
    made = with_compiler(HOME="/home/ada")
    made.clang(CLANG)
    made.joined_cu12()
    return made


def test_the_search_the_record_other_tools_and_the_trial_know_it(machine: MemorySystem, tmp_path: Path):
    request = ToolchainRequest(need_cuda=True)
    found = resolve(request, system=machine, record_dir=tmp_path)
    assert str(cuda_of(machine).host_compiler.path) == CLANG
    machine.commands.clear()
    assert resolve(request, system=machine, record_dir=tmp_path) == found
    assert machine.commands == []
    machine.touch(CLANG)
    resolve(request, system=machine, record_dir=tmp_path)
    assert machine.commands

    variables = dict(shell_variables(found, {}))
    wanted = {"CXX": "/usr/bin/g++", "CUDACXX": CLANG, "CUDA_HOME": ROOT, "PATH": f"{ROOT}/bin", "CUDAHOSTCXX": None}
    assert {name: variables.get(name) for name in wanted} == wanted

    machine.libraries["libcuda.so.1"] = Libcuda(gpus=(("H200", 9, 0),), version=12090)
    run_smoke(found, probe_devices(machine), machine, jax=False)
    (command,) = [argv for argv in machine.commands if "--cuda-gpu-arch=sm_90" in argv]
    assert command[0] == CLANG
    assert {f"--cuda-path={ROOT}", "-lcudart_static", f"-L{ROOT}/lib"} <= set(command)
