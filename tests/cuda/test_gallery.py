"""The CUDA kernels of the gallery compile where there is no device."""

from __future__ import annotations

import pytest

import be_runtime as brainevent
from benchmarks.gallery import PAGES, page_path
from benchmarks.gallery.page import Run


@pytest.mark.parametrize("name", PAGES)
def test_the_kernels_of_a_page_compile_for_hopper(name: str):
    page = Run(page_path(name)).until("kernels")
    module = brainevent.load_cuda_inline(name, page["CUDA"], compute_capability="sm_90", auto_register=False)
    assert module.function_names == page["kernels"].function_names, "CUDA and C++ have the same entry points"
