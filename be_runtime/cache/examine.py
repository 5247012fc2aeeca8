"""The check by content of an entry that stat alone does not prove valid."""

from __future__ import annotations

import hashlib
import os
import time
from typing import NamedTuple

from be_runtime.cache.manifest import RACY_MARGIN_NS, FileRecord, Files, Manifest


class Verdict(NamedTuple):
    """What a thorough check of an entry found.

    Parameters
    ----------
    problem : str
        Why the entry can't be used; empty when it can.
    damaged : bool
        Whether the entry itself is broken, rather than made from other dependencies than there are now.
    refreshed : Manifest or None
        The manifest with newer stats, when writing it back saves the next check some work.
    """

    problem: str = ""
    damaged: bool = False
    refreshed: Manifest | None = None


def examine(folder: str, manifest: Manifest) -> Verdict:
    """Check an entry that stat alone did not prove valid, by content."""
    if manifest.uncertain:
        return Verdict(problem=f"the content that {manifest.uncertain[0]} was compiled with is not certain")
    recorded_ns = time.time_ns()
    outputs: list[FileRecord] = []
    for record in manifest.outputs.records:
        current = _same_content(record, f"{folder}/{record.path}", None)
        if current is None:
            return Verdict(problem=f"the cached {record.path} is damaged", damaged=True)
        outputs.append(current)
    dependencies: list[FileRecord] = []
    for record in manifest.dependencies.records:
        current = _same_content(record, record.path, manifest.recorded_ns - RACY_MARGIN_NS)
        if current is None:
            return Verdict(problem=f"{record.path} {'changed' if os.path.lexists(record.path) else 'is gone'}")
        dependencies.append(current)
    for path in manifest.absent:
        if os.path.lexists(path):
            return Verdict(problem=f"{path} is new, and a build would find it")
    refreshed = manifest._replace(
        recorded_ns=recorded_ns, outputs=Files.of(outputs), dependencies=Files.of(dependencies)
    )
    return Verdict(refreshed=refreshed if _saves_work(manifest, refreshed) else None)


def record_file(path: str, name: str) -> FileRecord:
    """Hash a file, then take its stat: a change in between shows as a change time after the hash began.

    Raises
    ------
    OSError
        The file can't be read.
    """
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        status = os.fstat(file.fileno())
    return FileRecord(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, digest)


def has_stat(record: FileRecord, now: os.stat_result) -> bool:
    """Whether a stat is the recorded one."""
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino) == record[1:-1]


def _same_content(record: FileRecord, path: str, newest: int | None) -> FileRecord | None:
    """The file's record as it is now when its content is the recorded one, else None."""
    try:
        now = os.stat(path)
        if has_stat(record, now) and not _is_racy(record, newest):
            return record
        if now.st_size != record.size:
            return None
        current = record_file(path, record.path)
    except (OSError, ValueError):
        return None
    return current if current.sha256 == record.sha256 else None


def _is_racy(record: FileRecord, newest: int | None) -> bool:
    """Whether a file changed too shortly before it was recorded for its stat to be proof."""
    return newest is not None and max(record.mtime_ns, record.ctime_ns) >= newest


def _saves_work(old: Manifest, new: Manifest) -> bool:
    """Whether the newer manifest lets stat prove what the older could not."""
    if old.outputs != new.outputs or old.dependencies != new.dependencies:
        return True
    before, after = old.recorded_ns - RACY_MARGIN_NS, new.recorded_ns - RACY_MARGIN_NS
    return any(_is_racy(record, before) and not _is_racy(record, after) for record in new.dependencies.records)
