"""C++ literals that are the default of a parameter or of a field. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Sequence

from be_runtime.spec.cpp.lexer import Kind, Token
from be_runtime.spec.cpp.places import Places

_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)([uU]?)(?:[lL]|ll|LL)?")
_REAL = re.compile(r"((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)([fF]?)")
_TEXT = re.compile(r'"([^"\\]*)"')
_NAME = re.compile(r"(?::: )?\w+(?: :: \w+)*")
_BASES = {"0x": 16, "0b": 2}
_LONGEST = 400
"""Limit for the characters of a number; Python converts no integer of 4300."""


def read_literal(tokens: Sequence[Token], places: Places) -> tuple[Kind, str] | None:
    """Read an expression that is one literal, or one name; None for any other.

    A number, also a bool, is written as Python or the arg_spec does; of a name the last part counts.

    Examples
    --------
    >>> from be_runtime.source_text import SourceText
    >>> from be_runtime.spec.cpp.lexer import significant
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
        match = _TEXT.fullmatch(places.text(rest[0].start, len(texts[0])))  # the token's own text is blank
        return (Kind.STRING, match[1]) if match else None
    if rest[-1].kind is Kind.WORD and _NAME.fullmatch(" ".join(texts)):
        return (Kind.NUMBER if texts[-1] in ("true", "false") else Kind.WORD), texts[-1]
    return None


def _number(sign: str, text: str) -> str | None:
    integer = _INTEGER.fullmatch(text)
    if integer is not None:
        digits, unsigned = integer.groups()
        number = int(digits, _BASES.get(digits[:2].lower(), 8 if digits.startswith("0") else 10))
        return None if sign == "-" and unsigned else str(-number if sign == "-" else number)
    real = _REAL.fullmatch(text)
    if real is None:
        return None
    value = float(f"{sign}{real[1]}")
    if real[2] and math.isfinite(value):
        try:
            (value,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return None
    return repr(value) if math.isfinite(value) else None
