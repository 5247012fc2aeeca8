"""The files that a person edits, among all that a build read."""

from __future__ import annotations

import re
from collections.abc import Iterable

from be_runtime.cache import CacheKey, Entry
from be_runtime.load.find_or_build import machine_roots
from be_toolchain.machine.system import System

_PLACE = re.compile(r"(/[^\s:\"'`(),][^:(\n\"'`]*)[:(]\d+")
"""A file and a line, as compilers write them."""


def author_files(entry: Entry, key: CacheKey, system: System) -> tuple[str, ...]:
    """Return the sources and headers that a module was made of, without those of compilers and Python packages."""
    texts = key.texts("toolchain")
    toolchain = dict(zip(texts[::2], texts[1::2], strict=True))
    hosts = (toolchain.get(f"{label}.path", "") for label in ("cxx", "cuda.host"))
    folders = [folder for folder, _ in machine_roots(system)]
    folders += [toolchain.get("cuda.root", ""), *(path[: path.rfind("/bin/")] for path in hosts if "/bin/" in path)]
    return edited(entry.manifest.dependencies.paths, folders)


def edited(paths: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lie neither below these folders nor below ``/usr``.

    Examples
    --------
    >>> edited(["/usr/include/math.h", "/env/lib/x.h", "/home/me/k.cuh"], ["/env"])
    ('/home/me/k.cuh',)
    """
    below = tuple(f"{folder}/" for folder in {"/usr", *folders} if folder)
    return tuple(path for path in paths if not path.startswith(below))


def named_files(output: str) -> tuple[str, ...]:
    """Return the files that a compiler's output names with a line.

    Examples
    --------
    >>> named_files("In file included from /a/k.cu:3: /a/k.cuh:7:1: error: no, /a/l.cuh(3): error: no")
    ('/a/k.cu', '/a/k.cuh', '/a/l.cuh')
    """
    return tuple(dict.fromkeys(match[1] for match in _PLACE.finditer(output)))
