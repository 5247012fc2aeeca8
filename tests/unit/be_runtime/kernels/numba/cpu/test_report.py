"""What becomes of an exception that a kernel raised."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.kernels.numba.cpu.report import MESSAGE_SIZE, report


class MuteError(Exception):
    """Has no text."""

    def __str__(self) -> str:
        return str(1 // 0)


def reported(kind: type[BaseException], value: Any) -> str:
    room = ctypes.create_string_buffer(b"\xff" * (MESSAGE_SIZE + 8), MESSAGE_SIZE + 8)
    report(kind, value, ctypes.addressof(room))
    assert room.raw[MESSAGE_SIZE:] == b"\xff" * 8, "it wrote beyond the message"
    return room.value.decode()


def test_the_handler_has_room_for_it():
    source = (Path(be_runtime.__file__).parent / "native" / "host_call.cc").read_text(encoding="utf-8")
    assert f"constexpr size_t kMessageSize = {MESSAGE_SIZE};" in source


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (ValueError, ValueError("bad", 3), "ValueError: ('bad', 3)"),
        (ZeroDivisionError, ("division by zero",), "ZeroDivisionError: division by zero"),
        (AssertionError, None, "AssertionError"),
        (KeyError, "k", "KeyError: 'k'"),
        (MuteError, MuteError(), "MuteError: (its text can't be made: ZeroDivisionError)"),
        (ValueError, ValueError("a\0b"), "ValueError: a b"),
    ],
)
def test_name_and_text(kind: type[BaseException], value: Any, text: str):
    assert reported(kind, value) == text


@pytest.mark.parametrize("letter", ["x", "é", "漢"])
def test_a_long_text_is_cut_between_characters(letter: str):
    text = reported(ValueError, ValueError(letter * 5000))
    assert text.startswith("ValueError: " + letter)
    assert MESSAGE_SIZE - 4 <= len(text.encode()) < MESSAGE_SIZE
