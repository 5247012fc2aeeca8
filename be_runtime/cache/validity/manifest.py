"""What a cache entry holds and what it was made from, as a value and as JSON. Pure."""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable
from typing import Any, NamedTuple

SCHEMA = 3

RACY_MARGIN_NS = 2_000_000_000
"""A file changed less than this before it was recorded may change again and keep its stat, so it is hashed.

Two seconds is the coarsest time stamp of a file system in use (FAT); the rule is git's for its index ("racy git").
"""


class FileRecord(NamedTuple):
    """A file's content and the stat it had when the content was hashed.

    Parameters
    ----------
    path : str
        Absolute for a dependency, relative to the entry for an output.
    size, mtime_ns, ctime_ns, inode : int
        Bytes, nanoseconds and the inode's number, from stat. The change time sees an edit whose modification time was
        set back. The inode tells files of an image apart whose times are all the same; the device does not count, as
        each mount gets another.
    sha256 : str
        Hexadecimal, of the whole content, or of what stands for it, see
        `be_runtime.cache.validity.examine.record_file`. Empty where the stat alone tells whether a file is the same.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    sha256: str


class Files(NamedTuple):
    """Records of files as columns: a warm load reads hundreds, and needs none of them as an object.

    Parameters
    ----------
    paths : tuple of str
    sizes, mtimes_ns, ctimes_ns, inodes : tuple of int
    sha256s : tuple of str
        What `FileRecord` says of each file.

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
        """The columns of some records."""
        return cls(*zip(*records, strict=True))

    def __add__(self, other: Files) -> Files:  # type: ignore[override]
        """The columns of both, those of this one first."""
        return Files(*map(operator.add, self, other))

    @property
    def records(self) -> tuple[FileRecord, ...]:
        """Each file by itself."""
        return tuple(map(FileRecord._make, zip(*self, strict=True)))


class AbsentNames(NamedTuple):
    """Names below a folder at which there was nothing.

    Parameters
    ----------
    folder : str
        The nearest folder that there was, absolute.
    mtime_ns, ctime_ns, inode : int
        Its stat, taken before the names were looked at.
    names : tuple of str
        Relative to it; empty for a folder that was looked at itself.
    """

    folder: str
    mtime_ns: int
    ctime_ns: int
    inode: int
    names: tuple[str, ...]


class Manifest(NamedTuple):
    """The record beside an entry's outputs that says whether they are still valid.

    Parameters
    ----------
    digest, kind, name : str
        Of the request's key. The key itself is in ``key.json`` beside the manifest, read only to explain.
    created_ns : int
        When the entry was built.
    recorded_ns : int
        When the dependencies were last hashed or compared, taken before the first was looked at.
    outputs, dependencies : Files
        What was made; every source and header that compilers read outside the build folder.
    others : Files
        What decided the outputs besides, such as compilers and libraries.
    absent : tuple of AbsentNames
        Where nothing may be, since it would be found in place of a dependency, or of nothing.
    uncertain : tuple of str
        Dependencies that changed while the build read them, so that the outputs may be of the old content or the new,
        and what can't be named: the builder's own process alone uses such outputs.
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

    @property
    def size_bytes(self) -> int:
        """The outputs' size together."""
        return sum(self.outputs.sizes)


def render_manifest(manifest: Manifest) -> str:
    """The manifest as JSON; `parse_manifest` is its inverse."""
    document = {
        "schema": SCHEMA,
        "digest": manifest.digest,
        "kind": manifest.kind,
        "name": manifest.name,
        "created_ns": manifest.created_ns,
        "recorded_ns": manifest.recorded_ns,
        "outputs": manifest.outputs,
        "dependencies": manifest.dependencies,
        "others": manifest.others,
        "absent": manifest.absent,
        "uncertain": manifest.uncertain,
    }
    return json.dumps(document, separators=(",", ":"))


def parse_manifest(text: str | bytes) -> Manifest:
    """Read what `render_manifest` wrote.

    Raises
    ------
    ValueError
        The text is damaged, or of another schema.
    """
    try:
        document = json.loads(text)
        if document.pop("schema") != SCHEMA:
            raise ValueError("a manifest of another schema")
        document["outputs"] = _files(document["outputs"])
        document["dependencies"] = _files(document["dependencies"])
        document["others"] = _files(document["others"])
        document["absent"] = tuple(_absent(*row) for row in document["absent"])
        document["uncertain"] = _texts(document["uncertain"])
        manifest = Manifest(**document)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
    _texts((manifest.digest, manifest.kind, manifest.name))
    _require_times(manifest.created_ns, manifest.recorded_ns)
    return manifest


def _files(columns: Any) -> Files:
    """Columns of JSON; a path must be text, since stat takes a number for a file descriptor."""
    files = Files._make(map(tuple, columns))
    is_whole = len(set(map(len, files))) == 1
    if not is_whole or not _are(str, files.paths, files.sha256s) or not _are(int, *files[1:-1]):
        raise ValueError("damaged records of files")
    return files


def _absent(folder: str, mtime_ns: int, ctime_ns: int, inode: int, names: Any) -> AbsentNames:
    """One row; the names are checked in one go, since there are hundreds."""
    row = AbsentNames(folder, mtime_ns, ctime_ns, inode, tuple(names))
    if type(folder) is not str or not _are(int, (mtime_ns, ctime_ns, inode)) or not _are(str, row.names):
        raise ValueError("damaged names of absent files")
    return row


def _are(kind: type, *columns: tuple[Any, ...]) -> bool:
    """Whether all values are of one type and no other."""
    return all(set(map(type, column)) <= {kind} for column in columns)


def _texts(items: Iterable[Any]) -> tuple[str, ...]:
    """The items, each a str."""
    texts = tuple(items)
    if not all(type(text) is str for text in texts):
        raise ValueError("a manifest's names are text")
    return texts


def _require_times(*values: Any) -> None:
    """Times are whole nanoseconds."""
    if not all(type(value) is int for value in values):
        raise ValueError("a manifest's times are whole numbers")
