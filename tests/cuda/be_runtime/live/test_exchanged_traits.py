"""Names that a command buffer may capture: XLA asks that once, so their code is exchanged for such code alone."""

from __future__ import annotations

import warnings

import pytest

import be_runtime

SOURCE = """#include "brainevent/common.h"
__global__ void kernel(float* y) {{ y[0] = {value}; }}
// @BE f ret stream
void f(BE::Tensor y, int64_t stream) {{
  kernel<<<1, 1, 0, reinterpret_cast<cudaStream_t>(stream)>>>(y.data_ptr<float>());
}}
"""


def load(value: int, *, allow_cuda_graph: bool) -> None:
    text = SOURCE.format(value=value)
    be_runtime.load_cuda_inline("live_traits", text, compute_capability="9.0", allow_cuda_graph=allow_cuda_graph)


def test_a_name_keeps_its_traits():
    with be_runtime.watch(interval_s=1000), warnings.catch_warnings():
        warnings.simplefilter("error")
        load(1, allow_cuda_graph=True)
        load(2, allow_cuda_graph=True)
        with pytest.warns(UserWarning, match=r"live_traits\.f has changed: module\.f\(...\) calls the new code"):
            load(2, allow_cuda_graph=False)
        load(3, allow_cuda_graph=True)
