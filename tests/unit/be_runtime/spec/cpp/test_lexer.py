"""Tokens lose nothing, and literals, comments and preprocessor lines hide what is inside them."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from be_runtime.spec.cpp.lexer import _KINDS, _SIGN, _SPACE, _WORD, Kind, Token, scan, significant
from tests.support.speed import usual_seconds

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


@given(st.lists(FRAGMENTS | st.text(max_size=4), max_size=30).map("".join), st.booleans())
def test_tokens_joined_are_the_source(text: str, directives: bool) -> None:
    tokens = tokenize(text, directives=directives)
    assert "".join(token.text for token in tokens) == text
    position = 0
    for token in tokens:
        assert token.start == position
        position += len(token.text)


@given(st.lists(FRAGMENTS | st.text(max_size=4), max_size=30).map("".join))
def test_pieces_are_adjacent(text: str) -> None:
    pieces = scan(text)
    ends = [0, *(piece.end for piece in pieces)]
    assert [piece.start for piece in pieces] == ends[:-1]
    assert ends[-1] == len(text)


@given(st.lists(FRAGMENTS | st.text(max_size=4), max_size=30).map("".join))
def test_significant_is_tokenize_without_trivia(text: str) -> None:
    trivia = (Kind.CODE, Kind.LINE_COMMENT, Kind.BLOCK_COMMENT, Kind.DIRECTIVE)
    assert significant(text) == [token for token in tokenize(text) if token.kind not in trivia]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("// a", Kind.LINE_COMMENT),
        ("// a \\\n still", Kind.LINE_COMMENT),
        ("// a \\\r\n still", Kind.LINE_COMMENT),
        ("/* a \n // b */", Kind.BLOCK_COMMENT),
        ("/* open", Kind.BLOCK_COMMENT),
        ('"a // b"', Kind.STRING),
        (r'"a \" b"', Kind.STRING),
        ('"a \\\n b"', Kind.STRING),
        ('u8"a"', Kind.STRING),
        ('L"a"', Kind.STRING),
        ('R"(a " \n // )"', Kind.STRING),
        ('R"--(a )" )--"', Kind.STRING),
        ('u8R"(a)"', Kind.STRING),
        ('LR"x(a)")x"', Kind.STRING),
        ("'a'", Kind.CHAR),
        (r"'\''", Kind.CHAR),
        ("'\"'", Kind.CHAR),
        ("u8'a'", Kind.CHAR),
        ("#define A \\\n b", Kind.DIRECTIVE),
        ("#define A \\\r\n b", Kind.DIRECTIVE),
        ("#define A /* \n */ b", Kind.DIRECTIVE),
        ("#define A // \\\n b", Kind.DIRECTIVE),
        ('#include "a//b.h"', Kind.DIRECTIVE),
        ("#error don't", Kind.DIRECTIVE),
        ("  \n", Kind.CODE),
        ("name_1", Kind.WORD),
        ("1'000'000", Kind.NUMBER),
        ("0x1'Fp-3f", Kind.NUMBER),
        (".5e+3", Kind.NUMBER),
        ("...", Kind.SIGN),
    ],
)
def test_one_token(text: str, kind: Kind) -> None:
    (token,) = tokenize(text)
    assert token.kind is kind


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a'b", ["a", "'", "b"]),
        ("int a = 1'000; char c = 'x';", ["int", "a", "=", "1'000", ";", "char", "c", "=", "'x'", ";"]),
        ('FOOR"(a)"', ["FOOR", '"(a)"']),
        ('"open\nf', ['"open', "f"]),
        ("a \\\n b", ["a", "b"]),
        ("x /* y */ z // w\nv", ["x", "z", "v"]),
        ("a # b", ["a", "#", "b"]),
        ("\n  # define A\nb", ["b"]),
        ("/* c */ #define A\nb", ["b"]),
        ("vector<vector<int>>", ["vector", "<", "vector", "<", "int", ">", ">"]),
    ],
)
def test_significant_tokens(text: str, texts: list[str]) -> None:
    assert [token.text for token in significant(text)] == texts


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
