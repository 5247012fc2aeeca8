"""CUDA 12 without nvcc: its wheels really installed for clang, or for NVRTC alone, and kernels compiled with them."""

from __future__ import annotations

import ctypes
import json
from dataclasses import replace
from pathlib import Path

import pytest

import be_runtime
from be_runtime.errors import BuildError
from be_runtime.kernels import nvrtc
from be_runtime.kernels.launcher import Compiled
from be_runtime.kernels.raw_compiler import RawKernel, compile_raw, parse_name
from be_runtime.load.process import PROCESS
from be_toolchain.arch import Arch
from be_toolchain.errors import ArchError, CudaNotFoundError
from be_toolchain.find.clang import find_clang
from be_toolchain.find.compilers import Compilers
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.settings import Preferences
from tests.support import cuda, requirements
from tests.support.fresh_environments import Environment, make_environment
from tests.support.machines import cuda_of

pytestmark = [pytest.mark.full, pytest.mark.xdist_group("toolchain-cuda12")]

RELEASE = "cuda-toolkit[nvcc,cudart,cccl]==12.9.2"
ADD = """
#include <cuda_runtime.h>
#include "brainevent/common.h"

template <class T>
__global__ void add_kernel(const T* a, const T* b, T* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

// @BE add
void add(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, int64_t stream) {
  const int n = out.numel_checked_int();
  add_kernel<float><<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(a.data_ptr<float>(), b.data_ptr<float>(),
                                                                       out.data_ptr<float>(), n);
}
"""


@pytest.fixture(scope="module")
def clang() -> Path:
    """A clang of this machine that compiles CUDA 12."""
    system = LocalSystem()
    probes, found = find_clang(system, Compilers(system, Preferences(), None).each(for_cuda=True))
    if found is None:
        pytest.skip(f"{requirements.OPTIONAL}a clang for CUDA ({'; '.join(probe.reason for probe in probes)})")
    return found.compiler.path


