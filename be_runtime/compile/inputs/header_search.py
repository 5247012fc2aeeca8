"""Folders that are searched for headers, and headers that a source asks for without including them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ASKED = re.compile(r"\b__has_include(?:_next)?[ \t]*\([ \t]*(?:[<\"]([^>\"\n]+)[>\"])?")
_OPTIONS = (
    ("-iquote",),
    ("-I", "--include-path"),
    ("-isystem", "--system-include"),
    ("-idirafter",),
)
"""Options that name folders, in the order in which the folders are searched."""


def names_asked_for(text: str) -> tuple[str, ...]:
    """Return the headers named by ``__has_include`` anywhere in a text; an empty name where a macro spells it.

    Examples
    --------
    >>> names_asked_for("#if __has_include(<tbb/tbb.h>) || __has_include(CONFIG)")
    ('tbb/tbb.h', '')
    """
    return tuple(_ASKED.findall(text)) if "__has_include" in text else ()


def include_folders(flags: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that a compiler's flags name, in the order in which they are searched.

    Examples
    --------
    >>> include_folders(["-isystem", "/c", "-I/a", "--include-path=/b"])
    ('/a', '/b', '/c')
    """
    found: dict[str, None] = {}
    for options in _OPTIONS:
        for flag, following in zip(flags, (*flags[1:], ""), strict=False):
            option = next((option for option in options if flag.startswith(option)), None)
            if option is not None:
                found[flag.removeprefix(option).removeprefix("=") or following] = None
    return tuple(folder for folder in found if folder.startswith("/"))
