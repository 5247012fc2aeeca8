"""Headers that NVRTC may read for a raw kernel. It reports none, so they are found in the texts. Pure, but for reading.

The search may find too many headers, but not too few: it follows both branches of an ``#if``, and tries a name in every
folder, whatever the order of the search. Only a header that is named by a macro remains unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_WORD = re.compile(r"include(?:_next)?\b[ \t\v\f(]*+(?:/\*.*?\*/[ \t\v\f]*+)*+(?=([^\n]*))")
_SPACE = r"[ \t\v\f]*+"
# If a comment ends on this line, the `#` may be on an earlier one.
_DIRECTIVE = re.compile(rf"{_SPACE}(?:#|%:){_SPACE}|.*\*/{_SPACE}(?:(?:#|%:){_SPACE})?|.*\b__has_")
_NAMED = re.compile(r"<([^>]+)>|\"([^\"]+)\"")


class Headers(NamedTuple):
    """Files that a compiler may read besides the source.

    Parameters
    ----------
    files : tuple of Path
        Headers that exist.
    absent : tuple of Path
        Paths at which a header would be read if it existed, except those below the compiler's own folders.
    unknown : tuple of str
        Descriptions of includes that name their header by a macro, except those in the compiler's own headers, which
        include others of the same release.
    """

    files: tuple[Path, ...]
    absent: tuple[Path, ...]
    unknown: tuple[str, ...] = ()


class Search(NamedTuple):
    """The search for headers: its folders and its access to files.

    Parameters
    ----------
    folders : tuple of Path
        Folders of the author.
    own : tuple of Path
        Folders of the compiler.
    built_in : container of str
        Names that are never searched for.
    read : callable
        Function that returns a file's text, or None if the file does not exist.
    resolve : callable
        Function that returns a folder's path without links and ``..``.
    """

    folders: tuple[Path, ...]
    own: tuple[Path, ...]
    built_in: Container[str]
    read: Callable[[Path], str | None]
    resolve: Callable[[Path], Path]


def named_paths(flags: Sequence[str]) -> tuple[Path, ...]:
    """List every absolute path that flags name, in any option.

    Examples
    --------
    >>> [str(path) for path in named_paths(["-I/a", "-I", "/b", "--use-pch=/c/x.pch", "-DX", "-Xptxas=-optf=/d,-v"])]
    ['/a', '/b', '/c/x.pch', '/d,-v', '/d']
    """
    texts = [flag[flag.index("/") :] for flag in flags if "/" in flag]
    return tuple(dict.fromkeys(Path(path) for text in texts for path in (text, text.split(",")[0])))


def find_headers(source: str, file_name: str, search: Search) -> Headers:
    """Find all headers that a source may include, directly or indirectly.

    Parameters
    ----------
    file_name : str
        Name of the source.

    Examples
    --------
    >>> files = {"/inc/a.h": '#include "b.h"', "/inc/b.h": "", "/cuda/c.h": "#include <a.h>"}
    >>> search = Search((Path("/inc"),), (Path("/cuda"),), (), lambda path: files.get(str(path)), lambda path: path)
    >>> found = find_headers("#include <c.h>", "k.cu", search)
    >>> [str(path) for path in found.files], [str(path) for path in found.absent]
    (['/cuda/c.h', '/inc/a.h', '/inc/b.h'], ['/inc/c.h'])
    """
    own = tuple(f"{folder}/" for folder in search.own)
    files: dict[Path, None] = {}
    absent: dict[Path, None] = {}
    unknown: dict[str, None] = {}
    followed: set[Path] = set()
    waiting: list[tuple[str, str, tuple[Path, ...]]] = [(source, file_name, ())]
    while waiting:
        text, where, beside = waiting.pop()
        for name in _included(text):
            if isinstance(name, _Macro):
                unknown |= {} if where.startswith(own) else {f"the header that {where} names as {name.text}": None}
                continue
            for path in () if name in search.built_in else _candidates(name, (*beside, *search.folders, *search.own)):
                if path in files or path in absent:
                    continue
                content = search.read(path)
                (absent if content is None else files)[path] = None
                # With `..`, one header may have any number of paths.
                place = search.resolve(path.parent) / path.name
                if content is not None and place not in followed:
                    followed.add(place)
                    waiting.append((content, str(path), (path.parent,)))
    return Headers(tuple(files), tuple(path for path in absent if not str(path).startswith(own)), tuple(unknown))


class _Macro(NamedTuple):
    """A macro that stands for a header's name."""

    text: str


def _included(text: str) -> Iterator[str | _Macro]:
    """Find the names of the headers that a text includes or tests for."""
    text = text.replace("\\\r\n", "").replace("\\\n", "")
    for match in _WORD.finditer(text):
        before = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if _DIRECTIVE.fullmatch(before) is None:
            continue
        named = _NAMED.match(match[1])
        if named is not None:
            yield named[1] or named[2]
        elif match[1][:1].isidentifier():
            yield _Macro(match[1].strip())


def _candidates(name: str, folders: Sequence[Path]) -> Iterator[Path]:
    if name.startswith("/"):
        yield Path(name)
    else:
        yield from (folder / name for folder in folders)
