"""The files of one unit in a build folder, named in one place. Pure."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

SOURCES, OBJECTS = "src", "obj"
"""The folders of generated sources, and of what compilers make."""

_SUFFIX = {"cuda": ".cu", "cpp": ".cc"}


class UnitFiles(NamedTuple):
    """The files of one unit.

    Parameters
    ----------
    stem : str
        Begins their names: one that make, ninja and a shell take as it is, and that no other unit has.
    source, object, depfile : str
        Relative to the build folder, or absolute.
    """

    stem: str
    source: str
    object: str
    depfile: str


def unit_files(stem: str, language: str) -> UnitFiles:
    """The files of an author's unit.

    Parameters
    ----------
    stem : str
        The unit's, which may be any text.
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
    """The files of this very stem; one that begins with ``be_`` is no unit's."""
    return UnitFiles(
        stem=stem,
        source=f"{SOURCES}/{stem}{_SUFFIX[language]}",
        object=f"{OBJECTS}/{stem}.o",
        depfile=f"{OBJECTS}/{stem}.d",
    )
