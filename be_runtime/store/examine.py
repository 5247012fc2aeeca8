"""Hash files into records, and check entries by content where stat alone does not prove them valid."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from typing import BinaryIO

from be_runtime.store.manifest import (
    RACY_MARGIN_NS,
    AbsentNames,
    FileRecord,
    Files,
    Manifest,
    absent_paths,
    group_absent,
    new_file,
)
from be_toolchain.machine.trust import open_regular
from be_toolchain.named import NamedTuple

_LARGE_BYTES, _SAMPLE_BYTES = 1 << 20, 1 << 14
_PROGRAM_TYPES = (2, 3)
"""ET_EXEC and ET_DYN of an ELF header: https://refspecs.linuxfoundation.org/elf/gabi4+/ch4.eheader.html."""

_FOLDERS = ("/", "/.")
"""Endings of the paths of folders, whose names are hashed."""

_LIBRARY = re.compile(rb"\.so(\.|$)|\.a$")


class Verdict(NamedTuple):
    """Result of a thorough check of an entry.

    Parameters
    ----------
    problem : str
        Reason that the entry can't be used; empty if it can be used.
    damaged : bool
        True if the entry itself is damaged; False if only its dependencies have changed.
    refreshed : Manifest or None
        Manifest with newer stats, if writing it saves work in the next check.
    """

    problem: str = ""
    damaged: bool = False
    refreshed: Manifest | None = None


def examine(folder: str, manifest: Manifest) -> Verdict:
    """Check an entry by content, if stat alone did not prove it valid."""
    if manifest.uncertain:
        return Verdict(problem=f"{manifest.uncertain[0]} may have changed during the build")
    recorded_ns = time.time_ns()
    outputs: list[FileRecord] = []
    for record in manifest.outputs.records:
        current = _same_content(record, f"{folder}/{record.path}", None)
        if current is None:
            return Verdict(problem=f"the cached {record.path} is damaged", damaged=True)
        outputs.append(current)
    inputs: list[FileRecord] = []
    for record in (manifest.dependencies + manifest.others).records:
        current = _same_content(record, record.path, manifest.recorded_ns - RACY_MARGIN_NS)
        if current is None:
            return Verdict(problem=f"{record.path} {'changed' if os.path.lexists(record.path) else 'is gone'}")
        inputs.append(current)
    count = len(manifest.dependencies.paths)
    appeared = new_file(manifest.absent, newest_ns=0)
    try:
        absent, since = group_absent(absent_paths(manifest.absent))
    except OSError as error:
        return Verdict(problem=f"{error.filename} can't be checked: {error.strerror}")
    if appeared or since:
        return Verdict(problem=f"{appeared or since[0]} is new, and a build would find it")
    refreshed = manifest._replace(
        recorded_ns=recorded_ns,
        outputs=Files.of(outputs),
        dependencies=Files.of(inputs[:count]),
        others=Files.of(inputs[count:]),
        absent=absent,
    )
    return Verdict(refreshed=refreshed if _saves_work(manifest, refreshed) else None)


def record_file(path: str, name: str) -> FileRecord:
    """Hash a file, or the parts that identify it, then take its stat.

    A change in between gives a change time after the beginning of the hash. The hash covers:

    - the names in a folder, if the path ends with a slash, and only the names of libraries if it ends with ``/.``;
    - the size, beginning and end of a large program or shared library that a build read: they hold its build id and
      tables, and CUDA's compilers alone have 200 MB;
    - the whole content of every other file, and of every output.

    Raises
    ------
    OSError
        The file does not exist, or it can't be read for a reason other than its permissions.
    """
    if path.endswith(_FOLDERS):
        names = (each for each in os.listdir(os.fsencode(path)) if path.endswith("/") or _LIBRARY.search(each))
        digest = hashlib.sha256(b"\0".join(sorted(names))).hexdigest()
        return _record(name, os.stat(path), digest)
    try:
        with open_regular(path, sys.maxsize) as file:
            is_large = os.fstat(file.fileno()).st_size >= _LARGE_BYTES
            digest = _program_digest(file) if path == name and is_large else ""
            digest = digest or hashlib.file_digest(file, "sha256").hexdigest()
            return _record(name, os.fstat(file.fileno()), digest)
    except PermissionError:
        return record_stat(path, name)


