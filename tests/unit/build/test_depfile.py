"""Make rules as gcc, clang and nvcc write them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from be_runtime.build.depfile import parse_depfile

CASES = {
    "gcc": (
        "k.o: k.cc \\\n /usr/include/a.h \\\n /usr/include/b.h\n",
        ("k.cc", "/usr/include/a.h", "/usr/include/b.h"),
    ),
    "nvcc": ("obj/k.o : k.cu \\\n    /opt/a.h \\\n    /opt/b.h\n", ("k.cu", "/opt/a.h", "/opt/b.h")),
    "several rules": ("a.o: a.h b.h\nb.o: b.h c.h\n", ("a.h", "b.h", "c.h")),
    "phony rules": ("k.o: k.cc a.h\n\nk.cc:\n\na.h:\n", ("k.cc", "a.h")),
    "windows line ends": ("k.o: k.cc \\\r\n a.h\r\n", ("k.cc", "a.h")),
    "spaces": ("k.o: /my\\ dir/a\\ b.h c.h\n", ("/my dir/a b.h", "c.h")),
    "dollars and hashes": ("k.o: a$$b.h c\\#d.h $$$$\n", ("a$b.h", "c#d.h", "$$")),
    "colons": ("k.o: /a\\:b.h /c:d.h\n", ("/a:b.h", "/c:d.h")),
    "backslashes": ("k.o: a\\nb.h \\\n c\\d.h\n", ("a\\nb.h", "c\\d.h")),
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
    return path.replace(" ", "\\ ").replace("#", "\\#").replace("$", "$$")


NAMES = st.lists(st.text(alphabet="ab/.-_ #$äx", min_size=1, max_size=10), unique=True)


@settings(deadline=None)
@given(NAMES)
def test_what_gcc_writes_is_read_back(paths: list[str]):
    text = "k.o: " + " \\\n ".join(map(escape, paths)) + "\n"
    assert parse_depfile(text) == tuple(paths)
