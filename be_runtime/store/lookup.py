"""Find a key's valid entry without a lock or a process, as every warm load does; replace the cache's small files."""

from __future__ import annotations

import contextlib
import os
import time
from typing import NamedTuple

from be_runtime.store.folder import MANIFEST, VARIANT, key_folder
from be_runtime.store.manifest import (
    RACY_MARGIN_NS,
    Manifest,
    in_memory,
    new_file,
    on_disk,
    parse_manifest,
    render_manifest,
)
from be_toolchain.machine.trust import LARGE, distrust_owner, open_regular

_USE_RESOLUTION_S = 24 * 3600.0

NOT_CACHED = "it was not in the cache"


def is_unchanged(folder: str, manifest: Manifest) -> bool:
    """Return whether stat alone proves an entry valid. Every warm load calls this function, so its loops are flat."""
    stat = os.stat
    newest = manifest.recorded_ns - RACY_MARGIN_NS
    outputs, inputs = manifest.outputs, manifest.dependencies + manifest.others
    if max((*inputs.mtimes_ns, *inputs.ctimes_ns), default=0) >= newest:
        return False
    made = outputs._replace(paths=tuple([f"{folder}/{name}" for name in outputs.paths]))
    try:
        for path, size, mtime_ns, ctime_ns, inode, _ in zip(*(made + inputs), strict=True):
            now = stat(path)
            if now.st_mtime_ns != mtime_ns or now.st_size != size:
                return False
            if now.st_ctime_ns != ctime_ns or now.st_ino != inode:
                return False
    except (OSError, ValueError):
        return False
    return not manifest.uncertain and not new_file(manifest.absent, newest)


class Lookup(NamedTuple):
    """Result of a look-up; a named tuple, since a dataclass takes ten times as long to import.

    Parameters
    ----------
    folder : str
        Folder of the valid entry; empty if there is none.
    manifest : Manifest or None
        Manifest of the valid entry.
    problem : str
        Reason that the newest entry is not valid, if none is.
    damaged : tuple of str
        Folders of broken entries, which may be removed.
    """

    folder: str = ""
    manifest: Manifest | None = None
    problem: str = ""
    damaged: tuple[str, ...] = ()


def look_up(base: str, digest: str) -> Lookup:
    """Find the newest valid entry of a key."""
    problem, damaged = "", []
    for folder in variant_folders(base, digest):
        manifest = read_manifest(folder, digest)
        if manifest is None:
            problem = problem or "the cached entry is damaged"
            damaged.append(folder)
            continue
        if is_unchanged(folder, manifest):
            return Lookup(folder=folder, manifest=manifest)
        from be_runtime.store.examine import examine

        verdict = examine(folder, manifest)
        if not verdict.problem:
            if verdict.refreshed is not None:
                with contextlib.suppress(OSError):  # the next check hashes again
                    replace_private(f"{folder}/{MANIFEST}", render_manifest(on_disk(verdict.refreshed)))
            return Lookup(folder=folder, manifest=verdict.refreshed or manifest)
        problem = problem or verdict.problem
        if verdict.damaged:
            damaged.append(folder)
    return Lookup(problem=problem or NOT_CACHED, damaged=tuple(damaged))


def variant_folders(base: str, digest: str) -> list[str]:
    """List the folders of a key's entries, newest first."""
    folder = key_folder(base, digest)
    return [f"{folder}/{name}" for name in sorted(names_in(folder), reverse=True) if VARIANT.fullmatch(name)]


def names_in(folder: str) -> list[str]:
    """List the names in a folder; none if it is gone."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def read_manifest(folder: str, digest: str) -> Manifest | None:
    """Read an entry's manifest; None if it is missing, damaged, of another key, or written by another user.

    The manifest file's modification time is the time of the entry's last use, to a day.
    """
    try:
        with open_regular(f"{folder}/{MANIFEST}", LARGE, judge=distrust_owner, follows_link=False) as file:
            status = os.fstat(file.fileno())
            if time.time() - status.st_mtime > _USE_RESOLUTION_S:
                with contextlib.suppress(OSError):
                    os.utime(file.fileno())
            manifest = in_memory(parse_manifest(file.read(status.st_size)))
    except (OSError, ValueError):
        return None
    return manifest if manifest.digest == digest else None


def replace_private(path: str, data: str | bytes, *, is_new: bool = False) -> None:
    """Replace a file in one step; only the user can read the new one. `is_new` refuses a temporary file that exists."""
    fresh = f"{path}.{os.urandom(4).hex()}"
    try:
        write_private(fresh, data, is_new=is_new)
        os.rename(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def write_private(path: str, data: str | bytes, *, is_new: bool = False) -> None:
    """Write a file that only the user can read, under a name that nobody else uses."""
    # O_EXCL only if asked for: if a network file system loses its reply, the file is there already.
    how = os.O_EXCL if is_new else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
