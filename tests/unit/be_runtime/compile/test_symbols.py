"""Names that objects define, read from ELF tables made here byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from be_runtime.compile.symbols import Definitions, definitions, separating_options

LOCAL, GLOBAL, WEAK, UNIQUE = 0, 1, 2, 10
UNDEFINED, TEXT, COMMON = 0, 1, 0xFFF2


def elf(symbols: Sequence[tuple[str, int, int]], *, magic: bytes = b"\x7fELF\x02\x01") -> bytes:
    """A relocatable file with a null section, a symbol table and its names."""
    names, rows = b"\0", bytes(24)
    for name, binding, section in symbols:
        rows += struct.pack("<IBBHQQ", len(names), binding << 4, 0, section, 0, 0)
        names += name.encode() + b"\0"
    sections = 64 + len(rows) + len(names)
    header = magic.ljust(0x28, b"\0") + struct.pack("<Q", sections) + bytes(10) + struct.pack("<HHH", 64, 3, 0)
    table = struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64, len(rows), 2, 1, 8, 24)
    strings = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64 + len(rows), len(names), 0, 0, 1, 0)
    return header + rows + names + bytes(64) + table + strings


def test_strong_definitions_and_kernels_count():
    fill, borrow, plain = (
        f"_Z{len(name)}{name}" for name in ("__device_stub__fill", "__device_stub__borrow", "__device_stub__plain")
    )
    image = elf(
        [
            *(("local", LOCAL, TEXT), ("strong", GLOBAL, TEXT), ("weak", WEAK, TEXT), ("unique", UNIQUE, TEXT)),
            *(("undefined", GLOBAL, UNDEFINED), ("_Z6helperv", GLOBAL, TEXT), ("common", GLOBAL, COMMON)),
            *((fill, WEAK, TEXT), (borrow, WEAK, UNDEFINED), (plain, GLOBAL, TEXT)),
        ]
    )
    strong = {"strong", "_Z6helperv", "common", plain}
    assert definitions(image) == Definitions(strong=frozenset(strong), kernels=frozenset({fill}))


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
