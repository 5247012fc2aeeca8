"""Signatures with attributes of every kind, optional arrays and any number of them, compiled by nvcc."""

from __future__ import annotations

import pytest

import be_runtime
from tests.support.cuda import ARCH, source


@pytest.mark.parametrize("flags", [[], ["-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings"]])
def test_the_generated_code_compiles(flags: list[str]):
    module = be_runtime.load_cuda_inline(
        "kinds", source("kinds"), compute_capability=ARCH, auto_register=False, extra_cuda_cflags=flags
    )
    assert module.function_names == ["combine", "copies"]
