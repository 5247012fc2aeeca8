"""Calls on a GPU: their names in a profile and in the report of a fault, and many of them on two devices at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import be_runtime
from tests.support.cuda import run_json
from tests.support.profiles import line_of, profile
from tests.support.requirements import OPTIONAL, device_count
from tests.support.runtime import environment, run_python

SOURCE = r"""
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void add_one(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] + 1;
}
// @BE plus arg[n] ret[n] stream
void plus(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  int n = static_cast<int>(x.numel());
  add_one<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
}
"""


def test_a_profile_names_the_function_of_each_kernel(tmp_path: Path):
    module = be_runtime.load_cuda_inline("profiled", SOURCE)
    raw = be_runtime.cuda_kernel(
        "__global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }",
        "twice",
        outs=lambda x: x,
        grid=1,
        block=64,
    )

    def step(x: jax.Array) -> Any:
        y = module.plus(x)
        return raw(y + 1)

    x = jnp.arange(64.0)
    compiled = jax.jit(step)
    text = compiled.lower(x).compile().as_text() or ""
    assert 'op_name="jit(step)' in text
    assert "/profiled.plus" in text
    assert "/twice" in text
    assert str(line_of(step, "module.plus(x)")) in text
    compiled(x).block_until_ready()
    found = profile(lambda: compiled(x), tmp_path)
    launched = [event for event in found.events if "hlo_op" in event.get("args", {})]
    operations = {event["name"].partition("(")[0]: event["args"]["hlo_op"].partition(".")[0] for event in launched}
    assert {name: operations.get(name) for name in ("add_one", "twice")} == {
        "add_one": "profiled_plus",
        "twice": "twice",
    }
    assert b"/profiled.plus" in found.programs
    assert Path(__file__).name.encode() in found.programs


PROGRAM = r'''
import jax, jax.numpy as jnp
import be_runtime
dies = be_runtime.load_cuda_inline("dies", r"""
#include "brainevent/common.h"
#include <stdlib.h>
// @BE aborts arg[n] ret[n]
void aborts(const BE::Tensor& x, BE::Tensor& y) { if (x.numel() > 0) __builtin_abort(); }
""")
step = jax.jit(lambda x: dies.aborts(x + 1))
jax.block_until_ready(step(jnp.ones(4)))
'''


@pytest.mark.parametrize("variable", ["PYTHONFAULTHANDLER", "BE_DEBUG"])
def test_an_abort_in_host_code_is_told_with_the_line(variable: str):
    done = run_python(PROGRAM, env=environment(JAX_PLATFORMS=None, **{variable: "1"}), check=False)
    assert done.returncode < 0
    assert "be_runtime: SIGABRT in dies.aborts, called at <string>:10 in <lambda>\n" in done.stderr


CALLS = 100_000
GRAPHS = {
    "replayed": "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE,CONDITIONAL "
    "--xla_gpu_graph_min_graph_size=1",
    "none": "--xla_gpu_enable_command_buffer=",
}
WAYS = ("in_turn", "split", "a_thread_each", "both_each")
CODE = "import sys; from tests.support.many_calls import main; main(*sys.argv[1:])"


@pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")
@pytest.mark.parametrize("graphs", GRAPHS)
def test_no_call_hangs_or_is_wrong(graphs: str):
    found: Any = run_json(CODE, "gpu", str(CALLS), XLA_FLAGS=GRAPHS[graphs])
    assert {way: row["wrong"] for way, row in found["ways"].items()} == dict.fromkeys(WAYS, 0)
    assert found["kernels"] >= 2
    assert (found["recorded"] > 0) == (graphs == "replayed"), found
    if graphs == "none":
        assert found["called"] >= len(WAYS) * CALLS // found["kernels"]
