"""Publication of a finished build as an immutable entry, by one rename."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache.folder.guard import make_folder, move
from be_runtime.cache.folder.key import CacheKey
from be_runtime.cache.folder.layout import (
    KEY,
    MANIFEST,
    created_ns,
    fan_folder,
    key_folder,
    output_problem,
    variant_name,
)
from be_runtime.cache.output import BuildOutput, Recorded
from be_runtime.cache.upkeep.staging import discard
from be_runtime.cache.validity.absent import group_absent
from be_runtime.cache.validity.examine import has_stat, record_file, record_stat
from be_runtime.cache.validity.homes import on_disk
from be_runtime.cache.validity.lookup import read_manifest, variant_folders, write_private
from be_runtime.cache.validity.manifest import FileRecord, Files, Making, Manifest, render_manifest
from be_runtime.errors import CacheError
from be_toolchain.machine.trust.regular_file import NotRegularError

MOST_VARIANTS = 4
"""Number of entries of one key that are kept, for headers that are switched back and forth."""

GRACE_NS = 60_000_000_000
"""Time for which a superseded entry is kept: another process may have found it and be about to load it."""


class Stage(NamedTuple):
    """A build's two folders, the reason for the build, and its start time by two clocks."""

    work: str
    entry: str
    reason: str
    began_ns: int
    began_s: float


def open_stage(folder: str, reason: str) -> Stage:
    """Make the folders for the build and for the entry inside a staging folder."""
    began_ns = build_began(folder, time.time_ns())
    stage = Stage(f"{folder}/build", f"{folder}/entry", reason, began_ns, time.monotonic())
    make_folder(stage.work)
    make_folder(stage.entry)
    return stage


def build_began(folder: str, now_ns: int) -> int:
    """Return the start time of the build in a new folder: by its file system's clock, or by ours if that is behind.

    On local file systems both are the same clock, so a file that changed just before the build is not in doubt. A file
    server has a clock of its own, and the files of a build may be on either machine.
    """
    return min(os.stat(folder).st_ctime_ns, now_ns)


def publish(base: str, key: CacheKey, stage: Stage, output: BuildOutput) -> tuple[str, Manifest]:
    """Move a build's outputs into a new entry of `key`. After an error it may be called again.

    Returns
    -------
    tuple of (str, Manifest)
        The entry's folder, of which only the stats in the manifest are ever updated, and the manifest.

    Raises
    ------
    CacheError
        An output's name is not allowed, or the output is missing or not a regular file.
    OSError
        The entry can't be written.
    """
    manifest = _describe(base, key, stage, output)
    write_private(f"{stage.entry}/{KEY}", key.to_json())
    write_private(f"{stage.entry}/{MANIFEST}", render_manifest(on_disk(manifest)))
    name = variant_name(manifest.created_ns, os.urandom(4).hex())
    return _rename_into_place(base, key.digest, stage.entry, name), manifest


def trim(base: str, digest: str, damaged: Iterable[str] = ()) -> None:
    """Remove a key's damaged and superseded entries.

    A removed library stays mapped in processes that have loaded it: its file is unlinked, never written to.
    """
    for folder in {*damaged, *superseded(variant_folders(base, digest), time.time_ns())}:
        with contextlib.suppress(OSError):
            discard(base, folder, digest)


def superseded(folders: Sequence[str], now_ns: int) -> list[str]:
    """Select the superseded entries of a key: beyond the newest few and past their grace time. Pure.

    Parameters
    ----------
    folders : sequence of str
        The key's entries, newest first.
    now_ns : int
        The time.
    """
    return [folder for folder in folders[MOST_VARIANTS:] if created_ns(folder) < now_ns - GRACE_NS]


def _describe(base: str, key: CacheKey, stage: Stage, output: BuildOutput) -> Manifest:
    """Collect the outputs, hash everything, and note the files that changed meanwhile."""
    known = output.recorded or Recorded(stage.began_ns, time.time_ns(), {})
    seconds = time.monotonic() - stage.began_s + (stage.began_ns - known.began_ns) / 1e9
    if not output.outputs:
        raise CacheError(f"the build of {key.name or key.kind} produced no outputs")
    outputs = [_collect(stage, name) for name in dict.fromkeys(output.outputs)]
    absent, appeared = group_absent(map(str, output.absent))
    dependencies = _records(_outside(stage.work, output.dependencies), known)
    others = {**_records(_outside(stage.work, output.others), known), **{path: _record_stat(path) for path in appeared}}
    both = {**dependencies, **others}
    uncertain = [*output.unknown, *(path for path, record in both.items() if record is None)]
    in_doubt = [record for record in both.values() if record and record.ctime_ns >= known.began_ns]
    before = _recorded_before(base, key.digest, known.began_ns) if in_doubt else ()
    uncertain += [record.path for record in in_doubt if record not in before]
    return Manifest(
        digest=key.digest,
        kind=key.kind,
        name=key.name,
        created_ns=time.time_ns(),
        recorded_ns=known.taken_ns,
        outputs=Files.of(outputs),
        dependencies=Files.of(filter(None, dependencies.values())),
        others=Files.of(filter(None, others.values())),
        absent=absent,
        uncertain=tuple(uncertain),
        made=Making(os.uname().nodename, round(max(seconds, 0.0), 3), stage.reason, output.source),
    )


