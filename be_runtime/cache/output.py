"""What a build hands to the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache.validity.manifest import FileRecord


class Recorded(NamedTuple):
    """What a build already knows of the files that it read, for outputs that it hands over one by one.

    Parameters
    ----------
    began_ns : int
        When the build began, see `build_began`: a file that has changed since is in doubt.
    taken_ns : int
        When the first record was taken, after everything was built.
    records : mapping of str to FileRecord
        By path.
    """

    began_ns: int
    taken_ns: int
    records: Mapping[str, FileRecord]


class BuildOutput(NamedTuple):
    """What a build made, and from what.

    Parameters
    ----------
    outputs : tuple of str
        Regular files relative to the staging folder; all else in that folder is thrown away.
    dependencies : tuple of Path or str
        Every source and header that was read, as compilers list them. Those inside the staging folder are left out,
        and relative ones are relative to it.
    others : tuple of str
        What was looked at besides, such as compilers and libraries; a folder that was listed ends with a slash.
    absent : tuple of Path or str
        Paths that were looked for and not found, see `shadowing_paths`.
    recorded : Recorded or None
        When the build began before the staging folder was made.
    unknown : tuple of str
        What was read besides and can't be named, in words: this build alone uses the outputs.
    """

    outputs: tuple[str, ...]
    dependencies: tuple[Path | str, ...] = ()
    others: tuple[str, ...] = ()
    absent: tuple[Path | str, ...] = ()
    recorded: Recorded | None = None
    unknown: tuple[str, ...] = ()
