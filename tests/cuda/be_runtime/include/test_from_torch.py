"""Sources in the style of PyTorch under nvcc: they compile and link, and an allocation is refused with advice."""

from __future__ import annotations

import pytest

from be_runtime import BuildError
from tests.cuda.built import built, images, inline
from tests.support.cuda import source

ALLOCATES = """
#include <torch/extension.h>
static at::Tensor twice(const at::Tensor& x) { return torch::empty({x.size(0), 2}, x.options()); }
// @BE f arg ret stream
void f(const at::Tensor x, at::Tensor y, cudaStream_t) { y = twice(x); }
"""


def test_kernels_for_torch_compile_and_link():
    module = built("from_torch")
    assert images(module) == {("elf", 90), ("ptx", 90)}
    assert module.function_names == ["scatter_add", "scatter_add_without_stream", "row_sum", "square"]


def test_all_numbers_of_torch_compile_for_an_older_architecture():
    module = inline("old", source("from_torch"), "-arch=sm_75")
    assert ("elf", 75) in images(module)


def test_an_allocation_says_what_to_declare():
    with pytest.raises(BuildError, match=r"declare results as ret\[\.\.\.\] and memory as scratch\[\.\.\.\]"):
        inline("allocates", ALLOCATES)


def test_an_allocation_may_be_an_error_of_the_call():
    module = inline("late", ALLOCATES, "-DBE_TORCH_REFUSE_WHEN_CALLED")
    assert module.function_names == ["f"]
