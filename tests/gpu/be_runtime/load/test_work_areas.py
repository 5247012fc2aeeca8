"""Work areas of CUB and cuFFT, of the size that the library says, inside CUDA graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.cuda import KERNELS, run_json

RUNS = 20
FLAGS = "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE --xla_gpu_graph_min_graph_size=1"
PROGRAM = """
import ctypes, json, pathlib, sys

import jax, jax.numpy as jnp, numpy as np

import be_runtime

module = be_runtime.load_cuda_inline("work_areas", pathlib.Path(sys.argv[1]).read_text(), extra_ldflags=["-lcufft"])
library = ctypes.CDLL(str(module.path))
found = {}
for name in ("sorted", "transformed"):
    call = jax.jit(lambda x: getattr(module, name)(jnp.flip(getattr(module, name)(x), -1)))
    before, worst = (library.count_calls(), library.count_recorded()), 0.0
    for size in (1000, 3001):
        for seed in range(int(sys.argv[2]) // 2):
            x = np.random.default_rng(seed).normal(size=(4, size)).astype(np.float32)
            if name == "sorted":
                x = x.reshape(-1)
                expected = np.sort(x)
            else:
                x = (x + 1j).astype(np.complex64)
                expected = np.fft.fft(np.fft.fft(x)[:, ::-1])
            worst = max(worst, float(np.abs(np.asarray(call(x)) - expected).max() / np.abs(expected).max()))
    found[name] = {"calls": library.count_calls() - before[0], "recorded": library.count_recorded() - before[1],
                   "worst": worst}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> Any:
    return run_json(PROGRAM, str(KERNELS / "work_areas.cu"), str(RUNS), XLA_FLAGS=FLAGS)


@pytest.mark.parametrize("name", ["sorted", "transformed"])
def test_the_call_is_recorded_and_replayed(found: Any, name: str):
    each = found[name]
    np.testing.assert_allclose(each["worst"], 0, atol=1e-5)
    assert each["recorded"] > 0, each
    assert each["calls"] < 2 * RUNS, each
