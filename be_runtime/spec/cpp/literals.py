"""C++ literals that are the default of a parameter or of a field. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.spec.cpp.lexer import Kind, Token
from be_runtime.spec.cpp.places import Places

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+)([uU]?)(?:[lL]|ll|LL)?")
_REAL = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([fF]?)")
_TEXT = re.compile(r'"([^"\\]*)"')
_BASES = {"0x": 16, "0b": 2}


class Literal(NamedTuple):
    """A literal, or the name of a constant.

    Parameters
    ----------
    kind : Kind
        ``Kind.NUMBER``, also for a bool, ``Kind.STRING``, or ``Kind.WORD`` for a name.
    text : str
        The number as Python writes it, ``true`` or ``false``; the characters of a string; the last part of a name.
    """

    kind: Kind
    text: str


def read_literal(tokens: Sequence[Token], places: Places) -> Literal | None:
    """Read an expression that is one literal, or one name; None for any other.

    Examples
    --------
    >>> from be_runtime.source_text import SourceText
    >>> from be_runtime.spec.cpp.lexer import significant
    >>> texts = "-3", "0.1f", "0x1'0u", "true", "Mode::kFast", '"sum"', "n + 1"
    >>> for text in texts:
    ...     literal = read_literal(significant(text), Places.of([SourceText(name="a.cc", text=text)]))
    ...     print(literal and (literal.kind.value, literal.text))
    ('number', '-3')
    ('number', '0.10000000149011612')
    ('number', '16')
    ('number', 'true')
    ('word', 'kFast')
    ('string', 'sum')
    None
    """
    texts = [token.text for token in tokens]
    sign = texts[0] if texts and texts[0] in "+-" else ""
    rest = tokens[len(sign) :]
    if len(rest) == 1 and rest[0].kind is Kind.NUMBER:
        return _number(sign, rest[0].text.replace("'", ""))
    if sign or not rest:
        return None
    if len(rest) == 1 and rest[0].kind is Kind.STRING:
        # Literals are blanked in the tokens.
        match = _TEXT.fullmatch(places.text(rest[0].start, len(rest[0].text)))
        return Literal(Kind.STRING, match[1]) if match else None
    if rest[-1].kind is Kind.WORD and all((token.text == "::") != (token.kind is Kind.WORD) for token in rest):
        return Literal(Kind.NUMBER if texts[-1] in ("true", "false") else Kind.WORD, texts[-1])
    return None


def _number(sign: str, text: str) -> Literal | None:
    integer = _INTEGER.fullmatch(text)
    if integer is not None:
        digits, unsigned = integer.groups()
        base = _BASES.get(digits[:2].lower(), 8 if digits.startswith("0") else 10)
        try:
            number = int(digits, base)
        except ValueError:
            return None
        return None if sign == "-" and unsigned else Literal(Kind.NUMBER, str(-number if sign == "-" else number))
    real = _REAL.fullmatch(text)
    if real is None:
        return None
    value = float(f"{sign}{real[1]}")
    try:
        value = struct.unpack("<f", struct.pack("<f", value))[0] if real[2] else value
    except OverflowError:
        return None
    return Literal(Kind.NUMBER, repr(value)) if math.isfinite(value) else None
