"""Lexer of C++ sources: tokens and comments, their places, and the values of literals. Pure."""

from __future__ import annotations

import math
import re
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache

from be_runtime.errors import SourceSpan
from be_runtime.signature import SourceText
from be_toolchain.named import NamedTuple

_PIECE = re.compile(r"[^\s\[({<]+|\s+|.", re.DOTALL)
_CLOSING = {"[": "]", "{": "}", "(": ")", "<": ">"}


def split_words(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Split a text at the spaces outside of brackets; an unclosed bracket is an ordinary character.

    Yields
    ------
    tuple of (int, str)
        Place of a word, and the word.

    Examples
    --------
    >>> list(split_words("arg[n k] attr.m:enum(a b)=a ret[n"))
    [(0, 'arg[n k]'), (9, 'attr.m:enum(a b)=a'), (28, 'ret[n')]
    """
    last = {closing: text.rfind(closing) for closing in _CLOSING.values()}
    at, begin = start, -1
    while piece := _PIECE.match(text, at):
        closing = _CLOSING.get(piece[0], "")
        at = text.index(closing, at) + 1 if closing and last[closing] > at else piece.end()
        if not piece[0].isspace():
            begin = piece.start() if begin < 0 else begin
        elif begin >= 0:
            yield begin, text[begin : piece.start()]
            begin = -1
    if begin >= 0:
        yield begin, text[begin:]


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
    """A part of a text of one kind: ``text[start:end]``."""

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
# Space is part of the token before it: this way, the engine skips long blanks fastest.
_SIGNIFICANT = re.compile(rf"(?:{_WORD}|{_SIGN})(?:{_SPACE})?+")
_LEADING = re.compile(_SPACE)
_KINDS = {**Kind.__members__, "RAW": Kind.STRING}
_TRIVIA = frozenset({Kind.LINE_COMMENT, Kind.BLOCK_COMMENT, Kind.DIRECTIVE})
"""Kinds without a meaning in a declaration."""
OPENING, CLOSING = frozenset("([{"), frozenset(")]}")
_BRACKETS = OPENING | CLOSING


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
    line_end = 0 if directives else len(text)  # a hash before this place begins no line
    search, new, kinds = _OPENER.search, tuple.__new__, _KINDS
    while match := search(text, position):
        start, position = match.span()
        kind = kinds[match.lastgroup or "SIGN"]
        if kind is Kind.DIRECTIVE:
            if start < line_end:
                continue
            before = text[text.rfind("\n", 0, start) + 1 : start].strip()
            if before and before != "*/" and not (before.startswith("/*") and before.endswith("*/")):
                following = text.find("\n", start)
                line_end = following if following >= 0 else len(text)
                continue
            directive = _DIRECTIVE.match(text, start)
            position = directive.end() if directive else start + 1
            position -= text[position - 1] == "\r"  # a part of the line ending
        elif (kind is Kind.STRING or kind is Kind.CHAR) and start > done and text[start - 1] in "RuUL8":
            prefix = _PREFIX.search(text, max(done, start - 3), start)
            start = prefix.start() if prefix else start
        if start > done:
            pieces.append(new(Piece, (Kind.CODE, done, start)))
        pieces.append(new(Piece, (kind, start, position)))
        done = position
    if done < len(text):
        pieces.append(Piece(Kind.CODE, done, len(text)))
    return pieces


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
        elif kind not in _TRIVIA:
            tokens.append(Token(kind, text[start:end], offset + start))
    return tokens


def closing(tokens: list[Token], opening: int) -> int:
    """Return the index of the bracket that closes the bracket at `opening`, or ``len(tokens)``."""
    depth = 0
    for index in range(opening, len(tokens)):
        text = tokens[index].text
        if text in _BRACKETS:
            depth += 1 if text in OPENING else -1
            if depth == 0:
                return index
    return len(tokens)


class Places(NamedTuple):
    """The sources, concatenated.

    Parameters
    ----------
    sources : tuple of SourceText
        Sources in the order of the offsets.
    bases : tuple of int
        Offset of each source's first character.
    """

    sources: tuple[SourceText, ...]
    bases: tuple[int, ...]

    @classmethod
    def of(cls, sources: Sequence[SourceText]) -> Places:
        """Concatenate `sources`, one character apart, so that the end of a source is not the start of the next."""
        bases = [0]
        for source in sources:
            bases.append(bases[-1] + len(source.text) + 1)
        return cls(tuple(sources), tuple(bases[:-1]))

    def source_index(self, offset: int) -> int:
        """Return the index of the source that contains `offset`."""
        return bisect_right(self.bases, offset) - 1

    def source(self, offset: int) -> SourceText:
        """Return the source that contains `offset`."""
        return self.sources[self.source_index(offset)]

    def line(self, offset: int) -> int:
        """Return the one-based line of `offset` in its source."""
        index = self.source_index(offset)
        return bisect_left(_line_ends(self.sources[index].text), offset - self.bases[index]) + 1

    def text(self, offset: int, length: int) -> str:
        """Return `length` characters of the source at `offset`."""
        index = self.source_index(offset)
        local = offset - self.bases[index]
        return self.sources[index].text[local : local + length]

    def span(self, offset: int, length: int = 1) -> SourceSpan:
        r"""Return the place of `length` characters at `offset`, cut at the end of the line.

        Examples
        --------
        >>> places = Places.of([SourceText(name="a.cu", text="int x;\nvoid f();\n")])
        >>> print(places.span(12, 1).render())
        a.cu:2:6
            void f();
                 ^
        """
        index = self.source_index(offset)
        source, local = self.sources[index], offset - self.bases[index]
        start = source.text.rfind("\n", 0, local) + 1
        end = source.text.find("\n", local)
        line_text = source.text[start : end if end >= 0 else len(source.text)].rstrip("\r")
        column = local - start + 1
        return SourceSpan(
            file=source.name,
            line=self.line(offset),
            column=column,
            length=max(1, min(length, len(line_text) - column + 1)),
            text=line_text,
        )

    def describe(self, offset: int) -> str:
        """Format `offset` as ``file:line:column``, for the second place in a message."""
        span = self.span(offset)
        return f"{span.file}:{span.line}:{span.column}"


@lru_cache(maxsize=8)
def _line_ends(text: str) -> list[int]:
    """Return the end of each line of `text`."""
    return [match.start() for match in re.finditer("\n", text)]


_INTEGER = r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)([uU]?)(?:[lL]|ll|LL)?"
_REAL = r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([fF]?)"
_TEXT = r'"([^"\\]*)"'
_NAME = r"(?::: )?\w+(?: :: \w+)*"
_BASES = {"0x": 16, "0b": 2}
_LONGEST = 400
"""Limit for the characters of a number, since Python does not convert an integer of more than 4300 digits."""


def read_literal(tokens: Sequence[Token], places: Places) -> tuple[Kind, str] | None:
    """Return the kind and the text of an expression that is one literal or one name; None for other expressions.

    A number, also a bool, is written as in Python or in an arg_spec; a qualified name loses its qualifiers.

    Examples
    --------
    >>> for text in ("-0.1f", "0x1'0u", "true", "Mode::kFast", '"sum"', "not true"):
    ...     print(read_literal(significant(text), Places.of([SourceText(name="a.cc", text=text)])))
    (<Kind.NUMBER: 'number'>, '-0.10000000149011612')
    (<Kind.NUMBER: 'number'>, '16')
    (<Kind.NUMBER: 'number'>, 'true')
    (<Kind.WORD: 'word'>, 'kFast')
    (<Kind.STRING: 'string'>, 'sum')
    None
    """
    texts = [token.text for token in tokens]
    sign = texts[0] if texts and texts[0] in "+-" else ""
    rest = tokens[len(sign) :]
    if len(rest) == 1 and rest[0].kind is Kind.NUMBER and len(texts[-1]) <= _LONGEST:
        number = _number(sign, texts[-1].replace("'", ""))
        return None if number is None else (Kind.NUMBER, number)
    if sign or not rest:
        return None
    if len(rest) == 1 and rest[0].kind is Kind.STRING:
        match = re.fullmatch(_TEXT, places.text(rest[0].start, len(texts[0])))  # the token's own text is blank
        return (Kind.STRING, match[1]) if match else None
    if rest[-1].kind is Kind.WORD and re.fullmatch(_NAME, " ".join(texts)):
        return (Kind.NUMBER if texts[-1] in ("true", "false") else Kind.WORD), texts[-1]
    return None


def _number(sign: str, text: str) -> str | None:
    integer = re.fullmatch(_INTEGER, text)
    if integer is not None:
        digits, unsigned = integer.groups()
        number = int(digits, _BASES.get(digits[:2].lower(), 8 if digits.startswith("0") else 10))
        return None if sign == "-" and unsigned else str(-number if sign == "-" else number)
    real = re.fullmatch(_REAL, text)
    if real is None:
        return None
    value = float(f"{sign}{real[1]}")
    if real[2] and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return None
    return repr(value) if math.isfinite(value) else None
