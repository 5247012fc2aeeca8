"""Conditional code: what is certainly off is gone, what may be on stays, and brackets always match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.spec.cpp.outline import outline
from tests.unit.be_runtime.spec.conftest import each

LIVE = {
    "": "#if false\na\n#endif | #if (0)\na\n#endif | #if 0 // off\na\n#endif | #  if 0\na\n#  endif | #if 0\na",
    "a": "#if 1\na\n#elif Y\nb\n#endif | #endif\na",
    "b": "#if 0\na\n#endif\nb | #if 0\r\na\r\n#endif\r\nb | #if 0\na\n#elif 1\nb\n#elif Y\nc\n#else\nd\n#endif"
    " | #if 0\n// #endif\na /* #endif\n*/\n#endif\nb | #if 0\ns = \"\n#endif\nb | #if 0\ndon't\n#endif\nb",
    "d": "#if 0\n#if X\na\n#else\nb\n#endif\nc\n#else\nd\n#endif",
    "a b": "#if X\na\n#else\nb\n#endif",
    "a c": "#if 1\na\n#else\nb\n#endif\nc | #ifdef X\na\n#elif 0\nb\n#elif Y\nc\n#endif",
    "b c": "#if 0\na\n#else\nb\n#endif\nc",
    'a " " b': 'a R"(\n#if 0\n)" b',
    # Of two alternative first lines one may stay.
    "f(a) { }": "#ifdef X\nf(a) {\n#else\nf(b) {\n#endif\n}",
    "f(b) { }": "#if 0\nf(a) {\n#else\nf(b) {\n#endif\n}",
    "extern X { a }": "#ifdef __cplusplus\nextern X {\n#endif\na\n#ifdef __cplusplus\n}\n#endif",
}


@pytest.mark.parametrize(("text", "code"), each(LIVE))
def test_live_code(text: str, code: str) -> None:
    assert " ".join(outline(text).code.split()) == code


def test_the_code_stands_where_it_stood() -> None:
    text = "f(\"ab\", 'c'); // @BE g\n#define A\n/* h */ i; // j"
    view = outline(text)
    assert len(view.code) == len(text)
    assert view.code.index("i;") == text.index("i;")
    assert [note.text for note in view.notes] == ["// @BE g"]
    assert [directive.text for directive in view.directives] == ["#define A"]


def test_a_dropped_branch_takes_its_comments_and_macros_with_it() -> None:
    view = outline("#ifdef X\n// @BE a\nf {\n#else\n// @BE b\n#define B\ng {\n#endif\n}")
    assert [note.text for note in view.notes] == ["// @BE a"]
    assert view.directives == ()


@given(st.lists(st.sampled_from(["#if 0\n", "#if X\n", "#else\n", "#elif Y\n", "#endif\n", "{\n", "a;\n", '"b"\n'])))
def test_any_order_of_directives_keeps_the_length(lines: list[str]) -> None:
    text = "".join(lines)
    assert len(outline(text).code) == len(text)
