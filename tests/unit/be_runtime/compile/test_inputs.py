"""What commands read: make rules as gcc, clang and nvcc write them, and the headers and folders that texts name."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.inputs.depfile import parse_depfile
from be_runtime.compile.inputs.header_search import include_folders, names_asked_for


@pytest.mark.parametrize(
    ("rule", "paths"),
    [
        ("k.o: k.cc \\\n /usr/include/a.h \\\n /usr/include/b.h\n", ["k.cc", "/usr/include/a.h", "/usr/include/b.h"]),
        ("obj/k.o : k.cu \\\n    /opt/a.h \\\n    /opt/b.h\n", ["k.cu", "/opt/a.h", "/opt/b.h"]),
        ("a.o: a.h b.h\nb.o: b.h c.h\n", ["a.h", "b.h", "c.h"]),
        ("k.o: k.cc a.h\n\nk.cc:\n\na.h:\n", ["k.cc", "a.h"]),
        ("k.o: a\rb.h c\u00a0d.h e\u2028\x85\x0cf.h\n", ["a\rb.h", "c\u00a0d.h", "e\u2028\x85\x0cf.h"]),
        ("k.o: a\\\tb.h c\td.h\n", ["a\tb.h", "c\td.h"]),
        ("k.o: /my\\ dir/a\\ b.h c.h\n", ["/my dir/a b.h", "c.h"]),
        ("k.o: a$$b.h c\\#d.h $$$$\n", ["a$b.h", "c#d.h", "$$"]),
        ("k.o: /a\\:b.h /c:d.h\n", ["/a:b.h", "/c:d.h"]),
        ("k.o: a\\nb.h \\\n c\\d.h\n", ["a\\nb.h", "c\\d.h"]),
        ("k.o: a\\\\b.h c\\\\\\ d.h e\\\\#f.h\n", ["a\\\\b.h", "c\\ d.h", "e\\#f.h"]),
        ("my\\ obj.o: k.cc\n", ["k.cc"]),
        *(("k.o:\n", []), ("", []), ("just words\n", [])),
        ("k.o: /ü/ä€.h a\udcffb\n", ["/ü/ä€.h", "a\udcffb"]),
    ],
)
def test_rules(rule: str, paths: list[str]):
    assert list(parse_depfile(rule)) == paths


def escape(path: str) -> str:
    """As gcc does it."""
    blanks = re.sub(r"(\\*)([ \t])", lambda match: f"{match[1] * 2}\\{match[2]}", path)
    return blanks.replace("#", "\\#").replace("$", "$$")


@settings(deadline=None)
@given(st.lists(st.text(alphabet="ab/.-_ \t\r\\#$ä\u00a0", max_size=10).map("{}x".format), unique=True))
def test_what_gcc_writes_is_read_back(paths: list[str]):
    text = "k.o: " + " \\\n ".join(map(escape, paths)) + "\n"
    assert parse_depfile(text) == tuple(paths)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('#if __has_include("a.h")', ["a.h"]),
        ("#if __has_include( <a/b.h> )", ["a/b.h"]),
        ("# elif defined(X) && !__has_include_next(<a.h>)", ["a.h"]),
        ("#if __has_include(HEADER)", [""]),
        *((text, []) for text in ("#ifdef __has_include", "#if my__has_include(<a.h>)", "int main() {}")),
    ],
)
def test_names_asked_for(text: str, found: list[str]):
    assert list(names_asked_for(text)) == found


def test_folders_are_searched_by_the_kind_of_their_option():
    flags = ["-isystem/s", "-I", "/i", "-DX=-I/no", "-idirafter", "/late", "-iquote/q", "--include-path", "/j", "-Irel"]
    assert include_folders(flags) == ("/q", "/i", "/j", "/s", "/late")
