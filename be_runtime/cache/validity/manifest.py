"""The manifest of a cache entry, as a value and as JSON: its outputs and the files they were made from. Pure."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from be_toolchain.machine.sealed_json import seal, unseal

SCHEMA = 4

RACY_MARGIN_NS = 2_000_000_000
"""A file that changed less than this before it was recorded may change again and keep its stat, so it is hashed.

Two seconds is the coarsest time stamp of a file system in use (FAT); the rule is git's for its index ("racy git").
"""

NO_FILES = re.compile(r"/(?:proc|sys|dev(?!/shm/))/")
"""The beginning of paths of devices and of the kernel's own files, which are no inputs of a build."""


class FileRecord(NamedTuple):
    """A file's content and the stat it had when the content was hashed.

    Parameters
    ----------
    path : str
        Absolute path of a dependency, or path of an output relative to the entry.
    size, mtime_ns, ctime_ns, inode : int
        Bytes, nanoseconds and the inode number, from stat. The change time reveals an edit whose modification time was
        set back. The inode distinguishes files of an image, whose times are all the same. The device is not recorded,
        as each mount gets another.
    sha256 : str
        Hexadecimal digest of the content, or of the parts that identify it, see
        `be_runtime.cache.validity.examine.record_file`. Empty if only the stat is compared.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str


class Files(NamedTuple):
    """Records of files as columns: a warm load reads hundreds of records, and needs none of them as an object.

    Parameters
    ----------
    paths : tuple of str
    sizes, mtimes_ns, ctimes_ns, inodes : tuple of int
    sha256s : tuple of str
        Fields of `FileRecord`, one element for each file.

    Examples
    --------
    >>> files = Files.of([FileRecord("m.so", 3, 1, 2, 5, "ab"), FileRecord("m.json", 4, 1, 2, 6, "cd")])
    >>> files.paths, files.sizes
    (('m.so', 'm.json'), (3, 4))
    >>> files.records[1].path
    'm.json'
    """

    paths: tuple[str, ...] = ()
    sizes: tuple[int, ...] = ()
    mtimes_ns: tuple[int, ...] = ()
    ctimes_ns: tuple[int, ...] = ()
    inodes: tuple[int, ...] = ()
    sha256s: tuple[str, ...] = ()

    @classmethod
    def of(cls, records: Iterable[FileRecord]) -> Files:
        """Make the columns of some records."""
        return cls(*zip(*records, strict=True))

    def __add__(self, other: Files) -> Files:  # type: ignore[override]
        """Concatenate the columns of both."""
        return Files(*map(operator.add, self, other))

    @property
    def records(self) -> tuple[FileRecord, ...]:
        """The record of each file."""
        return tuple(map(FileRecord._make, zip(*self, strict=True)))


class AbsentNames(NamedTuple):
    """Paths below a folder that did not exist.

    Parameters
    ----------
    folder : str
        Nearest folder that existed, absolute.
    mtime_ns, ctime_ns, inode : int
        Stat of the folder, taken before the names were examined.
    names : tuple of str
        Paths relative to the folder; empty if only the folder itself is recorded.
    """

    folder: str
    mtime_ns: int
    ctime_ns: int
    inode: int
    names: tuple[str, ...]


class Making(NamedTuple):
    """The record of how an entry was made, for people who ask.

    Parameters
    ----------
    host : str
        Name of the machine that published it in this cache.
    seconds : float
        Time that the build took, or the fetching.
    reason : str
        Reason that there was no valid entry, such as ``"/home/me/x.cuh changed"``.
    source : str
        Where it was fetched from; empty if it was built here.
    """

    host: str = ""
    seconds: float = 0.0
    reason: str = ""
    source: str = ""


class Manifest(NamedTuple):
    """The record beside an entry's outputs by which they are validated.

    Parameters
    ----------
    digest, kind, name : str
        Digest, kind and name of the request's key. The key itself is in ``key.json`` beside the manifest, and is read
        only to explain a rebuild.
    created_ns : int
        Time of the build.
    recorded_ns : int
        Time at which the dependencies were last hashed or compared, taken before the first of them.
    outputs, dependencies : Files
        Files that were made; every source and header outside the build folder that compilers read.
    others : Files
        Other files that decided the outputs, such as compilers and libraries.
    absent : tuple of AbsentNames
        Paths that must not exist, since a build would find a file there instead of a dependency, or of nothing.
    uncertain : tuple of str
        Dependencies that changed while the build read them, so that the outputs may be made from the old content or
        the new, and inputs that can't be named. Only the builder's own process uses such outputs.
    made : Making
        Who made it, how long that took, and why.
    """

    digest: str
    kind: str
    name: str
    created_ns: int
    recorded_ns: int
    outputs: Files
    dependencies: Files
    others: Files = Files()
    absent: tuple[AbsentNames, ...] = ()
    uncertain: tuple[str, ...] = ()
    made: Making = Making()

    @property
    def size_bytes(self) -> int:
        """Size of all outputs together."""
        return sum(self.outputs.sizes)


def render_manifest(manifest: Manifest) -> str:
    """Write the manifest as JSON; `parse_manifest` is the inverse."""
    return seal({"schema": SCHEMA, **manifest._asdict()})


def parse_manifest(text: str | bytes) -> Manifest:
    """Read what `render_manifest` wrote.

    Raises
    ------
    ValueError
        The text is damaged, or of another schema.
    """
    try:
        document = unseal(text)
        if document.pop("schema") != SCHEMA:
            raise ValueError("a manifest of another schema")
        document["outputs"] = _files(document["outputs"])
        document["dependencies"] = _files(document["dependencies"])
        document["others"] = _files(document["others"])
        document["absent"] = tuple(_absent(*row) for row in document["absent"])
        document["uncertain"] = _texts(document["uncertain"])
        document["made"] = _making(*document["made"])
        manifest = Manifest(**document)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
    _texts((manifest.digest, manifest.kind, manifest.name))
    _require_times(manifest.created_ns, manifest.recorded_ns)
    return manifest


def _files(columns: Any) -> Files:
    """Check columns from JSON; a path must be str, since stat takes a number for a file descriptor."""
    files = Files._make(map(tuple, columns))
    is_whole = len(set(map(len, files))) == 1
    if not is_whole or not _are(str, files.paths, files.sha256s) or not _are(int, *files[1:-1]):
        raise ValueError("damaged records of files")
    return files


def _absent(folder: str, mtime_ns: int, ctime_ns: int, inode: int, names: Any) -> AbsentNames:
    """Check one row from JSON; its names are checked all at once, since there are hundreds."""
    row = AbsentNames(folder, mtime_ns, ctime_ns, inode, tuple(names))
    if type(folder) is not str or not _are(int, (mtime_ns, ctime_ns, inode)) or not _are(str, row.names):
        raise ValueError("damaged names of absent files")
    return row


def _making(host: str, seconds: float, reason: str, source: str) -> Making:
    """Check the record of the making from JSON."""
    _texts((host, reason, source))
    if type(seconds) is not float or not math.isfinite(seconds):
        raise ValueError("a duration is a number")
    return Making(host, seconds, reason, source)


def _are(kind: type, *columns: tuple[Any, ...]) -> bool:
    """Return whether all values are of exactly one type."""
    return all(set(map(type, column)) <= {kind} for column in columns)


def _texts(items: Iterable[Any]) -> tuple[str, ...]:
    """Check that every item is a str."""
    texts = tuple(items)
    if not all(type(text) is str for text in texts):
        raise ValueError("a manifest's names are text")
    return texts


def _require_times(*values: Any) -> None:
    """Check that times are whole nanoseconds."""
    if not all(type(value) is int for value in values):
        raise ValueError("a manifest's times are whole numbers")
