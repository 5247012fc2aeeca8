"""The headers that NVRTC may read for a raw kernel, found in the texts, since it tells nobody. Pure, but for reading.

Rather too much is found than too little: both branches of an ``#if`` are followed, and a name is tried in every folder,
whatever the order of the search. Only a header that a macro names can't be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_WORD = re.compile(r"include(?:_next)?\b[ \t\v\f(]*+(?:/\*.*?\*/[ \t\v\f]*+)*+(?=([^\n]*))")
_SPACE = r"[ \t\v\f]*+"
# Where a comment ends on the line, the `#` may be on an earlier one.
_DIRECTIVE = re.compile(rf"{_SPACE}(?:#|%:){_SPACE}|.*\*/{_SPACE}(?:(?:#|%:){_SPACE})?|.*\b__has_")
_NAMED = re.compile(r"<([^>]+)>|\"([^\"]+)\"")


class Headers(NamedTuple):
    """What a compiler may read besides the source.

    Parameters
    ----------
    files : tuple of Path
        Headers that are there.
    absent : tuple of Path
        Where a header would be read if it were there; without those below the compiler's own folders.
    unknown : tuple of str
        Each include that names its header by a macro, in words; without those in the compiler's own headers, which
        lead to others of the same release.
    """

    files: tuple[Path, ...]
    absent: tuple[Path, ...]
    unknown: tuple[str, ...] = ()


class Search(NamedTuple):
    """Where headers are looked for.

    Parameters
    ----------
    folders : tuple of Path
        The author's.
    own : tuple of Path
        The compiler's.
    built_in : container of str
        Names that are never looked for.
    read : callable
        A file's text, or None where there is none.
    resolve : callable
        A folder without links and ``..``.
    """

    folders: tuple[Path, ...]
    own: tuple[Path, ...]
    built_in: Container[str]
    read: Callable[[Path], str | None]
    resolve: Callable[[Path], Path]


def named_paths(flags: Sequence[str]) -> tuple[Path, ...]:
    """Every absolute path that flags name, in whatever option.

    Examples
    --------
    >>> [str(path) for path in named_paths(["-I/a", "-I", "/b", "--use-pch=/c/x.pch", "-DX", "-Xptxas=-optf=/d,-v"])]
    ['/a', '/b', '/c/x.pch', '/d,-v', '/d']
    """
    texts = [flag[flag.index("/") :] for flag in flags if "/" in flag]
    return tuple(dict.fromkeys(Path(path) for text in texts for path in (text, text.split(",")[0])))


def find_headers(source: str, file_name: str, search: Search) -> Headers:
    """All that a source may include, directly or through others.

    Parameters
    ----------
    file_name : str
        What the source is called.

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
                # Spelt through `..`, one header may have any number of paths.
                place = search.resolve(path.parent) / path.name
                if content is not None and place not in followed:
                    followed.add(place)
                    waiting.append((content, str(path), (path.parent,)))
    return Headers(tuple(files), tuple(path for path in absent if not str(path).startswith(own)), tuple(unknown))


class _Macro(NamedTuple):
    """What stands for a header's name."""

    text: str


def _included(text: str) -> Iterator[str | _Macro]:
    """The names of the headers that a text includes or asks for."""
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