@pytest.fixture(scope="module")
def installed(clang: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """A fresh environment, with CUDA 12.9 in its store."""
    fresh = replace(make_environment(tmp_path_factory.mktemp("fresh")), path=f"/usr/bin:/bin:{clang.parent}")
    wheels = tmp_path_factory.mktemp("cu12")
    fresh.pip("download", "--dest", wheels, RELEASE)
    install = ("install", "--cuda", "12.9", "--wheels", wheels)
    code, text = fresh.run(*install, "--dry-run", "--json")
    (plan,) = json.loads(text)["plans"]
    assert (code, plan["kind"], plan["version"], plan["into"]) == (0, "cuda-clang", "12.9.2", "managed")
    wanted = {f"nvidia-cuda-{part}-cu12" for part in ("nvcc", "runtime", "cccl")}
    assert {wheel["name"] for wheel in plan["wheels"]} == wanted
    assert all(wheel["hashes"] for wheel in plan["wheels"])
    code, text = fresh.run(*install, "--yes")
    assert code == 0, text
    return fresh


@pytest.fixture
def chosen(installed: Environment, clang: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes load functions use it, and no nvcc: none is on PATH, and the toolkit is named."""
    monkeypatch.setenv("PATH", installed.path)
    monkeypatch.setenv("BE_NVCC", str(cuda_of(installed.system).root))
    monkeypatch.setenv("BE_CXX", str(clang))
    for name in ("CUDA_HOME", "CUDA_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"):
        monkeypatch.delenv(name, raising=False)


def images(module: be_runtime.CompiledModule) -> list[tuple[str, int]]:
    return [(image.kind, image.arch) for image in cuda.device_code(module.path)]


def test_it_is_found_and_verified(installed: Environment, clang: Path):
    toolkit = cuda_of(installed.system)
    assert toolkit.root == installed.store / "cuda-12.9.2" / "nvidia" / "cu12"
    assert (toolkit.nvcc, toolkit.release, toolkit.host_compiler.path) == (None, "12.9", clang)
    assert all(part.version.startswith("12.9.") for part in toolkit.components)
    assert installed.run("list", "--verify")[0] == 0
    assert "is already installed" in installed.run("install", "--cuda", "12.9", "--dry-run")[1]


@pytest.mark.parametrize("launcher", ["", "env"], ids=["in parts", "as a whole"])
def test_kernels_compile_without_nvcc(chosen: None, monkeypatch: pytest.MonkeyPatch, launcher: str):
    """Clang as a whole packs with our fatbinary."""
    monkeypatch.setenv("BE_COMPILER_LAUNCHER", launcher)
    module = be_runtime.load_cuda_inline("add", ADD, compute_capability="9.0", auto_register=False)
    assert images(module) == [("elf", 90), ("ptx", 90)]
    log = (module.path.parent / "build.log").read_text()
    assert ("--cuda-device-only" in log) == (not launcher)
    assert "-isystem" in log
    assert not any(word in log for word in ("nvcc ", "/usr/local/cuda", "nvidia/cu13"))
    ctypes.CDLL(str(module.path))  # registers its images with the CUDA runtime, which needs no driver


def test_our_device_headers_compile(chosen: None):
    events = cuda.source("events")
    module = be_runtime.load_cuda_inline("events", events, compute_capability="8.0,9.0", auto_register=False)
    assert images(module) == [("elf", 80), ("elf", 90), ("ptx", 90)]


def test_a_folder_whose_files_share_names(chosen: None, tmp_path: Path):
    for index in range(2):
        text = ADD.replace("// @BE add", f"// @BE add_{index}").replace("void add(", f"void add_{index}(")
        (tmp_path / f"part_{index}.cu").write_text(text)
    module = be_runtime.load_cuda_dir(tmp_path, name="two", compute_capability="9.0", auto_register=False)
    assert module.function_names == ["add_0", "add_1"]
    assert images(module) == [("elf", 90), ("ptx", 90)] * 2


def test_an_author_s_mistake_is_shown_as_clang_says_it_and_unknown_architectures_are_named(chosen: None):
    with pytest.raises(BuildError) as caught:
        be_runtime.load_cuda_inline("wrong", f"{ADD}\nint x = nothing;", compute_capability="9.0")
    message, line, caret = caught.value.first_error.splitlines()
    assert message == "wrong:18:9: error: use of undeclared identifier 'nothing'"
    assert line.endswith("int x = nothing;")
    assert caret.endswith("^")

    with pytest.raises(ArchError, match=r"clang [\d.]+ with CUDA 12\.9 cannot target sm_999"):
        be_runtime.load_cuda_inline("add", ADD, compute_capability="sm_999")


SCALE = """
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
template <class T, int N> __global__ void scale(const T* x, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = T(N) * x[i];
}
"""
COOPERATIVE = "#include <cooperative_groups.h>\n#include <cuda/std/array>\n__global__ void f(float* y) { y[0] = 1; }"


def test_with_what_jax_brings_nvrtc_compiles_raw_kernels_and_says_which_wheel_a_header_is_in(tmp_path: Path):
    environment = make_environment(tmp_path)
    wheels = [f"nvidia-cuda-{part}-cu12==12.9.*" for part in ("nvcc", "runtime", "nvrtc")]
    environment.pip("install", "--no-deps", *wheels)

    def compiled(source: str, name: str) -> Compiled:
        session = PROCESS.session()._replace(system=environment.system, record_dir=tmp_path / "record")
        return compile_raw(RawKernel(source, parse_name(name)), (Arch(9, 0),), session, tmp_path)

    with pytest.raises(CudaNotFoundError):
        cuda_of(environment.system)
    found = nvrtc.find_nvrtc(environment.system)
    assert found is not None
    assert found.version == (12, 9)
    assert found.path.is_relative_to(environment.site)
    made = compiled(SCALE, "scale<__half, 3>")
    (image,) = made.images
    assert image.data.startswith(b"\x7fELF")
    assert image.entry.startswith("_Z5scaleI6__halfLi3EE")
    assert f".text.{image.entry}".encode() in image.data
    read = {str(Path(path).relative_to(environment.site / "nvidia")) for path in made.read.dependencies}
    assert {"cuda_runtime/include/cuda_fp16.h", "cuda_nvcc/include/crt/mma.h"} <= read

    with pytest.raises(BuildError) as raised:
        compiled(COOPERATIVE, "f")
    needed = "nvidia-cuda-cccl-cu12==12.9.*"
    assert raised.value.hints[0] == f"pip install '{needed}' brings nv/target"
    environment.pip("install", "--no-deps", needed)
    assert compiled(COOPERATIVE, "f").images[0].entry == "_Z1fPf"