def _collect(stage: Stage, name: str) -> FileRecord:
    """Move one output into the entry and hash it."""
    problem = output_problem(name)
    if problem is not None:
        raise CacheError(f"the build's output {name!r} is {problem}")
    source, target = f"{stage.work}/{name}", f"{stage.entry}/{name}"
    try:
        status = os.lstat(source)
    except FileNotFoundError:
        try:
            os.lstat(target)  # an earlier call may have moved it
        except FileNotFoundError:
            raise CacheError(f"the build did not make its output {name!r}") from None
    else:
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"the build's output {name!r} is not a regular file")
        if "/" in name:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        _take(source, target, status)
    os.chmod(target, 0o600)
    return record_file(target, name)


def _take(source: str, target: str, status: os.stat_result) -> None:
    """Move a file, or copy one that another program holds a hard link to, such as a compiler launcher's cache."""
    if status.st_nlink == 1:
        move(source, target)
        return
    import shutil

    shutil.copyfile(source, target)


def _outside(work: str, paths: Iterable[Path | str]) -> list[str]:
    """Return absolute paths of the files outside the build's folder, without repetition, in order."""
    found: dict[str, None] = {}
    for path in map(str, paths):
        full = path if path.startswith("/") else os.path.normpath(f"{work}/{path}")
        if not full.startswith(f"{work}/"):
            found[full] = None
    return list(found)


def _records(paths: Iterable[str], known: Recorded) -> dict[str, FileRecord | None]:
    """Return each file's record; None for a file that is gone already."""
    every = list(paths)
    records = record_files(every, known).records
    return {path: records.get(path) for path in every}


def record_dependency(path: str) -> FileRecord | None:
    """Return a dependency's record; None if it is gone."""
    try:
        return record_file(path, path)
    except (FileNotFoundError, NotRegularError):
        return None


def _record_stat(path: str) -> FileRecord | None:
    """Record a file that a build could not use, for its permissions and not its content; None for a folder."""
    return record_stat(path, path) if os.path.isfile(path) else None


def record_files(paths: Iterable[Path | str], known: Recorded) -> Recorded:
    """Hash files once for several outputs of a build; missing files are left out.

    Parameters
    ----------
    paths : iterable of Path or str
    known : Recorded
        Earlier records; a file is hashed again only if its stat has changed.
    """
    records = {**known.records}
    for path in map(str, paths):
        earlier = records.pop(path, None)
        record = earlier if earlier is not None and _is_as_recorded(earlier) else record_dependency(path)
        if record is not None:
            records[path] = record
    return known._replace(records=records)


def _is_as_recorded(record: FileRecord) -> bool:
    """Return whether a dependency's stat is still the recorded one."""
    try:
        return has_stat(record, os.stat(record.path))
    except OSError:
        return False


def _recorded_before(base: str, digest: str, began_ns: int) -> set[FileRecord]:
    """Collect the records of files that a key's entries took before a build began.

    A file that still matches such a record has not changed during the build, whatever its file system's clock says. A
    clock that is ahead dates all changes after the build's start, and without this check every load would build again.
    """
    manifests = (read_manifest(folder, digest) for folder in variant_folders(base, digest))
    older = [manifest for manifest in manifests if manifest is not None and manifest.recorded_ns < began_ns]
    return {record for manifest in older for record in manifest.dependencies.records}


def _rename_into_place(base: str, digest: str, entry: str, name: str) -> str:
    """Publish an entry; other processes may remove the folders above it at any time."""
    folder = key_folder(base, digest)
    while True:
        make_folder(fan_folder(base, digest))
        try:
            make_folder(folder)
            move(entry, f"{folder}/{name}")
        except FileNotFoundError:
            if not os.path.isdir(entry):
                raise
            continue
        return f"{folder}/{name}"
