"""Where headers are looked for, and which a source asks for without including them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import NamedTuple

_ASKED = re.compile(r"\b__has_include(?:_next)?[ \t]*\([ \t]*(?:([<\"])([^>\"\n]+)[>\"])?")
_OPTIONS = (
    ("-iquote",),
    ("-I", "--include-path"),
    ("-isystem", "--system-include"),
    ("-idirafter",),
)
"""The options that name folders, in the order in which these are searched."""


class Question(NamedTuple):
    """One ``__has_include``.

    Parameters
    ----------
    name : str
        The header, empty where a macro spells it.
    is_quoted : bool
        Whether the folder of the file that asks is searched first.
    """

    name: str
    is_quoted: bool

    def candidates(self, asking: str, folders: Sequence[str]) -> Iterator[str]:
        """The paths where the header may be, in the order of the search.

        Parameters
        ----------
        asking : str
            The folder of the file that asks.
        folders : sequence of str
            Searched by every file.
        """
        if self.name.startswith("/"):
            yield self.name
        elif self.name:
            yield from (str(PurePath(folder, self.name)) for folder in ((asking,) if self.is_quoted else ()))
            yield from (str(PurePath(folder, self.name)) for folder in folders)


def questions(text: str) -> tuple[Question, ...]:
    """What a source or header asks for, wherever in it.

    Examples
    --------
    >>> questions("#if __has_include(<tbb/tbb.h>) || __has_include(CONFIG)")
    (Question(name='tbb/tbb.h', is_quoted=False), Question(name='', is_quoted=False))
    """
    if "__has_include" not in text:
        return ()
    return tuple(Question(name, sign == '"') for sign, name in _ASKED.findall(text))


def include_folders(flags: Sequence[str]) -> tuple[str, ...]:
    """The folders that a compiler's flags name, in the order in which they are searched.

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
