"""Entries of the cache as archives: packed here, or taken from elsewhere if what they depend on is the same here."""

from __future__ import annotations

import fnmatch
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, CacheKey, Manifest, Recorded
from be_runtime.cache.publish import build_began, record_dependency
from be_runtime.cache.validity.absent import group_absent
from be_runtime.cache.validity.manifest import NO_FILES, AbsentNames, FileRecord, Files
from be_runtime.sharing.archive import ArchiveError, Head, Sign, Verify, pack, unpack
from be_runtime.sharing.roots import Roots
from be_toolchain.machine.local_system import stamp_path
from be_toolchain.machine.trust.regular_file import read_regular

_PATIENCE_S, _LARGEST_INPUT = 10.0, 1 << 32


class Shareable(NamedTuple):
    """The part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
        The movable key.
    roots : Roots
        Folders of this machine by name.
    outputs : tuple of str
        Patterns of the names of the outputs that are shared; an archive has one at least for each, and no others.
    known : tuple of (str, bytes)
        Outputs that a build here would write like this, so that an archive with others is none of this entry.
    """

    key: CacheKey
    roots: Roots
    outputs: tuple[str, ...]
    known: tuple[tuple[str, bytes], ...] = ()

    def takes(self, name: str) -> bool:
        """Return whether an output is shared."""
        return any(fnmatchcase(name, pattern) for pattern in self.outputs)


def pack_entry(folder: Path, manifest: Manifest, share: Shareable, sign: Sign | None = None) -> bytes:
    """Make an archive of an entry.

    Raises
    ------
    ArchiveError
        The entry is for this machine alone, was removed, or has something else in the place of a file.
    """
    if manifest.uncertain:
        raise ArchiveError(f"is for one process alone, as {manifest.uncertain[0]} may have changed during the build")
    files = [record for record in manifest.outputs.records if share.takes(record.path)]
    try:
        outputs = {record.path: read_regular(folder / record.path, record.size) for record in files}
    except OSError as error:
        raise ArchiveError(f"can't be read: {error.strerror}: {error.filename}") from error
    for name, data in outputs.items():
        named = share.roots.named_in(data)
        if named:
            raise ArchiveError(f"is for this machine alone: its {name} names the folder {named}")
    head = Head(
        digest=share.key.digest,
        kind=manifest.kind,
        name=manifest.name,
        outputs=tuple((record.path, record.size, record.sha256) for record in files),
        dependencies=tuple(_named(manifest.dependencies, share.roots)),
        others=tuple(_named(manifest.others, share.roots)),
        absent=tuple(_absent(manifest.absent, share.roots)),
        host=manifest.made.host,
        seconds=manifest.made.seconds,
    )
    return pack(head, outputs, sign)


def unpack_entry(
    data: bytes, share: Shareable, staging: Path, source: str, verify: Verify | None = None
) -> BuildOutput:
    """Write the outputs of an archive into a folder, if a build here would read what its build has read.

    Parameters
    ----------
    source : str
        The place that it comes from, for the entry's record.
    verify : callable, optional
        The check of its signature.

    Raises
    ------
    ArchiveError
        It is damaged, not signed as asked for, of another entry, or of other files than those of this machine.
    """
    began_ns = build_began(str(staging), time.time_ns())
    head, outputs = unpack(data, verify)
    if head.digest != share.key.digest:
        raise ArchiveError("is of another entry")
    if odd := next((name for name in outputs if not share.takes(name)), None):
        raise ArchiveError(f"is damaged: it has {odd}, which no {head.kind} has")
    if missing := next((pattern for pattern in share.outputs if not fnmatch.filter(outputs, pattern)), None):
        raise ArchiveError(f"is damaged: it has no {missing}")
    if other := next((name for name, content in share.known if outputs[name] != content), None):
        raise ArchiveError(f"is damaged: its {other} is not what a build here would write")
    try:
        return _unpack_here(head, outputs, _without_links(share.roots), staging, began_ns, source)
    except (OSError, ValueError) as error:  # a folder in the place of a header, a name that is none here
        raise ArchiveError(f"can't be used here: {error}") from error


