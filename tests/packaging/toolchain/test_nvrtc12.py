"""CUDA 12 as `jax[cuda12]` brings it, without any nvcc: raw kernels are compiled by the NVRTC of its wheels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from be_runtime.errors import BuildError
from be_runtime.kernels.cuda import nvrtc
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.images import Compiled
from be_runtime.kernels.cuda.prototype import parse_name
from be_runtime.kernels.cuda.raw_compiler import compile_raw
from be_runtime.kernels.cuda.raw_source import RawKernel
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.arch import Arch
from be_toolchain.errors import CudaNotFoundError
from tests.support.fresh_environments import Environment

pytestmark = pytest.mark.xdist_group("nvrtc12")

SOURCE = """
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>
template <class T, int N> __global__ void scale(const T* x, T* y, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = T(N) * x[i];
}
"""


@pytest.fixture(scope="module")
def environment(new_environment: Callable[[], Environment]) -> Environment:
    """A fresh one, with the parts of CUDA 12.9 that JAX has for its own compiler."""
    made = new_environment()
    made.pip("install", "--no-deps", *(f"nvidia-cuda-{part}-cu12==12.9.*" for part in ("nvcc", "runtime", "nvrtc")))
    return made


def compiled(environment: Environment, source: str, name: str, folder: Path) -> Compiled:
    """What becomes of a kernel on a machine with this environment and no other CUDA."""
    session = new_session()._replace(system=environment.system, record_dir=folder / "record")
    return compile_raw(RawKernel(source, parse_name(name)), (Arch(9, 0),), session, folder)


def test_a_template_is_compiled_without_nvcc(environment: Environment, tmp_path: Path):
    with pytest.raises(CudaNotFoundError):
        resolve(ToolchainRequest(need_cuda=True), system=environment.system)
    found = nvrtc.find_nvrtc(environment.system)
    assert found is not None
    assert found.version == (12, 9)
    assert found.path.is_relative_to(environment.site)

    made = compiled(environment, SOURCE, "scale<__half, 3>", tmp_path)
    (image,) = made.images
    assert image.data.startswith(b"\x7fELF")
    assert image.entry.startswith("_Z5scaleI6__halfLi3EE")
    assert f".text.{image.entry}".encode() in image.data
    read = {str(path.relative_to(environment.site / "nvidia")) for path in made.dependencies}
    assert {"cuda_runtime/include/cuda_fp16.h", "cuda_nvcc/include/crt/mma.h"} <= read


def test_a_header_of_another_wheel_says_which(environment: Environment, tmp_path: Path):
    source = "#include <cooperative_groups.h>\n#include <cuda/std/array>\n__global__ void f(float* y) { y[0] = 1; }"
    with pytest.raises(BuildError) as raised:
        compiled(environment, source, "f", tmp_path)
    needed = "nvidia-cuda-cccl-cu12==12.9.*"
    assert raised.value.hints[0] == f"pip install '{needed}' brings nv/target"
    environment.pip("install", "--no-deps", needed)
    assert compiled(environment, source, "f", tmp_path).images[0].entry == "_Z1fPf"
