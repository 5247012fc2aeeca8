"""CUDA's programs that look into device code, which a toolkit need not have, and the C++ library's reader of names."""

from __future__ import annotations

import ctypes
import ctypes.util
from functools import cache
from pathlib import Path
from typing import NamedTuple

from be_toolchain.machine.system import System

PACKAGES = "pip install 'brainevent-toolchain[inspect]'"
"""The command that installs them."""

_LONG_S = 120.0


class InspectionTools(NamedTuple):
    """The programs; None for one that is not here."""

    cuobjdump: Path | None
    nvdisasm: Path | None


def find_inspection_tools(system: System) -> InspectionTools:
    """Find the programs: in wheels of this Python, in its prefix, on PATH, in the usual place."""
    wheels = [site / "nvidia" / name / "bin" for site in system.site_dirs for name in ("cu14", "cu13")]
    prefixes = (prefix / "bin" for prefix in system.prefixes)
    folders = (*wheels, *prefixes, *system.path_dirs, Path("/usr/local/cuda/bin"))

    def first(name: str) -> Path | None:
        return next((folder / name for folder in folders if system.is_program(folder / name)), None)

    return InspectionTools(first("cuobjdump"), first("nvdisasm"))


def ask(system: System, *argv: str | Path) -> str:
    """Return the output of a program; empty if it failed, such as for code of a newer toolkit."""
    answer = system.run(tuple(map(str, argv)), timeout_s=_LONG_S)
    return answer.text if answer.returncode == 0 else ""


def readable(symbol: str) -> str:
    """Return a kernel's name as C++ spells it, without its parameters.

    Examples
    --------
    >>> readable("_Z4rowsILi4EEvPKfPf"), readable("plain")
    ('rows<4>', 'plain')
    """
    text = _demangle(symbol).replace("(anonymous namespace)", "{anonymous}").removeprefix("void ")
    return text.partition("(")[0] if symbol.startswith("_Z") else symbol


def _demangle(symbol: str) -> str:
    """Ask the C++ library, by the function of the Itanium ABI, which every process with XLA has loaded."""
    demangle = _demangler()
    if demangle is None:
        return symbol
    status, length = ctypes.c_int(), ctypes.c_size_t()
    found = demangle(symbol.encode(), None, ctypes.byref(length), ctypes.byref(status))
    if not found:
        return symbol
    try:
        return (ctypes.string_at(found) or b"").decode("utf-8", "replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)


@cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    return demangle
