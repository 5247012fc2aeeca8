"""Checked calls on a GPU: copies in XLA's pool, the call's stream, faults; modules, raw kernels, CUDA graphs around."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from be_runtime import CompiledModule, FindingError
from tests.support.cuda import run_json

PLANTED = r"""
#include "brainevent/common.h"
using T = BE::Tensor;
#define ON(stream) <<<1, 64, 0, reinterpret_cast<cudaStream_t>(stream)>>>
#define INDEX int i = blockIdx.x * blockDim.x + threadIdx.x

__global__ void twice(const float* x, float* y, int n) { INDEX; if (i < n) y[i] = 2 * x[i]; }
__global__ void upto(const float* x, float* y, int n) { INDEX; if (i <= n) y[i] = 1; }
__global__ void shifted(const float* x, float* y, int n) { INDEX; if (i < n) y[i] = x[i + 1]; }
__global__ void some(const float* x, float* y, int n) { INDEX; if (i < n && i % 3 != 1) y[i] = 1; }
__global__ void into(float* x, float* y, int n) { INDEX; if (i < n) { y[i] = 1; if (i == 2) x[i] = 9; } }
__global__ void added(const float* x, float* y, int n) { INDEX; if (i < n) y[i] += x[i]; }
__global__ void logs(const float* x, float* y, int n) { INDEX; if (i < n) y[i] = logf(x[i]); }
__global__ void far(const float* x, float* y, int n) { INDEX; if (i < n) y[i] = x[(1ll << 40) + i]; }
__global__ void sums(const float* x, float* y, int n) { INDEX; if (i < n) atomicAdd(y, x[i]); }

#define KERNEL(NAME, KERNEL, STREAM) \
  void NAME(const T x, T y, int64_t stream) { KERNEL ON(STREAM)(const_cast<float*>(x.data_ptr<float>()), \
      y.data_ptr<float>(), static_cast<int>(x.numel())); }
// @BE good arg[n] ret[n] stream
KERNEL(good, twice, stream)
// @BE behind arg[n] ret[n] stream
KERNEL(behind, upto, stream)
// @BE reads_behind arg[n] ret[n] stream
KERNEL(reads_behind, shifted, stream)
// @BE skips arg[n] ret[n] stream
KERNEL(skips, some, stream)
// @BE changes_input arg[n] ret[n] stream
KERNEL(changes_input, into, stream)
// @BE adds arg[n] ret[n] stream
KERNEL(adds, added, stream)
// @BE not_finite arg[n] ret[n] stream
KERNEL(not_finite, logs, stream)
// @BE faults arg[n] ret[n] stream
KERNEL(faults, far, stream)
// @BE other_stream arg[n] ret[n] stream
KERNEL(other_stream, twice, 0)
// @BE waits arg[n] ret[n] stream
void waits(const T x, T y, int64_t stream) {
  good(x, y, stream);
  BE_CUDA_CHECK(cudaStreamSynchronize(reinterpret_cast<cudaStream_t>(stream)));
}
// @BE too_many_threads arg[n] ret[n] stream
void too_many_threads(const T x, T y, int64_t stream) {
  twice<<<1, 4096, 0, reinterpret_cast<cudaStream_t>(stream)>>>(x.data_ptr<float>(), y.data_ptr<float>(), 6);
}
"""

X = jnp.arange(1.0, 7.0)
pytestmark = pytest.mark.filterwarnings("ignore::be_runtime.StreamWarning")


@pytest.fixture(scope="module")
def planted() -> CompiledModule:
    return be_runtime.load_cuda_inline("planted_cuda", PLANTED)


def test_a_good_kernel_gives_its_results(planted: CompiledModule):
    with be_runtime.debug() as found:
        assert planted.good(X).tolist() == (2 * X).tolist()
        chained = jax.jit(lambda x: planted.good(planted.good(x + 1) + 1))(X)
        assert chained.tolist() == (4 * X + 6).tolist()
    assert found.report() == "no findings"


@pytest.mark.parametrize(
    ("name", "kind", "array", "index", "count"),
    [
        ("behind", "guards", "result 0", (6,), 4),
        ("reads_behind", "unwritten", "result 0", (5,), 1),
        ("skips", "unwritten", "result 0", (1,), 2),
        ("changes_input", "inputs", "argument 0", (2,), 1),
        ("adds", "unwritten", "result 0", (0,), 6),
        ("other_stream", "stream", "result 0", (0,), 6),
    ],
)
def test_a_planted_fault_is_found(
    planted: CompiledModule, name: str, kind: str, array: str, index: tuple[int, ...], count: int
):
    with be_runtime.debug(), pytest.raises(FindingError) as caught:
        planted[name](X)
    (finding,) = caught.value.findings
    assert (finding.kind, finding.array, finding.index, finding.count) == (kind, array, index, count)
    assert finding.device == "cuda:0"
    assert "test_guarded_on_gpu.py:" in finding.caller


def test_values_that_are_not_finite(planted: CompiledModule):
    with be_runtime.debug(), pytest.raises(FindingError, match="gives NaN in result 0") as caught:
        planted.not_finite(X - 2)
    assert [(each.kind, each.index, each.count) for each in caught.value.findings] == [("values", (0,), 1)]


def test_a_kernel_that_waits_for_its_stream_is_right_and_noted(planted: CompiledModule):
    with be_runtime.debug() as found:
        assert planted.waits(X).tolist() == (2 * X).tolist()
    assert len(found) == 0
    assert [note for note in found.notes if "was not checked for its stream" in note]


def test_an_error_of_a_launch_names_the_caller(planted: CompiledModule):
    with be_runtime.debug(), pytest.raises(jax.errors.JaxRuntimeError, match=r"test_guarded_on_gpu\.py:") as caught:
        planted.too_many_threads(X)
    assert "planted_cuda.too_many_threads" in str(caught.value)


def test_a_raw_kernel_is_checked():
    source = """
extern "C" __global__ void skips(const float* x, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 6 && i != 3) y[i] = x[i];
}"""
    kernel = be_runtime.cuda_kernel(source, "skips", grid=1, block=64, signature="arg[n] ret[n]")
    with be_runtime.debug(), pytest.raises(FindingError, match=r"1 of 6 elements are never written") as caught:
        kernel(X)
    assert caught.value.findings[0].index == (3,)


def test_large_arrays_and_many_calls(planted: CompiledModule):
    x = jnp.ones(1 << 20)
    with be_runtime.debug(on_finding="collect") as found:
        jax.block_until_ready(jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, y: planted.skips(y), x))(x))
    assert [each.count for each in found] == [(1 << 20) - 64 + 21]


FAULTS = """
import json, sys
import jax, jax.numpy as jnp
import be_runtime

m = be_runtime.load_cuda_inline("planted_cuda", sys.argv[1])
x = jnp.arange(6.0)
said = {}
with be_runtime.debug():
    m.good(x)
    for name in ("faults", "good"):
        try:
            m[name](x)
        except Exception as error:
            said[name] = [type(error).__name__, str(error)]
print(json.dumps(said), flush=True)
import os
os._exit(0)  # XLA's own ending would wait for the lost context
"""


def test_a_fault_is_raised_at_its_call_and_says_what_to_do_next():
    said = run_json(FAULTS, PLANTED)
    kind, text = said["faults"]
    assert kind == "FindingError"
    assert text.startswith("planted_cuda.faults: planted_cuda:36: kernel execution failed: cudaErrorIllegalAddress")
    assert "called at <string>:" in text
    assert "the GPU's context is lost" in text
    assert "python -m be_runtime check" in text
    _, after = said["good"]
    assert "planted_cuda.faults" in after or "lost" in after
