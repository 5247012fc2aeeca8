"""C++ without a compiler: tokens lose nothing, conditional code is kept or dropped, and macros are replaced."""

from __future__ import annotations

import re
import time
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.errors import SpecError
from be_runtime.signature import SourceText
from be_runtime.signature.cpp.lexer import _KINDS, _SIGN, _SPACE, _WORD, Kind, Token, scan, significant
from be_runtime.signature.cpp.macros import Macros, parse_define
from be_runtime.signature.cpp.outline import MacroCall, outline
from be_runtime.signature.discovery import discover
from tests.support.speed import usual_seconds
from tests.unit.be_runtime.signature.conftest import each, found, tokens_of

FRAGMENTS = st.sampled_from(
    [
        *("//", "/*", "*/", '"', "'", "\\", "\n", "\r\n", "\\\n", "\\\r\n", "#", "#if 0", "#endif", "##", 'R"(', ')"'),
        *('u8R"x(', ')x"', "L'a'", "1'000", "0x1'F", "'\\''", '"\\""', "void", "f(", ")", "{", "}", "::", "...", " "),
        *("\t", "é", "@BE", "1e+5", "->", "&&", ".5f"),
    ]
)

FINE = re.compile(rf"{_WORD}|(?P<CODE>{_SPACE})|{_SIGN}")


def tokenize(text: str, *, directives: bool = True) -> list[Token]:
    """The tokens whose texts joined are `text`; space is code."""
    tokens: list[Token] = []
    for kind, start, end in scan(text, directives=directives):
        if kind is Kind.CODE:
            found = FINE.finditer(text, start, end)
            tokens += [Token(_KINDS[match.lastgroup or "SIGN"], match.group(), match.start()) for match in found]
        else:
            tokens.append(Token(kind, text[start:end], start))
    return tokens


TEXTS = st.lists(FRAGMENTS | st.text(max_size=4), max_size=30).map("".join)


@given(TEXTS, st.booleans())
def test_tokens_joined_are_the_source_and_without_trivia_the_significant_ones(text: str, directives: bool) -> None:
    tokens = tokenize(text, directives=directives)
    assert "".join(token.text for token in tokens) == text
    assert [token.start for token in tokens] == [0, *accumulate(len(token.text) for token in tokens)][: len(tokens)]
    pieces = scan(text)
    assert [0, *(piece.end for piece in pieces)] == [*(piece.start for piece in pieces), len(text)]
    trivia = (Kind.CODE, Kind.LINE_COMMENT, Kind.BLOCK_COMMENT, Kind.DIRECTIVE)
    assert significant(text) == [token for token in tokenize(text) if token.kind not in trivia]


ONE = {
    Kind.LINE_COMMENT: ("// a", "// a \\\n still", "// a \\\r\n still"),
    Kind.BLOCK_COMMENT: ("/* a \n // b */", "/* open"),
    Kind.STRING: (
        *('"a // b"', r'"a \" b"', '"a \\\n b"', 'u8"a"', 'L"a"'),
        *('R"(a " \n // )"', 'R"--(a )" )--"', 'u8R"(a)"', 'LR"x(a)")x"'),
    ),
    Kind.CHAR: ("'a'", r"'\''", "'\"'", "u8'a'"),
    Kind.DIRECTIVE: (
        *("#define A \\\n b", "#define A \\\r\n b", "#define A /* \n */ b", "#define A // \\\n b"),
        *('#include "a//b.h"', "#error don't"),
    ),
    Kind.CODE: ("  \n",),
    Kind.WORD: ("name_1",),
    Kind.NUMBER: ("1'000'000", "0x1'Fp-3f", ".5e+3"),
    Kind.SIGN: ("...",),
}


@pytest.mark.parametrize(("text", "kind"), [(text, kind) for kind, texts in ONE.items() for text in texts])
def test_one_token(text: str, kind: Kind) -> None:
    (token,) = tokenize(text)
    assert token.kind is kind


SIGNIFICANT = {
    "a'b": "a ' b",
    "int a = 1'000; char c = 'x';": "int a = 1'000 ; char c = 'x' ;",
    'FOOR"(a)"': 'FOOR "(a)"',
    '"open\nf': '"open f',
    "a \\\n b": "a b",
    "x /* y */ z // w\nv": "x z v",
    "a # b": "a # b",
    "\n  # define A\nb": "b",
    "/* c */ #define A\nb": "b",
    "vector<vector<int>>": "vector < vector < int > >",
}


