"""CUDA code in cells of a notebook."""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import Mock

import pytest

import be_runtime
from be_runtime.notebook import load_ipython_extension, unload_ipython_extension

CELL = """#include "brainevent/common.h"
__global__ void kernel(float* y) { y[0] = VALUE; }
// @BE f ret stream
void f(BE::Tensor y, int64_t stream) {
  kernel<<<1, 1, 0, reinterpret_cast<cudaStream_t>(stream)>>>(y.data_ptr<float>());
}
"""


@pytest.mark.full
def test_a_cell_of_cuda(capsys: pytest.CaptureFixture[str]):
    """In a stand-in for IPython: the kernel of a notebook runs those of C++ elsewhere."""
    shell = Mock(user_ns={})
    load_ipython_extension(shell)
    magics = {call.args[2]: call.args[0] for call in shell.register_magic_function.call_args_list}
    run: Callable[[str, str], None] = magics["cuda_kernel"]
    run("cuda_cell -O 2 --fast-math --flag=-DVALUE=1 --line-info", CELL)
    assert shell.user_ns["cuda_cell"].function_names == ["f"]
    assert capsys.readouterr().out.startswith("cuda_cell: f, ")
    with pytest.raises(be_runtime.BuildError, match=r"cuda_cell\(3\): error"):
        run("cuda_cell", CELL)
    unload_ipython_extension(shell)
