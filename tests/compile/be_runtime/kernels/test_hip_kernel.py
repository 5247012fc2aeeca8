"""HIP kernels become code objects of AMD GPUs, once; nothing launches them, and the error says so."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import be_runtime
from be_runtime.errors import BuildError, LoadError
from be_runtime.kernels.hip import build_hip, compile_hip
from be_runtime.kernels.launcher import Kernel
from be_runtime.kernels.raw_compiler import RawKernel, parse_name
from be_runtime.load.process import PROCESS
from be_toolchain.arch import AmdArch
from be_toolchain.errors import ArchError, HipNotFoundError
from be_toolchain.find.hip import find_hip
from be_toolchain.machine.local_system import LocalSystem

MI300, MI200 = AmdArch("gfx942"), AmdArch("gfx90a")
EM_AMDGPU, SHT_DYNSYM = 224, 11
SOURCE = """
#include <cmath>
#include <cstdint>
#include <hip/hip_runtime.h>
namespace ops {
template <class T> __global__ void scale(const T* x, T* y, T by, int64_t n) {
  __shared__ T kept[64];
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  kept[threadIdx.x] = i < n ? sqrtf(x[i]) : FILL;
  __syncthreads();
  if (i < n) y[i] = by * kept[threadIdx.x ^ 1] + gridDim.y;
  atomicAdd(y, T(1));
}
}
__global__ void other(float* y) { y[0] = 1; }
"""

needs_clang = pytest.mark.needs("clang++-19")


@pytest.fixture(autouse=True)
def clang_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's clang without ROCm, whatever else the machine has."""
    monkeypatch.setenv("BE_HIPCC", "clang++-19")
    monkeypatch.setenv("ROCM_PATH", "/nowhere")


def elf_symbols(data: bytes) -> set[str]:
    """The names in the table of dynamic symbols."""
    (start,), (count,) = struct.unpack_from("<Q", data, 40), struct.unpack_from("<H", data, 60)
    rows = [struct.unpack_from("<IIQQQQIIQQ", data, start + 64 * number) for number in range(count)]
    (symbols,) = (row for row in rows if row[1] == SHT_DYNSYM)
    names = data[rows[symbols[6]][4] :]
    places = (struct.unpack_from("<I", data, at)[0] for at in range(symbols[4], symbols[4] + symbols[5], symbols[9]))
    return {names[place : names.index(b"\0", place)].decode() for place in places}


def kernel(name: str = "ops::scale<float>", fill: int = 0) -> RawKernel:
    return RawKernel(SOURCE, parse_name(name), (f"-DFILL={fill}",), suffix=".hip")


def build(*archs: AmdArch, **asked: Any) -> Kernel:
    return build_hip(kernel(**asked), archs, PROCESS.session())


def function(source: str = SOURCE) -> Any:
    flags, spec = ["-DFILL=0"], "arg[n] ret[n]:float32"
    sizes: dict[str, Any] = {"grid": "ceil(n/64)", "block": 64}
    return be_runtime.hip_kernel(
        source, "ops::scale<float>", signature=spec, offload_arch="gfx942", extra_hip_cflags=flags, **sizes
    )


