"""What sources ask for without including it, and where that may be."""

from __future__ import annotations

import pytest

from be_runtime.build.header_search import Question, include_folders, questions


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('#if __has_include("a.h")', [("a.h", True)]),
        ("#if __has_include( <a/b.h> )", [("a/b.h", False)]),
        ("# elif defined(X) && !__has_include_next(<a.h>)", [("a.h", False)]),
        ("#if __has_include(HEADER)", [("", False)]),
        ("#ifdef __has_include", []),
        ("#if my__has_include(<a.h>)", []),
        ("int main() {}", []),
    ],
)
def test_questions(text: str, found: list[tuple[str, bool]]):
    assert list(questions(text)) == [Question(*each) for each in found]


@pytest.mark.parametrize(
    ("question", "paths"),
    [
        (Question("a.h", is_quoted=True), ["/own/a.h", "/x/a.h", "/y/a.h"]),
        (Question("a.h", is_quoted=False), ["/x/a.h", "/y/a.h"]),
        (Question("/p/a.h", is_quoted=True), ["/p/a.h"]),
        (Question("", is_quoted=False), []),
    ],
)
def test_candidates(question: Question, paths: list[str]):
    assert list(question.candidates("/own", ["/x", "/y"])) == paths


def test_folders_are_searched_by_the_kind_of_their_option():
    flags = ["-isystem/s", "-I", "/i", "-DX=-I/no", "-idirafter", "/late", "-iquote/q", "--include-path", "/j", "-Irel"]
    assert include_folders(flags) == ("/q", "/i", "/j", "/s", "/late")
