"""Conversion of relative paths in an author's flags, which refer to the caller's folder, to absolute ones. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

_JOINED = ("-idirafter", "-isystem", "-iquote", "-rpath=", "-I", "-L")
_JOINED_FILES = ("-include=", "--pre-include=")
_SEPARATE = ("-idirafter", "-isystem", "-iquote", "-rpath", "-I", "-L")
_LONG = ("--include-path", "--system-include", "--library-path")
_FILES = ("-include", "-imacros", "--pre-include")
"""Options for files, which are searched among the headers if the caller's folder has none of that name."""
_LIBRARY = re.compile(r".*\.(?:so(?:\.\d+)*|a|o)", re.DOTALL)


def absolute_paths(flags: Sequence[str], cwd: Path, exists: Callable[[Path], bool]) -> tuple[str, ...]:
    """Make the paths of folders, and of existing libraries and headers, in flags absolute.

    Parameters
    ----------
    flags : sequence of str
        Flags of a compiler or linker.
    cwd : Path
        Folder that relative paths refer to.
    exists : callable
        Function that tells whether a file exists.

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
    """Make a path absolute, unless it is already or is relative to the loaded library.

    A leading ``=`` stands for the sysroot, which is empty if it isn't given, or belongs to the option. A leading comma
    precedes nvcc's next flag for the host compiler.
    """
    if value[:1] == "=" and value[1:2] not in ("", "="):
        return f"={_absolute(value[1:], cwd)}"
    return value if not value or value[0] in "/$=-," else str(cwd / value)
