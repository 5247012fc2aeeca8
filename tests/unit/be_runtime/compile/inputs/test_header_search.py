"""The folders that flags name, and the headers that sources ask for without including them."""

from __future__ import annotations

import pytest

from be_runtime.compile.inputs.header_search import include_folders, names_asked_for


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('#if __has_include("a.h")', ["a.h"]),
        ("#if __has_include( <a/b.h> )", ["a/b.h"]),
        ("# elif defined(X) && !__has_include_next(<a.h>)", ["a.h"]),
        ("#if __has_include(HEADER)", [""]),
        ("#ifdef __has_include", []),
        ("#if my__has_include(<a.h>)", []),
        ("int main() {}", []),
    ],
)
def test_names_asked_for(text: str, found: list[str]):
    assert list(names_asked_for(text)) == found


def test_folders_are_searched_by_the_kind_of_their_option():
    flags = ["-isystem/s", "-I", "/i", "-DX=-I/no", "-idirafter", "/late", "-iquote/q", "--include-path", "/j", "-Irel"]
    assert include_folders(flags) == ("/q", "/i", "/j", "/s", "/late")
