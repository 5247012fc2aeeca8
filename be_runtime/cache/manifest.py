"""What a cache entry holds and what it was made from, as a value and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

SCHEMA = 1

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
    size, mtime_ns, ctime_ns : int
        Bytes and nanoseconds, from stat. The change time sees an edit whose modification time was set back.
    sha256 : str
        Hexadecimal, of the whole content.
    """

    path: str
    size: int
    mtime_ns: int
    ctime_ns: int
    sha256: str


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
    outputs, dependencies : tuple of FileRecord
        What was made; every file the compiler read outside its own build folder.
    absent : tuple of str
        Paths that must not exist, since a file there would be included in place of a dependency.
    uncertain : tuple of str
        Dependencies that changed while the build read them, so that the outputs may be of the old content or the new,
        and what can't be named: the builder's own process alone uses such outputs.
    """

    digest: str
    kind: str
    name: str
    created_ns: int
    recorded_ns: int
    outputs: tuple[FileRecord, ...]
    dependencies: tuple[FileRecord, ...]
    absent: tuple[str, ...] = ()
    uncertain: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """The outputs' size together."""
        return sum(output.size for output in self.outputs)


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
        document["outputs"] = _records(document["outputs"])
        document["dependencies"] = _records(document["dependencies"])
        document["absent"] = _texts(document["absent"])
        document["uncertain"] = _texts(document["uncertain"])
        manifest = Manifest(**document)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a manifest: {error!r}") from error
    _texts((manifest.digest, manifest.kind, manifest.name))
    _require_times(manifest.created_ns, manifest.recorded_ns)
    return manifest


def _records(rows: Any) -> tuple[FileRecord, ...]:
    """Rows of JSON as records; a path must be text, since stat takes a number for a file descriptor."""
    for path, size, mtime_ns, ctime_ns, sha256 in rows:
        if not type(path) is type(sha256) is str or not type(size) is type(mtime_ns) is type(ctime_ns) is int:
            raise ValueError(f"a damaged file record: {path!r}")
    return tuple(map(FileRecord._make, rows))


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
