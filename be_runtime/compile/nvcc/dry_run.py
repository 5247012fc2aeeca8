r"""Parser of the output of ``nvcc --dryrun``. Pure.

Each line that nvcc would hand to the shell begins with ``#$ ``: first assignments, then commands, some of them for
nvcc itself (``-- Filter Dependencies --``) or the clean-up (``rm``). The format is not documented; `parse_dryrun`
returns None for unexpected output, and the caller runs plain nvcc.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

_MARK = "#$ "
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_VARIABLE = re.compile(r"\$(\w+)")


class NvccSteps(NamedTuple):
    """The steps of one nvcc call.

    Parameters
    ----------
    environ : mapping of str to str
        The variables that nvcc sets for its tools.
    commands : tuple of tuple of str
        Commands that nvcc would run, without shell quoting.
    """

    environ: Mapping[str, str]
    commands: tuple[tuple[str, ...], ...]


def parse_dryrun(text: str) -> NvccSteps | None:
    r"""Parse a dry run; return None if it is not understood.

    Parameters
    ----------
    text : str
        The standard output and error of ``nvcc --dryrun --keep …``.

    Examples
    --------
    >>> parse_dryrun('#$ CICC_PATH=/c/bin\n#$ "$CICC_PATH/cicc" -arch compute_90 "a.ii"\n').commands
    (('/c/bin/cicc', '-arch', 'compute_90', 'a.ii'),)
    """
    environ: dict[str, str] = {}
    commands = []
    for line in text.splitlines():
        if not line.startswith(_MARK):
            if line.strip():
                return None  # a warning or an error: plain nvcc shows it where it belongs
            continue
        body = line.removeprefix(_MARK)
        assignment = _ASSIGNMENT.fullmatch(body)
        if assignment is not None:
            environ[assignment[1]] = assignment[2].strip()
            continue
        if body.startswith("--"):
            continue
        argv = _split(body, environ)
        if argv is None:
            return None
        commands.append(argv)
    return NvccSteps(environ=environ, commands=tuple(commands)) if commands else None


def _split(command: str, environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Split a shell command into arguments; return None if it uses more than quotes and known variables."""
    if any(name not in environ for name in _VARIABLE.findall(command)) or "`" in command:
        return None
    try:
        words = shlex.split(_VARIABLE.sub(lambda match: environ[match[1]], command))
    except ValueError:
        return None
    return None if any(word in {"|", ">", ";", "&&", "<"} for word in words) else tuple(words)
