"""The kernels of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime
from be_runtime import CompiledModule


@pytest.fixture(name="m")
def _module() -> CompiledModule:
    """The module of kernels.cc, whose functions have no rules yet."""
    return be_runtime.load_cpp_file(Path(__file__).with_name("kernels.cc"))
