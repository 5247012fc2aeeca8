"""Which files are shared libraries by their headers, without a loader that believes them."""

from __future__ import annotations

import _ctypes
import io
import platform
import struct
from pathlib import Path

import pytest

from be_runtime.bundle.elf_header import library_problem

DATA = Path(_ctypes.__file__).read_bytes()
HERE = platform.machine()
COUNT = struct.unpack_from("<H", DATA, 0x38)[0]
PLACES = {struct.unpack_from("<I", DATA, at)[0]: at for at in range(64 + 56 * (COUNT - 1), 63, -56)}
"""Where the first program header of each kind is."""
LOAD, DYNAMIC, RELRO = PLACES[1], PLACES[2], PLACES[0x6474E552]


def changed(offset: int, form: str, value: int) -> bytes:
    data = bytearray(DATA)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


@pytest.mark.parametrize(
    ("problem", "files"),
    [
        ("", [DATA]),
        ("it is no ELF file of 64 bits", [b"", b"code", DATA[:63], b"\x7fELF\x01" + DATA[5:], b"\x7fElf" + DATA[4:]]),
        (f"it is no shared library for {HERE}", [changed(16, "<H", 2), changed(18, "<H", 243)]),
        ("its ELF header is damaged", [changed(32, "<Q", 1 << 40), changed(52, "<H", 65), changed(54, "<H", 55)]),
        ("its ELF header is damaged", [changed(56, "<H", 0), changed(56, "<H", 65535)]),
        ("its program headers are damaged", [DATA[:4096]]),
    ],
)
def test_what_is_no_library_here_is_told_from_one(problem: str, files: list[bytes]):
    assert [library_problem(io.BytesIO(data), HERE) for data in files] == [problem] * len(files)


@pytest.mark.parametrize(
    ("header", "field", "form", "value"),
    [
        (LOAD, 0, "<I", 4),  # a segment that is not mapped
        (LOAD, 4, "<I", 0),
        (LOAD, 8, "<Q", 1 << 12),
        (LOAD, 16, "<Q", 1 << 40),
        (LOAD, 32, "<Q", 1 << 62),
        (LOAD, 40, "<Q", 1),
        (LOAD, 48, "<Q", 3),
        (DYNAMIC, 0, "<I", 4),  # no table for the loader
        (DYNAMIC, 8, "<Q", 1 << 40),
        (DYNAMIC, 16, "<Q", 0),
        (RELRO, 40, "<Q", 1 << 40),
    ],
)
def test_headers_that_would_end_the_process_in_the_loader_are_refused(header: int, field: int, form: str, value: int):
    file = io.BytesIO(changed(header + field, form, value))
    assert library_problem(file, HERE) == "its program headers are damaged"
