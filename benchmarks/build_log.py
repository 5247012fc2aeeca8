"""What a build's log says of the time its commands took. Pure."""

from __future__ import annotations

import re

_TIMED = re.compile(r"^# (?P<what>.+): (?P<seconds>\d+\.\d+) s$", re.MULTILINE)


def perfect_seconds(log: str, cores: int) -> float:
    r"""How long the build would take if its compilers kept every core busy, and then the rest ran.

    Parameters
    ----------
    log : str
        A module's ``build.log``.
    cores : int

    Raises
    ------
    ValueError
        No command is timed in it.

    Examples
    --------
    >>> log = "# compiling a.cu: 3.00 s\n$ nvcc\n# compiling b.cu: 1.00 s\n$ nvcc\n# linking: 0.25 s\n$ g++\n"
    >>> perfect_seconds(log, cores=2)
    2.25
    """
    timed = [(found["what"], float(found["seconds"])) for found in _TIMED.finditer(log)]
    if not timed:
        raise ValueError("the build's log has no timed command")
    compiling = sum(seconds for what, seconds in timed if what.startswith("compiling"))
    return compiling / cores + sum(seconds for what, seconds in timed if not what.startswith("compiling"))
