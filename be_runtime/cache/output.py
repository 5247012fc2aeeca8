"""The result of a build, as it is handed to the cache."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache.validity.manifest import FileRecord


class Recorded(NamedTuple):
    """Records of the files that a build has read so far, for a build that hands over its outputs one by one.

    Parameters
    ----------
    began_ns : int
        Start of the build, see `build_began`. A file that has changed since is in doubt.
    taken_ns : int
        Time at which the first record was taken, after everything was built.
    records : mapping of str to FileRecord
        Records by path.
    """

    began_ns: int
    taken_ns: int
    records: Mapping[str, FileRecord]


class BuildOutput(NamedTuple):
    """The outputs of a build and everything they were made from.

    Parameters
    ----------
    outputs : tuple of str
        Paths of regular files, relative to the staging folder. Everything else in that folder is deleted.
    dependencies : tuple of Path or str
        Every source and header that was read, as compilers list them. Relative paths are relative to the staging
        folder, and files inside it are left out.
    others : tuple of str
        Other files that the build looked at, such as compilers and libraries. A folder that was listed ends with a
        slash, and with ``/.`` if only the names of libraries count.
    absent : tuple of Path or str
        Paths that were looked for and not found, see `shadowing_paths`.
    recorded : Recorded or None
        Records taken so far, if the build began before the staging folder was made.
    unknown : tuple of str
        Descriptions of inputs that can't be named as files. If there are any, only this build uses the outputs.
    source : str
        Where the outputs were fetched from, such as ``"process 0 of the job"``; empty if they were made here.
    """

    outputs: tuple[str, ...]
    dependencies: tuple[Path | str, ...] = ()
    others: tuple[str, ...] = ()
    absent: tuple[Path | str, ...] = ()
    recorded: Recorded | None = None
    unknown: tuple[str, ...] = ()
    source: str = ""
