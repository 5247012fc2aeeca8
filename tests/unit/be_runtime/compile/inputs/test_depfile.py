"""Make rules as gcc, clang and nvcc write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.compile.inputs.depfile import parse_depfile

CASES = {
    "gcc": (
        "k.o: k.cc \\\n /usr/include/a.h \\\n /usr/include/b.h\n",
        ("k.cc", "/usr/include/a.h", "/usr/include/b.h"),
    ),
    "nvcc": ("obj/k.o : k.cu \\\n    /opt/a.h \\\n    /opt/b.h\n", ("k.cu", "/opt/a.h", "/opt/b.h")),
    "several rules": ("a.o: a.h b.h\nb.o: b.h c.h\n", ("a.h", "b.h", "c.h")),
    "phony rules": ("k.o: k.cc a.h\n\nk.cc:\n\na.h:\n", ("k.cc", "a.h")),
    "no other blank parts": (
        "k.o: a\rb.h c\u00a0d.h e\u2028\x85\x0cf.h\n",
        ("a\rb.h", "c\u00a0d.h", "e\u2028\x85\x0cf.h"),
    ),
    "tabs of gcc and clang": ("k.o: a\\\tb.h c\td.h\n", ("a\tb.h", "c\td.h")),
    "spaces": ("k.o: /my\\ dir/a\\ b.h c.h\n", ("/my dir/a b.h", "c.h")),
    "dollars and hashes": ("k.o: a$$b.h c\\#d.h $$$$\n", ("a$b.h", "c#d.h", "$$")),
    "colons": ("k.o: /a\\:b.h /c:d.h\n", ("/a:b.h", "/c:d.h")),
    "backslashes": ("k.o: a\\nb.h \\\n c\\d.h\n", ("a\\nb.h", "c\\d.h")),
    "backslashes before others": ("k.o: a\\\\b.h c\\\\\\ d.h e\\\\#f.h\n", ("a\\\\b.h", "c\\ d.h", "e\\#f.h")),
    "a target with spaces": ("my\\ obj.o: k.cc\n", ("k.cc",)),
    "no prerequisites": ("k.o:\n", ()),
    "nothing": ("", ()),
    "no rule": ("just words\n", ()),
    "beyond ASCII": ("k.o: /ü/ä€.h a\udcffb\n", ("/ü/ä€.h", "a\udcffb")),
}


@pytest.mark.parametrize("case", CASES)
def test_rules(case: str):
    text, expected = CASES[case]
    assert parse_depfile(text) == expected


def escape(path: str) -> str:
    """As gcc does it."""
    blanks = re.sub(r"(\\*)([ \t])", lambda match: f"{match[1] * 2}\\{match[2]}", path)
    return blanks.replace("#", "\\#").replace("$", "$$")


NAMES = st.lists(st.text(alphabet="ab/.-_ \t\r\\#$ä\u00a0", max_size=10).map("{}x".format), unique=True)


@settings(deadline=None)
@given(NAMES)
def test_what_gcc_writes_is_read_back(paths: list[str]):
    text = "k.o: " + " \\\n ".join(map(escape, paths)) + "\n"
    assert parse_depfile(text) == tuple(paths)
