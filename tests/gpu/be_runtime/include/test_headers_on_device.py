"""The headers in kernels: programs built by nvcc alone hold their expectations, and a wrong access fails its call."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cuda_request, inline_units, load_options
from tests.support import requirements

ROOT = Path(__file__).resolve().parents[4]
PROGRAMS = Path(__file__).parent / "programs"
FOLDERS = (
    ROOT / "be_runtime" / "include",
    PROGRAMS,
    ROOT / "tests" / "compile" / "be_runtime" / "include" / "programs",
)


@pytest.mark.parametrize(
    "name", ["tensor", "cuda_common", "cuda_common -DBE_ACTIVE_POSITIVE", "device_check", "dispatch", "errors"]
)
def test_program(name: str, tmp_path: Path):
    name, *flags = name.split()
    program = tmp_path / name
    nvcc = requirements.nvcc()
    assert nvcc is not None
    includes = [f"-I{folder}" for folder in FOLDERS]
    source = PROGRAMS / f"{name}.cu"
    command = (nvcc, "-std=c++17", "-O3", "-arch=native", *flags, *includes, str(source), "-o", str(program))
    for step in (command, (str(program),)):
        done = subprocess.run(step, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


SOURCE = r"""#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void over(const BE::Tensor x, BE::Tensor y, int64_t by) {
  if (threadIdx.x < y.size(0))
    y.at<float>(threadIdx.x) = x.at<float>(threadIdx.x + by, 1);
}
// @BE shifted arg[n 2] ret[n] attr.by:int64 stream
void shifted(const BE::Tensor x, BE::Tensor y, int64_t by, int64_t stream) {
  over<<<1, 64, 0, (cudaStream_t)stream>>>(x, y, by);
}
__global__ void other(const BE::Tensor x, BE::Tensor y) {
  y.data_ptr<float>()[threadIdx.x] = x.data_ptr<int>()[threadIdx.x];
}
// @BE as_integers arg[n 2] ret[n] stream
void as_integers(const BE::Tensor x, BE::Tensor y, int64_t stream) { other<<<1, 1, 0, (cudaStream_t)stream>>>(x, y); }
__global__ void flat(const BE::Tensor x, BE::Tensor y) { y.at<float>(0) = x.at<float>(0); }
// @BE too_few arg[n 2] ret[n] stream
void too_few(const BE::Tensor x, BE::Tensor y, int64_t stream) { flat<<<1, 1, 0, (cudaStream_t)stream>>>(x, y); }
"""
X = jnp.arange(64.0).reshape(32, 2)


@pytest.fixture(scope="module")
def module() -> Any:
    request = cuda_request("checked_at", inline_units("checked_at", SOURCE, "source"), None)
    checked = request._replace(compile=request.compile._replace(checked=True))
    return PROCESS.load(checked, load_options("checked_at", allow_cuda_graph=False))


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("shifted", "argument 0: checked_at:5: at<float>(): index 0 is 32, and axis 0 has 32 elements (block 0, 0, 0;"),
        ("as_integers", "argument 0: checked_at:12: data_ptr<int>() of a float32 tensor"),
        ("too_few", "argument 0: checked_at:16: at<float>() with 1 indices of a tensor with 2 dimensions"),
    ],
)
def test_an_access_that_is_not_possible_is_named(module: Any, wrap: Callable[..., Any], function: str, message: str):
    attributes = {"by": 1} if function == "shifted" else {}
    outs = jax.ShapeDtypeStruct((32,), X.dtype)
    with pytest.raises(jax.errors.JaxRuntimeError) as raised:
        wrap(lambda x: module[function](x, outs=outs, **attributes))(X).block_until_ready()
    assert f"checked_at.{function}: {message}" in str(raised.value)
    assert wrap(lambda x: module.shifted(x, outs=outs, by=0))(X).tolist() == X[:, 1].tolist()
