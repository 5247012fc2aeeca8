"""Names that objects define, read from ELF tables made here byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from be_runtime.compile.symbols import Definitions, definitions, separating_options

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
UNDEFINED, TEXT, COMMON = 0, 1, 0xFFF2


def elf(symbols: Sequence[tuple[str, int, int]], *, magic: bytes = b"\x7fELF\x02\x01") -> bytes:
    """A relocatable file with a null section, a symbol table and its names."""
    names = b"\0"
    rows = struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)
    for name, binding, section in symbols:
        rows += struct.pack("<IBBHQQ", len(names), binding << 4, 0, section, 0, 0)
        names += name.encode() + b"\0"
    header = magic.ljust(64, b"\0")
    sections = 64 + len(rows) + len(names)
    header = header[:0x28] + struct.pack("<Q", sections) + header[0x30:]
    header = header[:0x3A] + struct.pack("<HHH", 64, 3, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64, len(rows), 2, 1, 8, 24)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(rows), len(names), 0, 0, 1, 0)
    return header + rows + names + bytes(64) + table + strings


def test_strong_definitions_and_kernels_count():
    image = elf(
        [
            ("local", LOCAL, TEXT),
            ("strong", GLOBAL, TEXT),
            ("weak", WEAK, TEXT),
            ("unique", UNIQUE, TEXT),
            ("undefined", GLOBAL, UNDEFINED),
            ("_Z6helperv", GLOBAL, TEXT),
            ("common", GLOBAL, COMMON),
            ("_Z19__device_stub__fillIfEvPT_i", WEAK, TEXT),
            ("_Z21__device_stub__borrowIfEvPT_i", WEAK, UNDEFINED),
            ("_Z19__device_stub__kernelv", GLOBAL, TEXT),
        ]
    )
    assert definitions(image) == Definitions(
        strong=frozenset({"strong", "_Z6helperv", "common", "_Z19__device_stub__kernelv"}),
        kernels=frozenset({"_Z19__device_stub__fillIfEvPT_i"}),
    )


def test_what_is_no_64_bit_elf_has_no_names():
    for image in (b"", b"BC\xc0\xde", b"!<arch>\n", elf([("a", GLOBAL, TEXT)], magic=b"\x7fELF\x01\x01")):
        assert definitions(image) == Definitions()


def test_only_objects_that_share_a_name_are_edited():
    def of(strong: str = "", kernels: str = "") -> Definitions:
        return Definitions(frozenset(strong), frozenset(kernels))

    assert separating_options({}) == {}
    assert separating_options({"a": of("fg", "k"), "b": of("f"), "c": of("h", "k"), "d": of("i", "l")}) == {
        "a": ["--localize-symbol=f", "--redefine-sym=k=k.0"],
        "b": ["--localize-symbol=f"],
        "c": ["--redefine-sym=k=k.2"],
    }
