"""The preferences of the environment and of a project's file in one value. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.known import catalog
from be_toolchain.settings import table
from be_toolchain.settings.configuration import Configuration

GROUPS = ("env", "conda", "pip", "managed", "path", "system")
"""The groups of places for a CUDA toolkit, in the order in which they are searched unless told otherwise.

``env`` is CUDA_HOME and CUDA_PATH, ``conda`` the conda prefix, ``pip`` NVIDIA's wheels,
``managed`` the toolchains that `install` keeps side by side, ``path`` PATH, and ``system``
the variables of environment modules and the well-known folders.
"""


class Preferences(NamedTuple):
    """The settings that steer the search, each with its name; a variable comes before the same setting in a file.

    Parameters
    ----------
    nvcc, cxx : (variable, value), optional
        The only program that may be used.
    homes : tuple of (variable, value)
        Roots of CUDA toolkits.
    modules : tuple of (variable, value)
        Roots set by environment modules.
    groups : tuple of str
        All of `GROUPS`, preferred ones first.
    cuda_hosts : tuple of (variable, value)
        C++ compilers for nvcc, highest precedence first.
    plain_cxx : (variable, value), optional
        The value of ``CXX``.
    conda_prefix : str
        ``CONDA_PREFIX``, or empty.
    allow_unsupported_compiler : bool
        Let nvcc use a host compiler that it does not know.
    """

    nvcc: tuple[str, str] | None = None
    cxx: tuple[str, str] | None = None
    homes: tuple[tuple[str, str], ...] = ()
    modules: tuple[tuple[str, str], ...] = ()
    groups: tuple[str, ...] = GROUPS
    cuda_hosts: tuple[tuple[str, str], ...] = ()
    plain_cxx: tuple[str, str] | None = None
    conda_prefix: str = ""
    allow_unsupported_compiler: bool = False

    @property
    def compiler_names(self) -> frozenset[str]:
        """The variables, and keys of a file, that name a C++ compiler."""
        return frozenset(name for name, _ in filter(None, (*self.cuda_hosts, self.plain_cxx, self.cxx)))


def parse_preferences(environ: Mapping[str, str], configuration: Configuration | None = None) -> Preferences:
    """Read the variables that steer the search, and below them a project's file.

    Parameters
    ----------
    environ : Mapping of str to str
        Environment variables; empty ones count as unset.
    configuration : Configuration, optional
        The settings of a project's file.

    Returns
    -------
    Preferences

    Raises
    ------
    PreferenceError
        ``BE_NVCC_PREFER``, ``BE_ALLOW_UNSUPPORTED_COMPILER`` or ``prefer`` has an invalid value.

    Examples
    --------
    >>> parse_preferences({"BE_NVCC_PREFER": "system,pip"}).groups
    ('path', 'system', 'pip', 'env', 'conda', 'managed')
    """
    file = configuration or Configuration()

    def wish(key: str, value: str) -> tuple[tuple[str, str], ...]:
        return ((file.label(key), value),) if value else ()

    def every(*rows: table.Setting) -> tuple[tuple[str, str], ...]:
        return tuple(found for row in rows for found in table.set_variables(row.variables, environ))

    def first(row: table.Setting) -> tuple[str, str] | None:
        return next(iter(every(row)), None)

    allowed = table.read_setting(table.ALLOW_UNSUPPORTED, environ)
    return Preferences(
        nvcc=first(table.NVCC) or next(iter(wish("nvcc", file.nvcc)), None),
        cxx=first(table.CXX) or next(iter(wish("cxx", file.cxx)), None),
        homes=every(table.HOMES) + wish("cuda-home", file.cuda_home),
        modules=table.set_variables(catalog.MODULE_VARIABLES, environ),
        groups=_ordered_groups(first(table.PREFER) or next(iter(wish("prefer", ",".join(file.prefer))), None)),
        cuda_hosts=_flagged_hosts(environ) + every(table.CUDA_HOSTS) + wish("host-cxx", file.host_cxx),
        plain_cxx=first(table.PLAIN_CXX),
        conda_prefix=environ.get("CONDA_PREFIX", "").strip(),
        allow_unsupported_compiler=(file.allow_unsupported_compiler or False) if allowed is None else allowed,
    )


def _ordered_groups(preferred: tuple[str, str] | None) -> tuple[str, ...]:
    """Order all groups, preferred ones first; ``system`` is everything outside Python's environment but CUDA_HOME."""
    if preferred is None:
        return GROUPS
    name, value = preferred
    named: list[str] = []
    for word in value.lower().replace(",", " ").split():
        if word not in GROUPS:
            accepted = ", ".join(GROUPS)
            raise PreferenceError(
                f"{name} is {value!r}: {word!r} is no place for nvcc", hints=(f"use a comma list of {accepted}",)
            )
        named.extend(("path", "system") if word == "system" else (word,))
    return tuple(dict.fromkeys((*named, *GROUPS)))


def _flagged_hosts(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Find ``-ccbin`` in nvcc's flag variables: appended flags override the command line, prepended ones don't."""
    found = []
    for name in ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS"):
        path = parse_ccbin(environ.get(name, ""))
        if path:
            found.append((name, path))
    return tuple(found)


def parse_ccbin(flags: str) -> str:
    """Return the last host compiler named in a text of nvcc flags; empty when there is none.

    Examples
    --------
    >>> parse_ccbin("-O2 -ccbin=/usr/bin/g++-12")
    '/usr/bin/g++-12'
    >>> parse_ccbin("--compiler-bindir '/opt/my gcc/bin/g++' -O2")
    '/opt/my gcc/bin/g++'
    """
    try:
        words = shlex.split(flags)
    except ValueError:  # a quote without its end
        words = flags.split()
    found = ""
    for word, after in zip(words, [*words[1:], ""], strict=False):
        for flag in ("-ccbin", "--compiler-bindir"):
            if word == flag:
                found = after
            elif word.startswith(f"{flag}="):
                found = word.removeprefix(f"{flag}=")
    return found
