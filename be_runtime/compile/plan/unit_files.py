"""The names of a unit's files in a build folder. Pure."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

SOURCES, OBJECTS = "src", "obj"
"""The folders of generated sources and of compiler output."""

_SUFFIX = {"cuda": ".cu", "cpp": ".cc"}


class UnitFiles(NamedTuple):
    """The files of one unit.

    Parameters
    ----------
    stem : str
        Start of their names, which is unique and needs no quoting for make, ninja and a shell.
    source, object, depfile : str
        Paths relative to the build folder, or absolute.
    """

    stem: str
    source: str
    object: str
    depfile: str


def unit_files(stem: str, language: str) -> UnitFiles:
    """Name the files of an author's unit.

    Parameters
    ----------
    stem : str
        Stem of the unit, which may be any text.
    language : str
        ``"cuda"`` or ``"cpp"``.

    Examples
    --------
    >>> unit_files("k", "cuda").object
    'obj/k.o'
    """
    plain = re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)
    if plain != stem or stem.startswith("be_"):
        plain = f"{plain}.{sha256(stem.encode(errors='surrogateescape')).hexdigest()[:8]}"
    return files_named(plain, language)


def files_named(stem: str, language: str) -> UnitFiles:
    """Name the files of a stem, which is used unchanged; one that begins with ``be_`` is not a unit's."""
    return UnitFiles(
        stem=stem,
        source=f"{SOURCES}/{stem}{_SUFFIX[language]}",
        object=f"{OBJECTS}/{stem}.o",
        depfile=f"{OBJECTS}/{stem}.d",
    )
