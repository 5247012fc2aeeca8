"""A tour of what this machine can do: the toolchain found, C++ and CUDA kernels called from JAX, a network trained.

Run it: ``make demo``, or ``python examples/demo.py [--without-training]``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime as brainevent
from be_toolchain.errors import ToolchainError

ARCH_WITHOUT_DEVICE = "sm_90"

CPP_SOURCE = r"""
#include "brainevent/common.h"

// @BE axpy arg arg ret attr.a
void axpy(const BE::Tensor x, const BE::Tensor y, BE::Tensor out, float a) {
    BE_CHECK(x.numel() == y.numel()) << "x has " << x.numel() << " elements, y has " << y.numel();
    const float *px = x.data_ptr<float>(), *py = y.data_ptr<float>();
    float* po = out.data_ptr<float>();
    for (int64_t i = 0; i < x.numel(); ++i) po[i] = a * px[i] + py[i];
}
"""

CUDA_SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"

__global__ void axpy_kernel(const float* x, const float* y, float* out, int64_t n, float a) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a * x[i] + y[i];
}

// @BE axpy arg arg ret attr.a stream
void axpy(const BE::Tensor x, const BE::Tensor y, BE::Tensor out, float a, int64_t stream) {
    BE_CHECK(x.numel() == y.numel()) << "x has " << x.numel() << " elements, y has " << y.numel();
    axpy_kernel<<<(x.numel() + 255) / 256, 256, 0, (cudaStream_t)stream>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), x.numel(), a);
    BE_CHECK_KERNEL_LAUNCH();
}
"""


@jax.jit
def axpy(x: jax.Array, y: jax.Array) -> jax.Array:
    """Twice x plus y; the same call for both languages, JAX picks the target of its platform."""
    out = jax.ffi.ffi_call("demo.axpy", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y, a=np.float32(2.0))
    return jnp.asarray(out)


def heading(text: str) -> None:
    """A line that tells one part of the output from the next."""
    print(f"\n=== {text} ".ljust(100, "="), flush=True)


def timed_load(language: str, *, arch: str | None = None) -> None:
    """Load the kernel, and load it again, now from the cache."""
    for what in ("compiled or found in the cache", "loaded again"):
        start = time.perf_counter()
        if language == "cpp":
            module = brainevent.load_cpp_inline("demo", CPP_SOURCE)
        else:
            # Without a device there is nothing to register the target for.
            module = brainevent.load_cuda_inline("demo", CUDA_SOURCE, compute_capability=arch, auto_register=not arch)
        print(f"{what} in {1e3 * (time.perf_counter() - start):.1f} ms")
    print(module)


def call(device: jax.Device) -> None:
    """Call the kernel inside a jitted function and look at the result."""
    x = jax.device_put(jnp.arange(5, dtype=jnp.float32), device)
    result = np.asarray(axpy(x, jnp.ones_like(x)))
    print(f"2 * [0 1 2 3 4] + 1 on {device.device_kind}: {result}")
    np.testing.assert_array_equal(result, 2 * np.arange(5) + 1)


def main() -> int:
    """Run every part; the exit status is that of the training."""
    parser = argparse.ArgumentParser(description="Show what this machine can do with kernels of your own.")
    parser.add_argument("--without-training", action="store_true", help="leave the last part out")
    args = parser.parse_args()

    heading("What was found on this machine")
    subprocess.run([sys.executable, "-m", "be_toolchain", "doctor"], check=False)

    heading("A C++ kernel in a jitted function")
    timed_load("cpp")
    call(jax.devices("cpu")[0])

    has_gpu = jax.default_backend() == "gpu"
    heading("A CUDA kernel" + ("" if has_gpu else f", compiled for {ARCH_WITHOUT_DEVICE} since there is no device"))
    try:
        timed_load("cuda", arch=None if has_gpu else ARCH_WITHOUT_DEVICE)
    except ToolchainError as error:
        print(f"left out: {error}")
    else:
        if has_gpu:
            call(jax.devices()[0])

    if args.without_training:
        return 0
    heading("Sparse layers trained with event-driven kernels, and in plain JAX (examples/sparse.py)")
    sparse = Path(__file__).resolve().with_name("sparse.py")
    return subprocess.run([sys.executable, str(sparse)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
