"""The author's linker flags as the host compiler takes them. Pure: the listing of folders is passed in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ListFolder = Callable[[Path], Sequence[str]]
"""A function that lists the names in a folder; empty if the folder does not exist."""


def link_flags(ldflags: Sequence[str], library_dirs: Sequence[Path], list_folder: ListFolder) -> tuple[str, ...]:
    """Write ``-rpath`` and ``-l`` so that the library is found, by the linker now and by the loader later.

    Parameters
    ----------
    ldflags : sequence of str
        Flags of the author; with an ``-rpath=`` of no folder among them, the loader searches only those of others.
    library_dirs : sequence of Path
        Folders for a ``-l`` name after the author's own ``-L`` folders, best first.
    list_folder : callable
        Function that lists a folder.

    Examples
    --------
    >>> link_flags(["-rpath=/a"], [], lambda folder: ())
    ('-Xlinker', '-rpath', '-Xlinker', '/a')
    >>> link_flags(["-lfoo", "-rpath="], [Path("/b")], lambda folder: ["libfoo.so.1"])
    ('/b/libfoo.so.1',)
    """
    is_portable = ("-rpath", "") in _options(ldflags)
    own = [Path(value) for option, value in _options(ldflags) if option == "-L"]
    found: list[str] = []
    for option, value in _options(ldflags):
        if option == "-rpath":
            found += rpath(value) if value else ()
        elif option == "-l" and not value.startswith(":"):
            flags = _library(value, own, library_dirs, list_folder)
            found += flags[:1] if is_portable else flags
        else:
            found.append(option + value)
    return tuple(found)


def _options(flags: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Split ``-l``, ``-L`` and ``-rpath``, in one piece or two, into (option, value); other flags are (flag, "")."""
    rest = iter(flags)
    for flag in rest:
        if flag in ("-l", "-L", "-rpath"):
            value = next(rest, None)
            yield (flag, "") if value is None else (flag, value)
        elif flag.startswith("-rpath="):
            yield "-rpath", flag.removeprefix("-rpath=")
        elif flag.startswith(("-l", "-L")):
            yield flag[:2], flag[2:]
        elif flag == "-Xlinker":
            yield flag, ""
            yield from ((value, "") for value in (next(rest, None),) if value is not None)
        else:
            yield flag, ""


def _library(name: str, own: Sequence[Path], library_dirs: Sequence[Path], list_folder: ListFolder) -> list[str]:
    """Return the flags that link the library `name`.

    A wheel has ``libcublas.so.13`` but no ``libcublas.so``, which ``-lcublas`` needs: the versioned file is linked
    instead, and found at run time through its folder.
    """
    for folder in dict.fromkeys((*own, *library_dirs)):
        names = list_folder(folder)
        if f"lib{name}.so" in names:
            return [f"-l{name}", *(() if folder in own else rpath(folder))]
        if f"lib{name}.a" in names:
            return [f"-l{name}"]
        versions = [version for each in names if (version := library_version(each, name)) is not None]
        if versions:
            newest = ".".join(map(str, max(versions)))
            return [str(folder / f"lib{name}.so.{newest}"), *rpath(folder)]
    return [f"-l{name}"]


def library_version(file: str, name: str) -> tuple[int, ...] | None:
    """Return the version in the file name of the shared library `name`; None for any other file."""
    match = re.fullmatch(rf"lib{re.escape(name)}\.so\.(\d+(?:\.\d+)*)", file)
    return None if match is None else tuple(map(int, match[1].split(".")))


def rpath(folder: str | Path) -> list[str]:
    """Return flags that make the loader search a folder; ``-Wl,`` would split it at its commas."""
    return ["-Xlinker", "-rpath", "-Xlinker", str(folder)]
