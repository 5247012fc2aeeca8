"""Text of any origin, such as paths, files and compilers' output, made safe for terminals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

_BIDI = (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_SEPARATORS = (0x2028, 0x2029)
_UNDECODED = range(0xDC80, 0xDCA0)  # bytes that are no UTF-8, and controls on terminals of eight bits
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))

_ESCAPES = {code: f"\\x{code:02x}" for code in _CONTROLS}
_ESCAPES |= {code: f"\\u{code:04x}" for code in (*_BIDI, *_SEPARATORS)}
_ESCAPES |= {code: f"\\x{code - 0xDC00:02x}" for code in _UNDECODED}
_IN_LINES = {code: text for code, text in _ESCAPES.items() if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    r"""A text with control characters, and those that reorder others, spelt out; line ends and tabs stay.

    Examples
    --------
    >>> print(printable("\x1b]0;title\x07 of \x9b2J"))
    \x1b]0;title\x07 of \x9b2J
    """
    return text if text.isprintable() else text.replace("\r\n", "\n").translate(_IN_LINES)


def printable_line(text: str) -> str:
    r"""The same in one line.

    Examples
    --------
    >>> print(printable_line("a\nb"))
    a\x0ab
    """
    return text if text.isprintable() else text.translate(_ESCAPES)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Align the columns of rows; the first row has the heads.

    Examples
    --------
    >>> print(table([("name", "size"), ("negation", "1 KiB")]))
    name      size
    negation  1 KiB
    """
    shown = [[printable_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in shown)
    return "\n".join(line.rstrip() for line in lines)


def without_credentials(text: str) -> str:
    """A URL, or what was meant to be one, without the user and the password in it, or the query that may be one.

    Examples
    --------
    >>> without_credentials("https://ci:secret@cache.example.org/kernels")
    'https://...@cache.example.org/kernels'
    >>> without_credentials("https://cache.example.org/kernels?sig=secret")
    'https://cache.example.org/kernels?...'
    """
    import re

    text = re.sub(r"(://[^\s?'\"]*\?)[^\s'\"]+", r"\1...", text)
    before, mark, after = text.rpartition("@")
    return f"{before[: before.find('://') + 3] if '://' in before else ''}...@{after}" if mark else text


def say(text: object, file: TextIO | None = None) -> None:
    """Print a text for people."""
    print(f"{printable(str(text))}\n", end="", file=file)  # at once: other threads may print too


def hand_over(text: str) -> None:
    """Print a text for programs, which get it as it is; a terminal does not."""
    import sys

    print(printable(text) if sys.stdout.isatty() else text)  # noqa: T201 - the same