def proven_records(manifest: Manifest) -> dict[str, FileRecord]:
    """Return the records of an entry's inputs by path, except records that a later stat can't prove."""
    newest = manifest.recorded_ns - RACY_MARGIN_NS
    every = (manifest.dependencies + manifest.others).records
    return {record.path: record for record in every if record.sha256 and not _is_racy(record, newest)}


def _program_digest(file: BinaryIO) -> str:
    """Hash the identifying parts of a large program or library; return "" and rewind the file for other files."""
    head = file.read(_SAMPLE_BYTES)
    if not (head.startswith(b"\x7fELF") and head[16] in _PROGRAM_TYPES):
        file.seek(0)
        return ""
    size = file.seek(-_SAMPLE_BYTES, os.SEEK_END) + _SAMPLE_BYTES
    return hashlib.sha256(b"%d %s %s" % (size, head, file.read())).hexdigest()


def record_stat(path: str, name: str) -> FileRecord:
    """Record the stat of a file whose content does not matter, or can't be read."""
    return _record(name, os.stat(path), "")


def _record(name: str, status: os.stat_result, digest: str) -> FileRecord:
    return FileRecord(name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, digest)


def has_stat(record: FileRecord, now: os.stat_result) -> bool:
    """Return whether a stat equals the recorded one."""
    return (now.st_size, now.st_mtime_ns, now.st_ctime_ns, now.st_ino) == record[1:-1]


def _same_content(record: FileRecord, path: str, newest: int | None) -> FileRecord | None:
    """Return a current record of the file if its content is unchanged, else None."""
    try:
        now = os.stat(path)
        if has_stat(record, now) and not (record.sha256 and _is_racy(record, newest)):
            return record
        if (now.st_size != record.size and not path.endswith(_FOLDERS)) or not record.sha256:
            return None
        current = record_file(path, record.path)
    except (OSError, ValueError):
        return None
    return current if current.sha256 == record.sha256 else None


def _is_racy(record: FileRecord | AbsentNames, newest: int | None) -> bool:
    """Return whether a file or folder changed so shortly before its record that its stat proves nothing."""
    return newest is not None and max(record.mtime_ns, record.ctime_ns) >= newest


def _saves_work(old: Manifest, new: Manifest) -> bool:
    """Return whether stat can prove more records of the newer manifest than of the older one."""
    if new._replace(recorded_ns=old.recorded_ns) != old:
        return True
    before, after = old.recorded_ns - RACY_MARGIN_NS, new.recorded_ns - RACY_MARGIN_NS
    records: list[FileRecord | AbsentNames] = [*(new.dependencies + new.others).records, *new.absent]
    return any(_is_racy(record, before) and not _is_racy(record, after) for record in records)


class Audit(NamedTuple):
    """Findings about an entry.

    Parameters
    ----------
    damaged : tuple of str
        Outputs that have changed since the build.
    changed : tuple of str
        Inputs that have changed since the build; the next load builds again.
    """

    damaged: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


def audit(folder: str, manifest: Manifest, known: dict[str, str]) -> Audit:
    """Hash all outputs and inputs of an entry.

    Parameters
    ----------
    folder : str
        Folder of the entry.
    manifest : Manifest
    known : dict of str to str
        Hashes of the inputs of earlier entries, so that each file is hashed once; this function adds to it.
    """
    outputs, inputs = manifest.outputs, (manifest.dependencies + manifest.others).records
    made = zip(outputs.paths, outputs.sha256s, strict=True)
    damaged = tuple(name for name, digest in made if _digest(f"{folder}/{name}", name) != digest)
    for record in inputs:
        if record.path not in known:
            known[record.path] = _digest(record.path, record.path)
    changed = [record.path for record in inputs if record.sha256 and known[record.path] != record.sha256]
    appeared = new_file(manifest.absent, newest_ns=0)
    return Audit(damaged, (*manifest.uncertain, *changed, *([appeared] if appeared else ())))


def _digest(path: str, name: str) -> str:
    """Return a file's hash as a build records it; if the file can't be read, the error's text, which is no hash."""
    try:
        return record_file(path, name).sha256
    except OSError as error:
        return str(error.strerror)
