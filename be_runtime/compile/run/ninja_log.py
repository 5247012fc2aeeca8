"""Success and duration of a build's commands, from ninja's own log.

Its format, from version 5 on, has a line for each output with start and end in milliseconds, the output's modification
time, its path and a hash of the command, separated by tabs. The last line of an output counts, and a failed command has
none: https://ninja-build.org/manual.html#ref_log.
"""

from __future__ import annotations

import re
from pathlib import Path

_LOG = ".ninja_log"
_TIMES = re.compile(r"[0-9]{1,18} [0-9]{1,18}")


class NinjaLog:
    """The part of a folder's log that one run of ninja adds; the object is made before ninja starts.

    Ninja adds a command before it prints the status line of the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _LOG
        self._read_bytes = self._path.stat().st_size if self._path.exists() else 0
        self._seconds: dict[str, float] = {}

    def seconds(self, output: str) -> float | None:
        """Return the duration of the command that made an output; None if none has made it yet."""
        if output not in self._seconds and self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                added = file.read()
            self._read_bytes += len(added)
            self._seconds |= parse_ninja_log(added.decode("utf-8", "surrogateescape"))
        return self._seconds.get(output)


def parse_ninja_log(text: str) -> dict[str, float]:
    r"""Read the seconds for each output.

    Examples
    --------
    >>> parse_ninja_log("# ninja log v6\n0\t120\t1\tobj/a.o\tf0\n120\t150\t2\tmodule.so\tf1\n")
    {'obj/a.o': 0.12, 'module.so': 0.03}
    """
    seconds = {}
    for line in text.splitlines():
        start, _, rest = line.partition("\t")
        fields = rest.split("\t")
        if len(fields) == 4 and _TIMES.fullmatch(f"{start} {fields[0]}"):
            seconds[fields[2]] = (int(fields[0]) - int(start)) / 1000
    return seconds
