"""C++ tokens with their places, in two steps.

:func:`scan` cuts a text into comments, literals, preprocessor lines and the code between them, and loses nothing;
:func:`significant` then cuts that code into words and signs. Discovery scans every source but tokenizes only the few
headers it needs, so a warm load can afford a real lexer.

The grammar is that of C++17 [lex.pptoken], and no text is refused: an unterminated literal ends with its line (as in
``#error`` lines and disabled code), an unterminated comment or raw string ends with the text.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple


class Kind(Enum):
    """The kind of a token or a piece."""

    CODE = "code"
    LINE_COMMENT = "line comment"
    BLOCK_COMMENT = "block comment"
    STRING = "string"
    CHAR = "char"
    DIRECTIVE = "directive"
    WORD = "word"
    NUMBER = "number"
    SIGN = "sign"


class Token(NamedTuple):
    """One token.

    Parameters
    ----------
    kind : Kind
        Kind of the token.
    text : str
        Text as written.
    start : int
        Place of the token.
    """

    kind: Kind
    text: str
    start: int


class Piece(NamedTuple):
    """A stretch of one kind: ``text[start:end]``."""

    kind: Kind
    start: int
    end: int


_LINE_COMMENT = r"/[^\n\\]*(?:\\(?:[ \t]*\r?\n)?[^\n\\]*)*"
_BLOCK_COMMENT = r"\*(?s:.*?)(?:\*/|\Z)"
_AFTER_R = r"""(?:(?<=\bR")|(?<=\b[uUL]R")|(?<=\bu8R"))"""
_RAW_STRING = rf'{_AFTER_R}(?P<delimiter>[^()\\\s]{{0,16}})\((?s:.*?)(?:\)(?P=delimiter)"|\Z)'
_STRING = r'[^"\\\n]*+(?:\\(?:\r\n|[\s\S])[^"\\\n]*+)*+"?'
# A quote after a digit or letter separates digits (1'000), unless that letter is a literal's prefix.
_CHAR = r"(?:(?<![0-9A-Za-z_]')|(?<=\b[uUL]')|(?<=\bu8'))[^'\\\n]*+(?:\\(?:\r\n|[\s\S])[^'\\\n]*+)*+'?"

# The patterns above lack their first character: if every alternative begins with a literal character outside all
# groups, the engine skips plain code without trying any of them, which makes this scan eight times as fast.
_OPENER = re.compile(
    rf"/(?P<LINE_COMMENT>{_LINE_COMMENT})|/(?P<BLOCK_COMMENT>{_BLOCK_COMMENT})|\"(?P<RAW>{_RAW_STRING})"
    rf"|\"(?P<STRING>{_STRING})|'(?P<CHAR>{_CHAR})|\#(?P<DIRECTIVE>)"
)
_DIRECTIVE = re.compile(
    rf"\#(?:[^\n\\\"'/]+|\\[ \t]*\r?\n|\\|/{_LINE_COMMENT}|/{_BLOCK_COMMENT}"
    rf"|\"{_RAW_STRING}|\"{_STRING}|'{_CHAR}|[\"'/])*"
)
_PREFIX = re.compile(r"(?<!\w)(?:u8R?|[uUL]R?|R)\Z")
_SPACE = r"(?:\s++|\\[ \t]*\r?\n)+"
_WORD = r"(?P<WORD>[^\W\d]\w*)|(?P<NUMBER>\.?\d(?:[eEpP][+-]|'?[\w.])*)"
_SIGN = r"(?P<SIGN>::|->|\.\.\.|\#\#|&&|\S)"
# Space is part of the token before it, which is the fastest way over long blanks.
_SIGNIFICANT = re.compile(rf"(?:{_WORD}|{_SIGN})(?:{_SPACE})?+")
_LEADING = re.compile(_SPACE)
_KINDS = {**Kind.__members__, "RAW": Kind.STRING}
TRIVIA = frozenset({Kind.LINE_COMMENT, Kind.BLOCK_COMMENT, Kind.DIRECTIVE})
"""Kinds that have no meaning in a declaration."""


def scan(text: str, *, directives: bool = True) -> list[Piece]:
    r"""Cut `text` into code and other pieces.

    Parameters
    ----------
    text : str
        C++ source.
    directives : bool
        True if a ``#`` at the beginning of a line begins a preprocessor line; false inside the body of a macro.

    Returns
    -------
    list of Piece
        Adjacent pieces, from 0 to the end of `text`.

    Examples
    --------
    >>> text = 'int a; // "one"\n'
    >>> [(piece.kind.value, text[piece.start : piece.end]) for piece in scan(text)]
    [('code', 'int a; '), ('line comment', '// "one"'), ('code', '\n')]
    """
    pieces: list[Piece] = []
    done = position = 0
    line_end = 0 if directives else len(text)  # up to which no line begins with a hash
    search, new, kinds = _OPENER.search, tuple.__new__, _KINDS
    while match := search(text, position):
        start, position = match.span()
        kind = kinds[match.lastgroup or "SIGN"]
        if kind is Kind.DIRECTIVE:
            if start < line_end:
                continue
            if not _begins_line(text, start):
                following = text.find("\n", start)
                line_end = following if following >= 0 else len(text)
                continue
            position = _end_of_directive(text, start)
        elif kind is Kind.STRING or kind is Kind.CHAR:
            start = _start_of_prefix(text, done, start)
        if start > done:
            pieces.append(new(Piece, (Kind.CODE, done, start)))
        pieces.append(new(Piece, (kind, start, position)))
        done = position
    if done < len(text):
        pieces.append(Piece(Kind.CODE, done, len(text)))
    return pieces


def _begins_line(text: str, position: int) -> bool:
    """Return whether only space and block comments precede `position` on its line."""
    before = text[text.rfind("\n", 0, position) + 1 : position].strip()
    return not before or (before.startswith("/*") and before.endswith("*/")) or before == "*/"


def _end_of_directive(text: str, start: int) -> int:
    """Return the end of the preprocessor line at `start`, with its continuations and without its line ending."""
    match = _DIRECTIVE.match(text, start)
    end = match.end() if match else start + 1
    return end - 1 if text[end - 1] == "\r" else end


def _start_of_prefix(text: str, low: int, start: int) -> int:
    """Return the beginning of a literal whose quote is at `start`, including a prefix such as ``u8R``."""
    if start > low and text[start - 1] in "RuUL8":
        prefix = _PREFIX.search(text, max(low, start - 3), start)
        return prefix.start() if prefix else start
    return start


def significant(text: str, *, offset: int = 0, directives: bool = True) -> list[Token]:
    """Return the tokens of `text` without space, comments and preprocessor lines.

    Examples
    --------
    >>> [token.text for token in significant("f(1 /* one */)", offset=100)]
    ['f', '(', '1', ')']
    """
    tokens: list[Token] = []
    new, kinds = tuple.__new__, _KINDS
    for kind, start, end in scan(text, directives=directives):
        if kind is Kind.CODE:
            space = _LEADING.match(text, start, end)
            tokens += [
                new(Token, (kinds[match.lastgroup or "SIGN"], match[match.lastindex or 0], offset + match.start()))
                for match in _SIGNIFICANT.finditer(text, space.end() if space else start, end)
            ]
        elif kind not in TRIVIA:
            tokens.append(Token(kind, text[start:end], offset + start))
    return tokens


def closing(tokens: list[Token], opening: int) -> int:
    """Return the index of the bracket that closes the one at `opening`, or ``len(tokens)``."""
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if text in _BRACKETS:
            depth += 1 if text in _OPEN else -1
            if depth == 0:
                return index
    return len(tokens)


_OPEN = frozenset("([{")
_BRACKETS = frozenset("()[]{}")