@needs_clang
@pytest.mark.parametrize("name", ["ops::scale<float>", "other"])
def test_a_source_becomes_a_code_object_with_the_kernel(name: str):
    made = build(MI300, MI200, name=name)
    assert made.platform == "ROCM"
    assert [image.arch for image in made.images] == [MI300, MI200]
    for image in made.images:
        assert image.data[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", image.data, 18) == (EM_AMDGPU,)
        assert {image.entry, f"{image.entry}.kd"} <= elf_symbols(image.data)
        assert name.partition("<")[0].split("::")[-1] in image.entry
        assert image.described[:2] == ("hsaco", "ROCM")
    flags = {struct.unpack_from("<I", image.data, 48)[0] & 0xFF for image in made.images}
    assert flags == {0x4C, 0x3F}  # EF_AMDGPU_MACH of gfx942 and gfx90a


@needs_clang
def test_a_second_load_compiles_nothing(monkeypatch: pytest.MonkeyPatch):
    first = build(MI300, fill=2)
    with monkeypatch.context() as patch:
        patch.setattr("be_runtime.kernels.hip.compile_hip", lambda *_: pytest.fail("compiled again"))
        assert build(MI300, fill=2) == first
    assert build(MI300, fill=3) != first


@needs_clang
def test_another_compiler_compiles_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    started, wrapper = tmp_path / "started", tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\necho "$@" >> {started}\nexec clang++-19 "$@"\n')
    wrapper.chmod(0o755)
    first = build(MI300, fill=4)
    monkeypatch.setenv("BE_HIPCC", str(wrapper))
    second = build(MI300, fill=4)
    assert "--offload-arch=gfx942" in started.read_text()
    assert second.id != first.id
    assert [image.data for image in second.images] == [image.data for image in first.images]


@pytest.mark.needs("hipcc")
def test_hipcc_compiles_with_all_of_hip(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("BE_HIPCC")
    monkeypatch.delenv("ROCM_PATH")
    session = PROCESS.session()
    found = find_hip(session.system, MI200)
    assert (found.path.name, found.has_rocm) == ("hipcc", True)
    source = "__global__ void f(float* y) { y[threadIdx.x] = tanhf(y[threadIdx.x]) + __shfl_xor(y[0], 1); }"
    (image,) = build_hip(RawKernel(source, parse_name("f")), (MI200,), session).images
    assert (image.arch, image.entry) == (MI200, "_Z1fPf")
    assert "_Z1fPf.kd" in elf_symbols(image.data)


@needs_clang
def test_the_code_depends_on_the_compiler_and_the_headers(tmp_path: Path):
    (tmp_path / "factor.h").write_text("#define FACTOR 2\n")
    asked = RawKernel(
        '#include "factor.h"\n__global__ void f(float* y) { *y = FACTOR; }', parse_name("f"), (), (tmp_path,)
    )
    staging = tmp_path / "staging"
    staging.mkdir()
    session = PROCESS.session()
    made = compile_hip(asked, [MI300], session, staging)
    found = find_hip(session.system, MI300)
    assert {tmp_path / "factor.h", found.path, *found.used} <= {*made.read.dependencies}
    assert any("lld" in path.name for path in found.used)
    assert made.compiler[0] == found.banner
    first = build_hip(asked, (MI300,), session)
    (tmp_path / "factor.h").write_text("#define FACTOR 3\n")
    assert build_hip(asked, (MI300,), session).images != first.images


@needs_clang
def test_a_call_without_a_launcher_is_one_error(monkeypatch: pytest.MonkeyPatch):
    scale, x = function(), np.ones(100, np.float32)
    with pytest.raises(LoadError, match="no launcher for ROCM, so the kernel can't run"):
        scale(x, by=2.0, n=100)
    with pytest.raises(be_runtime.ArgumentError, match="int32"):
        scale(x.astype(np.int32), by=2.0, n=100)
    with pytest.raises(BuildError, match=r"scale\.hip:9:.*nothing") as told:
        function(SOURCE.replace("sqrtf", "nothing"))(x, by=2.0, n=100)
    assert told.value.hints == ("ROCm for gfx942 is not installed here, so only a part of HIP is declared",)
    monkeypatch.delenv("BE_HIPCC")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HipNotFoundError, match=r"no compiler here compiles HIP for gfx942\n(?s:.*)apt-get install"):
        function(SOURCE + "// another")(x, by=2.0, n=100)


@needs_clang
def test_a_clang_that_does_not_know_the_architecture_is_named():
    with pytest.raises(HipNotFoundError, match=r"BE_HIPCC +/\S+clang\+\+-19: .*clang version 19\S* .*gfx999") as told:
        find_hip(LocalSystem(), AmdArch("gfx999"))
    assert len(told.value.probes) == 1


def test_architectures_are_checked_at_once():
    with pytest.raises(ArchError, match="'sm_90' is not an architecture of AMD GPUs"):
        be_runtime.hip_kernel(SOURCE, "other", grid=1, block=1, outs=None, offload_arch=["gfx942", "sm_90"])
    with pytest.raises(be_runtime.ArgumentError, match="offload_arch must be"):
        be_runtime.hip_kernel(SOURCE, "other", grid=1, block=1, outs=None, offload_arch=[])
