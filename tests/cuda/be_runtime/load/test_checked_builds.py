"""A checked build of a CUDA module names the lines of its source; launches on no stream are warned of."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import be_runtime
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cuda_request, file_units, load_options
from tests.support.cuda import ARCH
from tests.support.planted.try_all import kernels

KERNELS = {path.stem: path for path in kernels("cuda")}
STRICT = ["-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings"]


def load(name: str, flags: list[str] | None = None, *, checked: bool) -> Any:
    request = cuda_request(name, file_units(KERNELS[name]), None, compute_capability=ARCH, extra_cuda_cflags=flags)
    wanted = request._replace(compile=request.compile._replace(checked=checked))
    return PROCESS.load(wanted, load_options(name, auto_register=False))


def test_only_a_checked_library_can_tell_of_an_access():
    told = {checked: load("index_outside", STRICT, checked=checked).path.read_bytes() for checked in (False, True)}
    assert {checked: b"be_access_taken" in library for checked, library in told.items()} == {False: False, True: True}


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::be_runtime.StreamWarning")
@pytest.mark.parametrize("name", KERNELS)
def test_each_planted_fault_compiles_checked(name: str):
    assert load(name, checked=True).function_names == [name]


STREAMS = """
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
WARNED = [["race.none", "has no stream"], ["race.unused", "does not use its stream"]]


def test_launches_that_are_in_no_order_with_xlas_are_warned_of_at_every_load():
    """Once for each function, with the reason, also from the cache; it can be an error."""
    for times in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            be_runtime.load_cuda_inline("race", STREAMS, auto_register=False)
        texts = [str(warning.message) for warning in caught]
        assert [text.split(":")[0].split(" launches a kernel, but ") for text in texts] == WARNED, times
        assert all("(cudaStream_t)stream" in text for text in texts)
        assert {(warning.category, warning.filename) for warning in caught} == {(be_runtime.StreamWarning, __file__)}
    with pytest.raises(be_runtime.StreamWarning, match=r"race\.none"):
        be_runtime.load_cuda_inline("race", STREAMS, auto_register=False)
