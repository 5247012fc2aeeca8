"""A CUDA function whose launches are in no order with XLA's work is a warning at every load, also from the cache."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import be_runtime
from tests.support.cuda import ARCH

SOURCE = """
#include <cuda_runtime.h>
#include "brainevent/common.h"
__global__ void k(float* y) { y[0] = 1.0f; }
// @BE none
void none(BE::Tensor y) { k<<<1, 1>>>(y.data_ptr<float>()); }
// @BE unused
void unused(BE::Tensor y, int64_t stream) { k<<<1, 1>>>(y.data_ptr<float>()); }
// @BE good
void good(BE::Tensor y, int64_t stream) { k<<<1, 1, 0, (cudaStream_t)stream>>>(y.data_ptr<float>()); }
"""


def test_each_function_is_named_once_with_the_reason(tmp_cache: Path):
    for times in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            be_runtime.load_cuda_inline("race", SOURCE, compute_capability=ARCH, auto_register=False)
        texts = [str(warning.message) for warning in caught]
        assert [text.split(":")[0] for text in texts] == [
            "race.none launches a kernel, but has no stream",
            "race.unused launches a kernel, but does not use its stream",
        ], times
        assert all("(cudaStream_t)stream" in text for text in texts)
        assert {(warning.category, warning.filename) for warning in caught} == {(be_runtime.StreamWarning, __file__)}


def test_it_can_be_an_error(tmp_cache: Path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", be_runtime.StreamWarning)
        with pytest.raises(be_runtime.StreamWarning, match=r"race\.none"):
            be_runtime.load_cuda_inline("race", SOURCE, compute_capability=ARCH, auto_register=False)
