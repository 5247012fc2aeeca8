"""Entries of the cache as archives: packed here, or taken from elsewhere if what they depend on is the same here."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, CacheKey, Manifest, Recorded
from be_runtime.cache.publish import build_began, record_files
from be_runtime.cache.validity.absent import group_absent
from be_runtime.cache.validity.manifest import AbsentNames, Files
from be_runtime.sharing.archive import ArchiveError, Head, Sign, Verify, pack, unpack
from be_runtime.sharing.roots import Roots


class Shareable(NamedTuple):
    """The part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
        The movable key.
    roots : Roots
        Folders of this machine by name.
    outputs : tuple of str
        The outputs that are shared; all of them if it is empty.
    """

    key: CacheKey
    roots: Roots
    outputs: tuple[str, ...] = ()


def pack_entry(folder: Path, manifest: Manifest, share: Shareable, sign: Sign | None = None) -> bytes:
    """Make an archive of an entry.

    Raises
    ------
    ArchiveError
        The entry is for this machine alone.
    OSError
        The entry was removed.
    """
    if manifest.uncertain:
        raise ArchiveError(f"is for one process alone, as {manifest.uncertain[0]} may have changed during the build")
    files = [record for record in manifest.outputs.records if not share.outputs or record.path in share.outputs]
    outputs = {record.path: (folder / record.path).read_bytes() for record in files}
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
    if missing := set(share.outputs) - set(outputs):
        raise ArchiveError(f"is damaged: it has no {min(missing)}")
    try:
        return _unpack_here(head, outputs, _without_links(share.roots), staging, began_ns, source)
    except (OSError, ValueError) as error:  # a folder in the place of a header, a name that is none here
        shutil.rmtree(staging)
        staging.mkdir(mode=0o700)
        raise ArchiveError(f"can't be used here: {error}") from error


def _unpack_here(
    head: Head, outputs: Mapping[str, bytes], roots: Roots, staging: Path, began_ns: int, source: str
) -> BuildOutput:
    """Write the outputs, if a build here would read the same."""
    read, others = _local(head.dependencies, roots), _local(head.others, roots)
    recorded = record_files([*read, *others], Recorded(began_ns, time.time_ns(), {}))
    for path, digest in {**others, **read}.items():
        record = recorded.records.get(path)
        if record is None or record.sha256 != digest:
            raise ArchiveError(f"is of another {path} than the one here")
    absent = tuple(_absent_here(head.absent, roots))
    for name, content in outputs.items():
        target = staging / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return BuildOutput(tuple(outputs), tuple(read), tuple(others), absent, recorded, source=source)


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
