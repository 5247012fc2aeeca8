"""CUDA kernels of a TVM-FFI library on XLA's stream, recorded and not."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.requirements import OPTIONAL

pytest.importorskip("tvm_ffi", reason=f"{OPTIONAL}apache-tvm-ffi")

SOURCE = r"""
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

__global__ void scale_kernel(const float* x, float* y, int64_t n, float by) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) y[i] = by * x[i];
}
void scale(tvm::ffi::TensorView x, tvm::ffi::TensorView y, double by) {
  const DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  TVM_FFI_CHECK(by != 0, ValueError) << "by is 0";
  scale_kernel<<<(x.numel() + 255) / 256, 256, 0, stream>>>(
      static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel(), by);
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import tvm_ffi.cpp

    folder = tmp_path_factory.mktemp("tvm")
    built = tvm_ffi.cpp.build_inline("kernels", cuda_sources=SOURCE, functions=["scale"], build_directory=str(folder))
    return Path(built)


@pytest.mark.parametrize("graph", [True, False])
def test_a_kernel_of_a_library(library: Path, graph: bool):
    declared = {"scale": "arg[... n]:float32 ret[... n]:float32 attr.by:float64=2"}
    ops = be_runtime.load_tvm_ffi(
        library, declared, platform="cuda", target_prefix=f"tvm_{graph}", allow_cuda_graph=graph
    )
    x = jnp.arange(1000.0)

    @jax.jit
    def chain(x: jax.Array) -> jax.Array:
        for _ in range(20):
            x = ops.scale(ops.scale(x), by=0.5)
        return x + 1

    for _ in range(3):
        assert (chain(x) == x + 1).all()
    assert (jax.vmap(ops.scale)(x.reshape(4, 250)) == 2 * x.reshape(4, 250)).all()
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ValueError: .*by is 0"):
        ops.scale(x, by=0).block_until_ready()
