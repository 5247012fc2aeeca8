"""The CUDA 12 wheels joined for clang, and what else has to know that there is no nvcc."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.cli.shell import shell_variables
from be_toolchain.find.devices import probe_devices
from be_toolchain.install.clang_tree import join_wheels, try_clang
from be_toolchain.known.fatbin import Image, render_fatbin
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.model import Toolchain
from be_toolchain.report.smoke import run_smoke
from tests.support.machines import Libcuda, MemorySystem

VERSIONS = {"nvidia-cuda-nvcc-cu12": "12.9.86", "nvidia-cuda-runtime-cu12": "12.9.79"}
FILES = (
    "cuda_nvcc/bin/ptxas",
    "cuda_nvcc/include/crt/host_config.h",
    "cuda_nvcc/nvvm/libdevice/libdevice.10.bc",
    "cuda_runtime/include/__init__.py",
    "cuda_runtime/include/cuda_runtime.h",
    "cuda_runtime/include/crt/device.h",
    "cuda_runtime/lib/libcudart_static.a",
    "cuda_cccl/include/nv/target",
    "cuda_cccl/lib/cmake/cccl.cmake",
)
ROOT = "/home/ada/.local/share/be_toolchain/toolchains/cuda-12.9.2/nvidia/cu12"


def wheels(folder: Path) -> Path:
    for name in FILES:
        path = folder / "nvidia" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return folder


def machine() -> MemorySystem:
    made = MemorySystem(environ={"PATH": "/usr/bin", "HOME": "/home/ada"})
    made.gxx("/usr/bin/g++")
    made.clang("/usr/bin/clang++-19")
    made.joined_cu12()
    return made


def toolchain(made: MemorySystem) -> Toolchain:
    return resolve(ToolchainRequest(need_cuda=True), system=made)


def test_one_folder_has_what_all_wheels_have(tmp_path: Path):
    root = join_wheels(wheels(tmp_path), VERSIONS)
    assert root == tmp_path / "nvidia" / "cu12"
    for name in FILES:
        part = name.partition("/")[2]
        if not part.endswith("__init__.py"):
            assert (root / part).read_text() == name
    assert not (root / "include" / "__init__.py").exists()
    assert (root / "lib64" / "libcudart_static.a").is_file()
    assert json.loads((root / "version.json").read_text())["nvidia-cuda-nvcc-cu12"]["version"] == "12.9.86"


def test_it_can_be_moved_and_the_wheels_stay_whole(tmp_path: Path):
    tree = wheels(tmp_path / "staging")
    join_wheels(tree, VERSIONS)
    tree.rename(tmp_path / "published")
    root = tmp_path / "published" / "nvidia" / "cu12"
    assert (root / "include" / "cuda_runtime.h").read_text() == "cuda_runtime/include/cuda_runtime.h"
    assert not (root.parent / "cuda_runtime" / "include" / "curand_mtgp32_kernel.h").exists()


def test_curand_s_own_header_is_not_replaced(tmp_path: Path):
    (wheels(tmp_path) / "nvidia" / "cuda_runtime" / "include" / "curand_mtgp32_kernel.h").write_text("the real one")
    root = join_wheels(tmp_path, VERSIONS)
    assert (root / "include" / "curand_mtgp32_kernel.h").read_text() == "the real one"
    without = join_wheels(wheels(tmp_path / "without"), VERSIONS)
    assert "#" not in (without / "include" / "curand_mtgp32_kernel.h").read_text()


def test_its_fatbinary_packs(tmp_path: Path):
    root = join_wheels(wheels(tmp_path), VERSIONS)
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


def test_cxx_stays_the_compiler_for_cxx_kernels():
    found = toolchain(machine())
    assert found.cxx is not None
    assert found.cuda is not None
    assert (str(found.cxx.path), str(found.cuda.host_compiler.path)) == ("/usr/bin/g++", "/usr/bin/clang++-19")


def test_the_record_keeps_it(tmp_path: Path):
    made = machine()
    request = ToolchainRequest(need_cuda=True)
    first = resolve(request, system=made, record_dir=tmp_path)
    made.commands.clear()
    assert resolve(request, system=made, record_dir=tmp_path) == first
    assert made.commands == []
    made.touch("/usr/bin/clang++-19")
    resolve(request, system=made, record_dir=tmp_path)
    assert made.commands


def test_other_tools_get_clang():
    variables = dict(shell_variables(toolchain(machine()), {}))
    assert variables["CUDACXX"] == "/usr/bin/clang++-19"
    assert variables["CUDA_HOME"] == ROOT
    assert variables["PATH"] == f"{ROOT}/bin"
    assert "CUDAHOSTCXX" not in variables


def test_the_trial_compiles_with_clang():
    made = machine()
    made.libraries["libcuda.so.1"] = Libcuda(gpus=(("H200", 9, 0),), version=12090)
    run_smoke(toolchain(made), probe_devices(made), made, jax=False)
    (command,) = [argv for argv in made.commands if "--cuda-gpu-arch=sm_90" in argv]
    assert command[0] == "/usr/bin/clang++-19"
    assert {f"--cuda-path={ROOT}", "-lcudart_static", f"-L{ROOT}/lib"} <= set(command)
