"""Levels of CPU instructions that compiled host code may need, and those that this machine has.

The levels are those of the x86-64 psABI (https://gitlab.com/x86-psABIs/x86-64-ABI), by the names of Linux's flags.
"""

from __future__ import annotations

import platform
from functools import lru_cache
from pathlib import Path

from be_runtime.errors import ArgumentError, LoadError

DEFAULT = "x86-64-v3"
"""The level for exported programs on x86-64."""

_LEVELS = {
    "x86-64": frozenset(),
    "x86-64-v2": frozenset(["cx16", "lahf_lm", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3"]),
    "x86-64-v3": frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"]),
    "x86-64-v4": frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"]),
}
"""Flags that each level adds to those before it."""

_CPUINFO = Path("/proc/cpuinfo")


def default_baseline(machine: str) -> str:
    """Return the level of exported code for a machine; empty where there are no levels. Pure."""
    return DEFAULT if machine == "x86_64" else ""


def check_baseline(value: object, machine: str) -> str:
    """Check the name of a level; an empty one is that of every such machine. Pure.

    Raises
    ------
    ArgumentError
        There is no such level for the machine.
    """
    known = ("", *_LEVELS) if machine == "x86_64" else ("",)
    if value not in known:
        names = ", ".join(filter(None, known)) or "none"
        raise ArgumentError(f"baseline={value!r} is not a level of {machine}; there are: {names}")
    return str(value)


def required_flags(baseline: str) -> frozenset[str]:
    """Return the flags of all levels up to one. Pure.

    Examples
    --------
    >>> sorted(required_flags("x86-64-v3") - required_flags("x86-64-v2"))[:3]
    ['abm', 'avx', 'avx2']
    """
    names = list(_LEVELS)
    at = names.index(baseline) if baseline in names else 0
    return frozenset().union(*(_LEVELS[name] for name in names[: at + 1]))


def require_machine(machine: str, where: str) -> None:
    """Check that code is for this machine.

    Raises
    ------
    LoadError
        It is for another one.
    """
    if machine != platform.machine():
        raise LoadError(
            f"{where} was built for {machine}, and this machine is {platform.machine()}",
            hints=(f"build it on a {platform.machine()} machine",),
        )


def require_baseline(baseline: str, where: str, cpuinfo: Path = _CPUINFO) -> None:
    """Check that this CPU has the instructions of a level.

    Raises
    ------
    LoadError
        It lacks some of them.
    """
    lacking = sorted(required_flags(baseline) - _flags(cpuinfo)) if baseline else []
    if lacking:
        raise LoadError(
            f"{where} needs a CPU of level {baseline}, and this one lacks {', '.join(lacking)}",
            hints=("build it for an older level, such as baseline='x86-64-v2' or 'x86-64'",),
        )


@lru_cache(maxsize=4)
def _flags(cpuinfo: Path) -> frozenset[str]:
    """Return the flags of the first core; all of them if the system does not say, so that nothing is refused."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = (line.partition(":")[2] for line in text.splitlines() if line.startswith("flags"))
    return frozenset(next(lines, "").split()) or required_flags("x86-64-v4")
