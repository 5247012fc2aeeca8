"""How long each command of a build took, from ninja's own log.

Its format, from version 5 on: a line for each output with start and end in milliseconds, the output's modification
time, its path and a hash of the command, separated by tabs. The last line of an output counts, and a command that
failed has none: https://ninja-build.org/manual.html#ref_log.
"""

from __future__ import annotations

from pathlib import Path

_LOG = ".ninja_log"


def read_ninja_log(folder: Path) -> dict[str, float]:
    """Seconds by output, of every command that succeeded in a build folder."""
    try:
        text = (folder / _LOG).read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:  # there was nothing to do
        return {}
    return parse_ninja_log(text)


def parse_ninja_log(text: str) -> dict[str, float]:
    r"""Seconds by output.

    Examples
    --------
    >>> parse_ninja_log("# ninja log v6\n0\t120\t1\tobj/a.o\tf0\n120\t150\t2\tmodule.so\tf1\n")
    {'obj/a.o': 0.12, 'module.so': 0.03}
    """
    seconds = {}
    for line in text.splitlines():
        start, _, rest = line.partition("\t")
        fields = rest.split("\t")
        if start.isdecimal() and len(fields) == 4 and fields[0].isdecimal():
            seconds[fields[2]] = (int(fields[0]) - int(start)) / 1000
    return seconds