def _unpack_here(
    head: Head, outputs: Mapping[str, memoryview], roots: Roots, staging: Path, began_ns: int, source: str
) -> BuildOutput:
    """Write the outputs, if a build here would read the same."""
    read, others = _local(head.dependencies, roots), _local(head.others, roots)
    recorded = Recorded(began_ns, time.time_ns(), _compared({**others, **read}))
    absent = tuple(_absent_here(head.absent, roots))
    for name, content in outputs.items():
        (staging / name).write_bytes(content)
    return BuildOutput(tuple(outputs), tuple(read), tuple(others), absent, recorded, source=source)


def _compared(files: Mapping[str, str]) -> dict[str, FileRecord]:
    """Record files of this machine, whose hashes must be these. An archive may name any file, so reading it has limits.

    Devices and the kernel's files are no inputs of a build, and some do something when they are opened.
    """
    records, until = {}, time.monotonic() + _PATIENCE_S
    for path, digest in files.items():
        stamp = None if NO_FILES.match(os.path.realpath(path)) else stamp_path(path)
        record = record_dependency(path) if stamp is not None and stamp.size_bytes <= _LARGEST_INPUT else None
        if record is None or record.sha256 != digest:
            raise ArchiveError(f"is of another {path} than the one here")
        if time.monotonic() > until:
            raise ArchiveError(f"is made from more than can be compared in {_PATIENCE_S:g} s")
        records[path] = record
    return records


def _named(files: Files, roots: Roots) -> Iterator[tuple[str, str]]:
    """Return the paths by the names of roots, with their hashes."""
    for path, digest in zip(files.paths, files.sha256s, strict=True):
        yield roots.name(path), digest


def _without_links(roots: Roots) -> Roots:
    """Return the roots with one path for each folder."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    for folder, name in roots.folders:
        first.setdefault((name, os.path.realpath(folder)), (folder, name))
    return Roots(tuple(first.values()))


def _local(files: Iterable[tuple[str, str]], roots: Roots) -> dict[str, str]:
    """Return the paths here, with the hashes that they should have."""
    return {path: digest for named, digest in files for path in _found(named, roots)}


def _found(named: str, roots: Roots) -> list[str]:
    """Return the paths here; where several have the name, all that exist, as a build may read any of them."""
    paths = roots.paths(named)
    if not paths:
        raise ArchiveError(f"was built with {named}, and there is no such folder here")
    return [*filter(os.path.exists, paths)] or [paths[0]]


def _absent(rows: Sequence[AbsentNames], roots: Roots) -> Iterator[tuple[str, int, tuple[str, ...]]]:
    """Return what was not found, with the first row that is the same folder."""
    first = {row.inode: at for at, row in reversed([*enumerate(rows)])}
    for row in rows:  # each is of a folder that exists, so it has an inode
        yield roots.name(row.folder), first[row.inode], row.names


def _absent_here(rows: Sequence[tuple[str, int, tuple[str, ...]]], roots: Roots) -> Iterator[str]:
    """Return the paths that must be absent here, after a look that they are.

    Folders that were one on the machine of the build must be one here: compilers search a folder once.
    """
    folders = [roots.paths(named) for named, *_ in rows]
    if not all(folders):
        raise ArchiveError("was built with folders that are not here")
    paths = [
        f"{folder.rstrip('/')}/{name}"
        for found, row in zip(folders, rows, strict=True)
        for folder in found
        for name in (*row[2], ".")
    ]
    present = group_absent(paths)[1]
    if present:
        raise ArchiveError(f"was built where there is no {present[0]}")
    inodes = [next(filter(None, map(_inode, found)), 0) for found in folders]
    pairs = {(row[1], inode) for row, inode in zip(rows, inodes, strict=True) if inode}
    if not len(pairs) == len({same for same, _ in pairs}) == len({inode for _, inode in pairs}):
        raise ArchiveError("was built where other folders are links to one another")
    yield from paths


def _inode(folder: str) -> int:
    """Return the inode of a folder; 0 if it does not exist."""
    try:
        return Path(folder).stat().st_ino
    except (OSError, ValueError):
        return 0