def test_significant_tokens() -> None:
    assert {text: " ".join(token.text for token in significant(text)) for text in SIGNIFICANT} == SIGNIFICANT


def test_a_directive_ends_before_a_carriage_return() -> None:
    assert [token.text for token in tokenize("#define A 1\r\nb")] == ["#define A 1", "\r\n", "b"]


def test_hostile_input_takes_linear_time() -> None:
    # Each makes a backtracking pattern quadratic or worse; a linear one is done in milliseconds.
    started = time.process_time()
    for part in ('"', "/*", '\\"', "'\\", 'R"(', "#\\\n", "\\\n", "#'", '#"\\', "u8", "1'", "/", "a#"):
        text = part * 20_000
        assert "".join(token.text for token in tokenize(text)) == text
        significant(text)
    assert usual_seconds(time.process_time() - started) < 30


ADD = """\
#define ADD(SUFFIX, T) \\
void add_##SUFFIX(const BE::Tensor a, BE::Tensor y, \\
                  T scale, int64_t stream) { \\
    if (a.numel() > 0) { run<T>(a); } \\
}
"""


def test_macros_that_grow_without_end_are_left_alone() -> None:
    doubling = "\n".join(f"#define A{i} A{i + 1} A{i + 1}" for i in range(60))
    deep = "\n".join(f"#define B{i} B{i + 1}" for i in range(3000))
    for text in (f"{doubling}\nint x = (A0);", f"{deep}\nint x = (B0);"):
        assert tokens_of(f"{text}\n// @BE f\nvoid f(BE::Tensor y) {{}}") == "ret"


def test_each_of_many_calls_is_an_entry_point_at_its_line() -> None:
    calls = "".join(f"// @BE add_{number}\nADD  (\n  {number}, float)\n" for number in range(200))
    entries = found(ADD + calls + "int last();\n")
    assert [(entry.name, entry.line) for entry in entries] == [(f"add_{n}", 7 + 3 * n) for n in range(200)]


def test_macros_of_an_earlier_source() -> None:
    sources = [SourceText(name="a.cuh", text=ADD), SourceText(name="b.cu", text="// @BE add_x\nADD(x, float*)\n")]
    with pytest.raises(SpecError, match="is a pointer") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"


REPLACED = {
    ("(a, ...) f(a, ##__VA_ARGS__)", "M(1)"): "f ( 1 )",
    ("(a, ...) f(a, ##__VA_ARGS__)", "M(1, 2, 3)"): "f ( 1 , 2 , 3 )",
    ("(a, ...) f(a, __VA_ARGS__)", "M(1)"): "f ( 1 , )",
    ("(a) a##1 1##a a##a", "M(x)"): "x1 1x xx",
    ("(a, b) a##b", "M(, y)"): "y",
    ("(a, b) a##b c", "M(x,)"): "x c",
    ("(a) #a", "M(x y)"): '""',
    ("() x", "M() M"): "x M",
    (" (x)", "M"): "( x )",
    ("(a) { a { b } }", "M(x)"): "{ }",
    ("(a) a M(a)", "M(M(x))"): "x M ( x ) M ( x M ( x ) )",
}


def replaced(body: str, call: str) -> str:
    macros, tokens, calls = Macros(), list[Token](), list[MacroCall]()
    macros.define(parse_define(f"#define M{body}"))
    macros.expand(call, 100, tokens, calls)
    assert calls[0].start == 100
    return " ".join(token.text for token in tokens)


def test_replacement() -> None:
    assert {each: replaced(*each) for each in REPLACED} == REPLACED


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
    assert [text for _, text in view.directives] == ["#define A"]


def test_a_dropped_branch_takes_its_comments_and_macros_with_it() -> None:
    view = outline("#ifdef X\n// @BE a\nf {\n#else\n// @BE b\n#define B\ng {\n#endif\n}")
    assert [note.text for note in view.notes] == ["// @BE a"]
    assert view.directives == ()


@given(st.lists(st.sampled_from(["#if 0\n", "#if X\n", "#else\n", "#elif Y\n", "#endif\n", "{\n", "a;\n", '"b"\n'])))
def test_any_order_of_directives_keeps_the_length(lines: list[str]) -> None:
    text = "".join(lines)
    assert len(outline(text).code) == len(text)
