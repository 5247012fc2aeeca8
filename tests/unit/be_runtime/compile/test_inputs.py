"""What commands read, by make rules and by the names in texts, and the names that objects define."""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.graph import Definitions, definitions, separating_options
from be_runtime.compile.inputs import include_folders, names_asked_for, parse_depfile

RULES = {
    "k.o: k.cc \\\n /usr/include/a.h \\\n /usr/include/b.h\n": ["k.cc", "/usr/include/a.h", "/usr/include/b.h"],
    "obj/k.o : k.cu \\\n    /opt/a.h \\\n    /opt/b.h\n": ["k.cu", "/opt/a.h", "/opt/b.h"],
    "a.o: a.h b.h\nb.o: b.h c.h\n": ["a.h", "b.h", "c.h"],
    "k.o: k.cc a.h\n\nk.cc:\n\na.h:\n": ["k.cc", "a.h"],
    "k.o: a\rb.h c\u00a0d.h e\u2028\x85\x0cf.h\n": ["a\rb.h", "c\u00a0d.h", "e\u2028\x85\x0cf.h"],
    "k.o: a\\\tb.h c\td.h\n": ["a\tb.h", "c\td.h"],
    "k.o: /my\\ dir/a\\ b.h c.h\n": ["/my dir/a b.h", "c.h"],
    "k.o: a$$b.h c\\#d.h $$$$\n": ["a$b.h", "c#d.h", "$$"],
    "k.o: /a\\:b.h /c:d.h\n": ["/a:b.h", "/c:d.h"],
    "k.o: a\\nb.h \\\n c\\d.h\n": ["a\\nb.h", "c\\d.h"],
    "k.o: a\\\\b.h c\\\\\\ d.h e\\\\#f.h\n": ["a\\\\b.h", "c\\ d.h", "e\\#f.h"],
    "my\\ obj.o: k.cc\n": ["k.cc"],
    "k.o:\n": [],
    "": [],
    "just words\n": [],
    "k.o: /ü/ä€.h a\udcffb\n": ["/ü/ä€.h", "a\udcffb"],
}


def test_rules():
    assert {rule: list(parse_depfile(rule)) for rule in RULES} == RULES


def escape(path: str) -> str:
    """As gcc does it."""
    blanks = re.sub(r"(\\*)([ \t])", lambda match: f"{match[1] * 2}\\{match[2]}", path)
    return blanks.replace("#", "\\#").replace("$", "$$")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab/.-_ \t\r\\#$ä\u00a0", max_size=10).map("{}x".format), unique=True))
def test_what_gcc_writes_is_read_back(paths: list[str]):
    text = "k.o: " + " \\\n ".join(map(escape, paths)) + "\n"
    assert parse_depfile(text) == tuple(paths)


ASKED = {
    '#if __has_include("a.h")': ["a.h"],
    "#if __has_include( <a/b.h> )": ["a/b.h"],
    "# elif defined(X) && !__has_include_next(<a.h>)": ["a.h"],
    "#if __has_include(HEADER)": [""],
    "#ifdef __has_include": [],
    "#if my__has_include(<a.h>)": [],
    "int main() {}": [],
}


def test_names_asked_for():
    assert {text: list(names_asked_for(text)) for text in ASKED} == ASKED


def test_folders_are_searched_by_the_kind_of_their_option():
    flags = ["-isystem/s", "-I", "/i", "-DX=-I/no", "-idirafter", "/late", "-iquote/q", "--include-path", "/j", "-Irel"]
    assert include_folders(flags) == ("/q", "/i", "/j", "/s", "/late")


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
    fill, borrow, plain = "_Z19__device_stub__fill", "_Z21__device_stub__borrow", "_Z20__device_stub__plain"
    symbols = [
        *(("local", LOCAL, TEXT), ("strong", GLOBAL, TEXT), ("weak", WEAK, TEXT), ("unique", UNIQUE, TEXT)),
        *(("undefined", GLOBAL, UNDEFINED), ("_Z6helperv", GLOBAL, TEXT), ("common", GLOBAL, COMMON)),
        *((fill, WEAK, TEXT), (borrow, WEAK, UNDEFINED), (plain, GLOBAL, TEXT)),
    ]
    strong = frozenset({"strong", "_Z6helperv", "common", plain})
    assert definitions(elf(symbols)) == Definitions(strong, kernels=frozenset({fill}))


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
