"""The index of a bundle, and the headers of its libraries: nothing else is taken for them."""

from __future__ import annotations

import _ctypes
import io
import json
import platform
import struct
from pathlib import Path
from typing import Any

import pytest

from be_runtime.abi import ABI
from be_runtime.bundle import index
from be_runtime.bundle.elf_header import library_problem
from be_runtime.bundle.index import CodeImage, ImageTarget, Index, parse_index, render_index, target_name
from be_runtime.bundle.module_record import ModuleRecord
from be_runtime.errors import ArgumentError, LoadError
from be_runtime.generate.contents import Handlers, render_contents

DIGEST, OTHER = "ab" * 32, "00" * 32
IMAGE = CodeImage("library", "CUDA", 12, ("8.0", "9.0"), "x86-64-v3")
INDEX = Index(
    machine="x86_64",
    images={DIGEST: IMAGE},
    targets={target_name(DIGEST, "f"): ImageTarget(DIGEST, "CUDA", {"execute": "f", "instantiate": "g"})},
    modules={"ops": {"language": "cuda"}},
)
ROW = ModuleRecord("cpp", OTHER, render_contents({"f": Handlers("be_f", "be_g", spec=("ret",))}), {"a.cc": "ff"})


def test_what_was_written_is_read():
    assert parse_index(render_index(INDEX), "here") == INDEX
    assert ModuleRecord.read(json.loads(json.dumps(ROW._asdict())), "here") == ROW
    assert list(ROW.contents()) == ["f"]


def image(**changes: Any) -> dict[str, Any]:
    return {"images": {DIGEST: IMAGE._asdict() | changes}}


def target(name: str, digest: str = DIGEST, **stages: str) -> dict[str, Any]:
    return {"targets": {name: {"image": digest, "platform": "cpu", "stages": stages}}}


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        ("update brainevent-toolchain here", [{"format": index.FORMAT + 1}, {"abi": ABI + 1}]),
        ("build it again with this release", [{"format": index.FORMAT - 1}]),
        ("build here again with this", [{"abi": 0}]),
        ("damaged", [{"abi": "1"}, {"images": []}, {"targets": {"f": {}}}, {"modules": None}, {"machine": 64}]),
        ("damaged", [{"images": {DIGEST: {"kind": "script", "platform": "cpu", "size": 1}}}]),
        ("damaged", [{"images": {"../../elsewhere": IMAGE._asdict()}, "targets": {}}]),
        ("damaged", [image(archs=[9]), image(size=None), image(kind="cubin")]),
        ("damaged", [target("lapack_sgetrf_ffi", execute="f"), target(target_name(DIGEST, "f"))]),
        ("damaged", [target(target_name(OTHER, "f"), OTHER)]),
    ],
)
def test_another_format_or_abi_says_which_side_to_update(message: str, changes: list[dict[str, Any]]):
    for change in changes:
        text = json.dumps(json.loads(render_index(INDEX)) | change)
        with pytest.raises(LoadError) as caught:
            parse_index(text, "here")
        assert message in str(caught.value)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", render_index(INDEX)[:-20], "[" * 10_000])
def test_a_damaged_index_is_named_and_errors_of_ours_pass(text: str):
    with pytest.raises(LoadError, match="some/place has a damaged index"):
        parse_index(text, "some/place")
    with pytest.raises(LoadError, match="some/place has a damaged index: KeyError: 'x'"), index.reading("some/place"):
        INDEX.modules["x"]
    with pytest.raises(ArgumentError, match="ours"), index.reading("some/place"):
        raise ArgumentError("ours")


WRONG = [ROW._asdict() | {field: value} for field in ROW._fields for value in (7, None, ["a"], {"a": 1})]


@pytest.mark.parametrize("row", [*WRONG, {"language": "cpp"}, ROW._asdict() | {"more": 1}, 7])
def test_a_row_with_values_of_other_types_or_other_fields_is_damage(row: Any):
    with pytest.raises(LoadError, match="here has a damaged index"):
        ModuleRecord.read(row, "here")


@pytest.mark.parametrize("number", range(len(Handlers._fields)))
def test_a_function_of_other_values_is_damage(number: int):
    values: list[Any] = [*Handlers("be_f", "be_g")]
    values[number] = 7
    with pytest.raises(TypeError, match="7 is no str"):
        ROW._replace(functions=json.dumps({"functions": {"f": values}})).contents()


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
        *((LOAD, 0, "<I", 4), (LOAD, 4, "<I", 0), (LOAD, 8, "<Q", 1 << 12), (LOAD, 16, "<Q", 1 << 40)),
        *((LOAD, 32, "<Q", 1 << 62), (LOAD, 40, "<Q", 1), (LOAD, 48, "<Q", 3), (RELRO, 40, "<Q", 1 << 40)),
        *((DYNAMIC, 0, "<I", 4), (DYNAMIC, 8, "<Q", 1 << 40), (DYNAMIC, 16, "<Q", 0)),
    ],
)
def test_headers_that_would_end_the_process_in_the_loader_are_refused(header: int, field: int, form: str, value: int):
    """Such as of segments that are not mapped, and of no table for the loader."""
    file = io.BytesIO(changed(header + field, form, value))
    assert library_problem(file, HERE) == "its program headers are damaged"
