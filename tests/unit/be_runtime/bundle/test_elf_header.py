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


def changed(offset: int, form: str, value: int) -> io.BytesIO:
    data = bytearray(DATA)
    struct.pack_into(form, data, offset, value)
    return io.BytesIO(bytes(data))


def place(kind: int) -> int:
    """Where the first program header of a kind is."""
    return next(at for at in range(64, 64 + 56 * COUNT, 56) if struct.unpack_from("<I", DATA, at)[0] == kind)


def test_libraries_are_libraries():
    assert library_problem(io.BytesIO(DATA), HERE) == ""


@pytest.mark.parametrize("data", [b"", b"code", DATA[:63], b"\x7fELF\x01" + DATA[5:], Path(__file__).read_bytes()])
def test_what_is_no_elf_file_is_none(data: bytes):
    assert library_problem(io.BytesIO(data), HERE) == "it is no ELF file of 64 bits"


def test_a_program_and_code_for_another_machine_are_no_libraries_here():
    for file, machine in ((changed(16, "<H", 2), HERE), (changed(18, "<H", 243), HERE)):
        assert library_problem(file, machine) == f"it is no shared library for {machine}"


@pytest.mark.parametrize(
    ("offset", "form", "value"), [(32, "<Q", 1 << 40), (52, "<H", 65), (54, "<H", 55), (56, "<H", 0), (56, "<H", 65535)]
)
def test_a_damaged_header_is_refused(offset: int, form: str, value: int):
    assert library_problem(changed(offset, form, value), HERE) == "its ELF header is damaged"


def test_a_library_that_is_cut_off_is_refused():
    assert library_problem(io.BytesIO(DATA[:4096]), HERE) == "its program headers are damaged"


@pytest.mark.parametrize(
    ("kind", "field", "form", "value"),
    [
        (1, 0, "<I", 4),  # a segment that is not mapped
        (1, 4, "<I", 0),
        (1, 8, "<Q", 1 << 12),
        (1, 16, "<Q", 1 << 40),
        (1, 32, "<Q", 1 << 62),
        (1, 40, "<Q", 1),
        (1, 48, "<Q", 3),
        (2, 0, "<I", 4),  # no table for the loader
        (2, 8, "<Q", 1 << 40),
        (2, 16, "<Q", 0),
        (0x6474E552, 40, "<Q", 1 << 40),
    ],
)
def test_program_headers_that_would_end_the_process_in_the_loader_are_refused(
    kind: int, field: int, form: str, value: int
):
    assert library_problem(changed(place(kind) + field, form, value), HERE) == "its program headers are damaged"
