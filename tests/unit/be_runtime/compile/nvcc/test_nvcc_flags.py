"""Options as nvcc's arguments."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from be_runtime.compile.nvcc.nvcc_flags import is_relocatable


@pytest.mark.parametrize(
    ("given", "expected"),
    [(["-rdc=true"], True), (["-rdc", "true"], True), (["-dc"], True), (["-rdc=false"], False), (["-O3"], False)],
)
def test_relocatable(given: Sequence[str], expected: bool):
    assert is_relocatable(given) is expected
