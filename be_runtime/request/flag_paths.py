"""Relative paths in an author's flags, made absolute: they mean the caller's folder; builds run in another. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

_JOINED = ("-idirafter", "-isystem", "-iquote", "-rpath=", "-I", "-L")
_JOINED_FILES = ("-include=", "--pre-include=")
_SEPARATE = ("-idirafter", "-isystem", "-iquote", "-rpath", "-I", "-L")
_LONG = ("--include-path", "--system-include", "--library-path")
_FILES = ("-include", "-imacros", "--pre-include")
"""Their files are searched among the headers where the caller's folder has none of that name."""
_LIBRARY = re.compile(r".*\.(?:so(?:\.\d+)*|a|o)", re.DOTALL)


def absolute_paths(flags: Sequence[str], cwd: Path, exists: Callable[[Path], bool]) -> tuple[str, ...]:
    """The flags, with the paths of folders, and of libraries and headers that exist, made absolute.

    Parameters
    ----------
    flags : sequence of str
        Of a compiler or linker.
    cwd : Path
        What relative paths are relative to.
    exists : callable
        Whether there is such a file.

    Examples
    --------
    >>> absolute_paths(["-Iinclude", "-L", ".", "-DX=-Iy", "-rpath=$ORIGIN"], Path("/a"), lambda path: False)
    ('-I/a/include', '-L', '/a', '-DX=-Iy', '-rpath=$ORIGIN')
    >>> absolute_paths(["-Xcompiler", "-isystem,/b"], Path("/a"), lambda path: False)
    ('-Xcompiler', '-isystem,/b')
    """
    found: list[str] = []
    for index, flag in enumerate(flags):
        before = flags[index - 1] if index else ""
        if before in (*_SEPARATE, *_LONG):
            found.append(_absolute(flag, cwd))
        elif before in _FILES or (_LIBRARY.fullmatch(flag) and not flag.startswith("-")):
            found.append(_absolute(flag, cwd) if exists(cwd / flag) else flag)
        elif flag.startswith(_JOINED_FILES):
            option, _, value = flag.partition("=")
            found.append(f"{option}={_absolute(value, cwd) if exists(cwd / value) else value}")
        else:
            found.append(_joined(flag, cwd))
    return tuple(found)


def _joined(flag: str, cwd: Path) -> str:
    for option in (*(f"{option}=" for option in _LONG), *_JOINED):
        value = flag.removeprefix(option)
        if value not in (flag, ""):
            return option + _absolute(value, cwd)
    return flag


def _absolute(value: str, cwd: Path) -> str:
    """A path that is not absolute, nor relative to the loaded library, as an absolute one.

    ``=`` before it is a sysroot, which is none where it isn't named, or belongs to the option. After a comma comes
    nvcc's next flag for the host compiler.
    """
    if value[:1] == "=" and value[1:2] not in ("", "="):
        return f"={_absolute(value[1:], cwd)}"
    return value if not value or value[0] in "/$=-," else str(cwd / value)
