"""The variables for programs whose output is read. Pure."""

from __future__ import annotations

from collections.abc import Mapping

PRINT_VARIABLES = (
    *("CC_LOG_DIAGNOSTICS", "CC_PRINT_HEADERS", "CC_PRINT_OPTIONS", "CC_PRINT_PROC_STAT", "CLICOLOR", "CLICOLOR_FORCE"),
    *("COLLECT_NO_DEMANGLE", "FORCE_COLOR", "GCC_COLORS", "GCC_EXTRA_DIAGNOSTIC_OUTPUT", "GCC_URLS", "LANGUAGE"),
    *("MAKEFLAGS", "MFLAGS", "NINJA_STATUS", "SHELLOPTS", "TERM_URLS"),
)
"""Variables by which people and surroundings, such as Jupyter and make, have programs print otherwise."""


def plain_environ(environ: Mapping[str, str], unset: tuple[str, ...] = ()) -> dict[str, str]:
    """The variables for a program whose output is read: messages in the C locale and without colours.

    Examples
    --------
    >>> plain_environ({"CLICOLOR_FORCE": "1", "HOME": "/home/me"})
    {'HOME': '/home/me', 'LC_ALL': 'C', 'TERM': 'dumb'}
    """
    left_out = {*PRINT_VARIABLES, *unset}
    kept = {name: value for name, value in environ.items() if name not in left_out}
    return kept | {"LC_ALL": "C", "TERM": "dumb"}
