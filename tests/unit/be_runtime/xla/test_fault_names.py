"""What is told of a kernel in which the process dies."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from be_runtime.xla.fault_names import FaultNames


@pytest.fixture
def texts() -> dict[int, str]:
    """The texts that codes have."""
    return {}


@pytest.fixture
def library(texts: dict[int, str]) -> Any:
    def name(code: ctypes.c_void_p, text: bytes, _running: object) -> None:
        assert code.value is not None
        texts[code.value] = text.decode()

    return SimpleNamespace(be_name_kernel=name)


def test_each_code_of_a_kernel_has_the_lines_of_all_its_calls(library: Any, texts: dict[int, str]):
    names = FaultNames()
    names.add_line("k.f")
    names.add_code("k.f", 16, library)
    first = texts[16]
    assert first.startswith("k.f, called at tests/unit/be_runtime/xla/test_fault_names.py:")
    for _ in range(2):
        names.add_line("k.f")
    names.add_code("k.f", 32, library)
    assert texts[16] == texts[32]
    assert texts[16].startswith(f"{first} or ")
    assert texts[16].count("test_fault_names.py:") == 2


def test_a_kernel_without_calls_has_its_name_and_one_with_many_the_first_lines(library: Any, texts: dict[int, str]):
    names = FaultNames()
    names.add_code("k.f", 16, library)
    assert texts == {16: "k.f"}
    calls = "\n".join(["names.add_line('k.f')"] * 20)
    exec(compile(calls, "<calls>", "exec"), {"names": names})  # noqa: S102 - each call has a line of its own
    assert texts[16].count("<calls>:") == 8
    assert texts[16].endswith(" or another line")
