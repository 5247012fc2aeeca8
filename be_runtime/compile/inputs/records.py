"""The records of ``native/looked_at.c``: files that the programs of a build looked at. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from be_runtime.cache.validity.manifest import NO_FILES

CACHING_PROGRAMS = frozenset(("buildcache", "ccache", "clcache", "distcc", "icecc", "sccache"))
"""Programs that answer for a compiler: they look at other files than it would."""


class Records(NamedTuple):
    """Paths that programs looked at, each once, in order.

    Parameters
    ----------
    programs : tuple of str
        Programs that ran.
    there : tuple of str
        Files and folders that existed, including the programs.
    absent : tuple of str
        Paths that did not exist.
    listed : tuple of str
        Folders that were listed.
    made : tuple of str
        Files that programs wrote, made or removed; these are neither in `there` nor in `absent`.
    """

    programs: tuple[str, ...] = ()
    there: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    made: tuple[str, ...] = ()


def parse_records(data: bytes, outside: Iterable[str]) -> Records:
    r"""Parse the records that the programs of a build wrote.

    Parameters
    ----------
    data : bytes
        The records of all programs.
    outside : iterable of str
        Folders whose files are ignored, such as the build's own.

    Examples
    --------
    >>> parse_records(b"x/bin/cc\0-/a/k.h\0+/b/k.h\0w/tmp/k.s\0+/tmp/k.s\0+/build/k.cc\0", ["/build"])
    Records(programs=('/bin/cc',), there=('/bin/cc', '/b/k.h'), absent=('/a/k.h',), listed=(), made=('/tmp/k.s',))
    >>> parse_records(b"+/dev/null\0+/dev/shm/libx.a\0", ["/build"]).there
    ('/dev/shm/libx.a',)
    """
    found: dict[str, dict[str, None]] = {kind: {} for kind in "x+-lw"}
    skipped = tuple(f"{folder.rstrip('/')}/" for folder in outside)
    for record in dict.fromkeys(data.decode("utf-8", "surrogateescape").split("\0")):
        kind, path = record[:1], _plain(record[1:])
        if kind in found and path.startswith("/") and not path.startswith(skipped) and not NO_FILES.match(path):
            found[kind][path] = None
    made, programs = found["w"], found["x"]
    there = {path: None for path in (*programs, *found["+"], *found["l"]) if path not in made}
    absent = {path: None for path in found["-"] if path not in made and path not in there}
    return Records(tuple(programs), tuple(there), tuple(absent), tuple(found["l"]), tuple(made))


def library_names(files: Iterable[str], folders: Iterable[str]) -> Iterator[str]:
    """Return the paths at which a linker would find another library in place of one that it read.

    Examples
    --------
    >>> list(library_names(["/b/libm.so", "/b/crt1.o"], ["/a"]))
    ['/a/libm.so', '/a/libm.a']
    """
    names = {path.rpartition("/")[2] for path in files if ".so" in path or path.endswith(".a")}
    wanted = {name: None for each in sorted(names) for name in (each, *_siblings(each))}
    return (f"{folder}/{name}" for folder in folders for name in wanted)


def _siblings(name: str) -> tuple[str, ...]:
    """Return the name of the other file that ``-l`` may refer to."""
    stem, ending = name.rpartition(".")[::2]
    return tuple(f"{stem}.{other}" for other in ("so", "a") if {ending, other} == {"so", "a"})


def _plain(path: str) -> str:
    """Return a path without repeated slashes, and without a dot or slash at its end."""
    if "//" in path:
        path = re.sub("//+", "/", path)
    return path.removesuffix("/.").rstrip("/")
