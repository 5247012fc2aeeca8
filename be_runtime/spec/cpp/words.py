"""Words of an arg_spec's text, in annotations and in signatures. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

_PIECE = re.compile(r"[^\s\[({]+|\s+|.", re.DOTALL)
_CLOSING = {"[": "]", "{": "}", "(": ")"}


def split_words(text: str, start: int = 0) -> Iterator[tuple[int, str]]:
    """Split a text at its spaces, except for those in brackets; a bracket that nothing closes is a character.

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
