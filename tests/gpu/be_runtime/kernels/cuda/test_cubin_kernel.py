"""Cubins and PTX of nvcc on a device: results, batches, arrays changed in place, and code for other devices."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import cubin_kernel, export, load_exported
from be_runtime.kernels.launcher import choose_archs
from be_runtime.load.process import PROCESS
from tests.support.requirements import nvcc

SOURCE = """
extern "C" __global__ void affine(float* y, float by, const float* x, int n, bool negate, double shift) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = (negate ? -by : by) * x[i] + float(shift);
}
extern "C" __global__ void __launch_bounds__(64) grow(float* y, short by) { y[blockIdx.x] += by; }
extern "C" __global__ void reverse(const float* x, float* y) {
  extern __shared__ float shared[];
  shared[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = shared[blockDim.x - 1 - threadIdx.x];
}
"""
AFFINE = "ret[... n] attr.by:float32 arg[... n]:float32 attr.n:int32 attr.negate:bool=false attr.shift:float64=1"


def compiled(folder: Path, kind: str, arch: str = "") -> Path:
    (folder / "k.cu").write_text(SOURCE)
    found = choose_archs(None, PROCESS.session())[0]
    options = [f"-{kind}", f"-arch={arch or (found.sm if kind == 'cubin' else found.compute)}", "-o", f"k.{kind}"]
    subprocess.run([str(nvcc()), "k.cu", *options], cwd=folder, check=True)
    return folder / f"k.{kind}"


@pytest.fixture(scope="module", params=["cubin", "ptx"])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("code"), request.param)


def affine(code: Path) -> Any:
    return cubin_kernel(code, "affine", AFFINE, grid="ceil(n/256)", block=256)


def test_results_are_those_of_numpy(code: Path):
    for size in (1, 256, 1000):
        x = np.arange(size, dtype=np.float32)
        call = affine(code)
        np.testing.assert_array_equal(np.asarray(call(x, by=3, n=size)), 3 * x + 1)
        negated = jax.jit(lambda x, call=call: call(x, by=3, n=x.size, negate=True))
        np.testing.assert_array_equal(np.asarray(negated(x)), 1 - 3 * x)


def test_vmap_runs_each_slice(code: Path):
    x = np.arange(1200, dtype=np.float32).reshape(2, 2, 300)
    call = jax.jit(jax.vmap(jax.vmap(lambda x: affine(code)(x, by=2, n=300))))
    np.testing.assert_array_equal(np.asarray(call(x)), 2 * x + 1)


def test_an_array_changes_in_place_and_the_input_stays(code: Path):
    grow = cubin_kernel(code, "grow", "inout[... n]:float32 attr.by:int16", grid="n", block=1)
    x = jnp.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(np.asarray(jax.jit(jax.vmap(lambda x: grow(x, by=-3)))(x)), np.asarray(x) - 3)
    np.testing.assert_array_equal(np.asarray(x), np.arange(12.0).reshape(3, 4))


def test_dynamic_shared_memory(code: Path):
    reverse = cubin_kernel(code, "reverse", "arg[n]:float32 ret[n]", grid=1, block="n", shared_mem="4*n")
    x = np.arange(200, dtype=np.float32)
    np.testing.assert_array_equal(np.asarray(reverse(x)), x[::-1])


def test_an_exported_program_has_the_code(code: Path):
    x = np.arange(300, dtype=np.float32)
    made = export(jax.jit(lambda x: affine(code)(x, by=2, n=300)), x, platforms="cuda")
    np.testing.assert_array_equal(np.asarray(load_exported(bytes(made)).call(x)), 2 * x + 1)


def test_code_for_another_device_is_refused(tmp_path: Path):
    here = choose_archs(None, PROCESS.session())[0]
    other = "sm_80" if here.major != 8 else "sm_90"
    call = affine(compiled(tmp_path, "cubin", other))
    with pytest.raises(Exception, match=f"compiled for {other}, which does not run on this device"):
        jax.block_until_ready(call(np.zeros(3, np.float32), by=1, n=3))
