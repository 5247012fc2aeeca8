"""Tokens lose nothing, and literals, comments and preprocessor lines hide what is inside them."""

from __future__ import annotations

import re
import time
from itertools import accumulate

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


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("a'b", "a ' b"),
        ("int a = 1'000; char c = 'x';", "int a = 1'000 ; char c = 'x' ;"),
        ('FOOR"(a)"', 'FOOR "(a)"'),
        ('"open\nf', '"open f'),
        ("a \\\n b", "a b"),
        ("x /* y */ z // w\nv", "x z v"),
        ("a # b", "a # b"),
        ("\n  # define A\nb", "b"),
        ("/* c */ #define A\nb", "b"),
        ("vector<vector<int>>", "vector < vector < int > >"),
    ],
)
def test_significant_tokens(text: str, texts: str) -> None:
    assert [token.text for token in significant(text)] == texts.split()


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
