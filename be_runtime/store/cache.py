"""The build cache, which returns a valid entry at once, or builds it once for all processes that need it.

Only a miss, or the removal of entries, imports further modules, so a warm load does not import them.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime import trace
from be_runtime.errors import CacheError
from be_runtime.store.folder import MANIFEST, VARIANT, cache_errors, find_base, key_folder, prepare_base
from be_runtime.store.keys import CacheKey
from be_runtime.store.lock import Flock, OnWait
from be_runtime.store.manifest import (
    RACY_MARGIN_NS,
    FileRecord,
    Manifest,
    in_memory,
    new_file,
    on_disk,
    parse_manifest,
    render_manifest,
)
from be_toolchain.machine.trust import LARGE, distrust_owner, open_regular
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.store.artifact import Artifact
    from be_runtime.store.eviction import EntryInfo
    from be_runtime.store.publish import Building

_USE_RESOLUTION_S = 24 * 3600.0

NOT_CACHED = "it was not in the cache"


def is_unchanged(folder: str, manifest: Manifest) -> bool:
    """Return whether stat alone proves an entry valid. Every warm load calls it, so it must be fast."""
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
    """Result of a look-up. It is a named tuple, since a dataclass takes ten times as long to import.

    Parameters
    ----------
    folder : str
        Folder of the valid entry; empty if there is none.
    manifest : Manifest or None
        Manifest of the valid entry.
    problem : str
        Reason that the newest entry is not valid, if no entry is.
    damaged : tuple of str
        Folders of damaged entries, which may be removed.
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
                    replace_file(f"{folder}/{MANIFEST}", render_manifest(on_disk(verdict.refreshed)))
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
    """List the names in a folder; none if the folder does not exist."""
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


def replace_file(path: str, data: str | bytes, *, mode: int = 0o600, is_new: bool = False) -> None:
    """Replace a file by one rename, or leave it unchanged; with `is_new`, fail if the temporary file exists."""
    fresh = f"{path}.{os.urandom(4).hex()}"
    try:
        write_file(fresh, data, mode=mode, is_new=is_new)
        os.rename(fresh, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh)
        raise


def write_file(path: str, data: str | bytes, *, mode: int = 0o600, is_new: bool = False) -> None:
    """Write a file under a name that nobody else uses; by default, only the user can read it."""
    # O_EXCL is used only on request: if a network file system loses its reply, the file exists already.
    how = os.O_EXCL if is_new else os.O_TRUNC
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | how | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with open(descriptor, "wb") as file:
        file.write(data.encode() if isinstance(data, str) else data)


class Recorded(NamedTuple):
    """Records of the files that a build has read so far, if it publishes its outputs one by one.

    Parameters
    ----------
    began_ns : int
        Start of the build, see `be_runtime.store.publish.build_began`. A file that has changed since then is uncertain.
    taken_ns : int
        Time of the first record, after the end of the build.
    records : mapping of str to FileRecord
        Records by path.
    """

    began_ns: int
    taken_ns: int
    records: Mapping[str, FileRecord]


class BuildOutput(NamedTuple):
    """The outputs and inputs of a build.

    Parameters
    ----------
    outputs : tuple of str
        Paths of regular files, relative to the staging folder. Everything else in that folder is deleted.
    dependencies : tuple of Path or str
        Every source and header that was read, as compilers list them. Relative paths are relative to the staging
        folder; files inside the folder are left out.
    others : tuple of str
        Other files that the build used, such as compilers and libraries. The path of a listed folder ends with a
        slash, or with ``/.`` if only the names of libraries matter.
    absent : tuple of Path or str
        Paths that the build searched without finding a file, see `be_runtime.store.manifest.shadowing_paths`.
    recorded : Recorded or None
        Records taken so far, if the build began before the staging folder was made.
    unknown : tuple of str
        Descriptions of inputs that are not files. With such inputs, only the builder's process uses the outputs.
    source : str
        Place that the outputs were fetched from, such as ``"process 0 of the job"``; empty if they were built here.
    """

    outputs: tuple[str, ...]
    dependencies: tuple[Path | str, ...] = ()
    others: tuple[str, ...] = ()
    absent: tuple[Path | str, ...] = ()
    recorded: Recorded | None = None
    unknown: tuple[str, ...] = ()
    source: str = ""


BuildFunction = Callable[[Path], BuildOutput]


class Entry(NamedTuple):
    """A valid entry of the cache.

    Parameters
    ----------
    path : Path
        Folder of the entry. It never changes: a newer build gets another folder.
    manifest : Manifest
        Contents of the entry, and the files it was made from.
    built : bool
        True if this call built it.
    reason : str
        Reason for the build, such as ``"/home/me/x.cuh changed"``; empty if the entry was found.
    """

    path: Path
    manifest: Manifest
    built: bool
    reason: str = ""

    def output(self, name: str) -> Path:
        """Return the path of one of the build's outputs.

        Raises
        ------
        KeyError
            The build made no such output.
        """
        if name not in self.manifest.outputs.paths:
            raise KeyError(name)
        return self.path / name

    def artifact(self) -> Artifact:
        """Open the artifact of an entry that has one.

        Raises
        ------
        OSError, LoadError
            The entry was removed, or is damaged.
        """
        from be_runtime.store.artifact import open_own

        return open_own(self.path)

    def is_there(self) -> bool:
        """Return whether the entry can be opened; on a network file system, stat may succeed after its removal."""
        try:
            os.close(os.open(self.path / MANIFEST, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError:
            return False
        return True


class Cache(NamedTuple):
    """The cache below one folder. The constructor reads and writes no file.

    Parameters
    ----------
    root : Path
        The cache's folder, which the first build makes. `be_runtime.store.folder` has the rules for its owner.
    flock : callable
        The locking primitive.
    """

    root: Path
    flock: Flock = fcntl.flock

    def get(self, key: CacheKey) -> Entry | None:
        """Return the entry of a key if it is valid now, without taking a lock or starting a process.

        Raises
        ------
        CacheError
            Another user could put files into the cache's folder.
        """
        found = look_up(find_base(str(self.root)), key.digest)
        return None if found.manifest is None else Entry(Path(found.folder), found.manifest, built=False)

    @contextlib.contextmanager
    def building(
        self,
        key: CacheKey,
        *,
        force: bool = False,
        lock_timeout_s: float | None = None,
        on_wait: OnWait | None = None,
    ) -> Iterator[Building]:
        """Open the build of a key while no other process builds it.

        Parameters
        ----------
        key : CacheKey
            Key of the request.
        force : bool
            Build even if a valid entry exists.
        lock_timeout_s : float, optional
            Longest wait for another process that builds the same key; None waits until that process ends.
        on_wait : callable, optional
            Called now and then during a wait, with the seconds waited so far and the process that builds.

        Yields
        ------
        Building
            It has an `entry` if another process has built it meanwhile. Otherwise, the block builds in its `folder`
            and calls `publish`.

        Raises
        ------
        CacheError
            The cache's folder can't be used, or the wait was too long.
        """
        from be_runtime.store.publish import Building

        building = Building(prepare_base(str(self.root)), key, force=force)
        with building.opened(lock_timeout_s, on_wait, self.flock):
            yield building

    def get_or_build(
        self,
        key: CacheKey,
        build: BuildFunction,
        *,
        force: bool = False,
        lock_timeout_s: float | None = None,
        on_wait: OnWait | None = None,
    ) -> Entry:
        """Return the entry of a key, and build it if there is no valid one; see `building`.

        Parameters
        ----------
        build : callable
            Called with an empty folder to work in, at most once. If it raises, the exception is passed on.

        Raises
        ------
        CacheError
            The cache's folder can't be used, the wait was too long, or the build did not make its outputs.
        """
        entry = None if force else self.get(key)
        if entry is None:
            with self.building(key, force=force, lock_timeout_s=lock_timeout_s, on_wait=on_wait) as building:
                if building.entry is None:
                    with trace.span(f"make and keep {key.kind}", entry=key.name):
                        building.publish(build(building.folder))
            entry = building.entry
            assert entry is not None, "a build publishes its entry"
        return entry

    def keep(self, key: CacheKey, build: BuildFunction, *, force: bool = False) -> None:
        """Build an entry that saves work in later builds, and ignore errors of the cache."""
        with contextlib.suppress(CacheError):
            self.get_or_build(key, build, force=force)

    def clear(self, name: str | None = None) -> int:
        """Remove the entries of one module, or all entries, and keep files that the cache did not write.

        Returns
        -------
        int
            The number of entries removed.
        """
        from be_runtime.store.eviction import clear

        base = find_base(str(self.root))
        with cache_errors(base):
            return clear(base, name)

    def remove(self, entries: Iterable[EntryInfo]) -> list[EntryInfo]:
        """Remove entries, and return the removed ones, since another process may have removed the rest."""
        from be_runtime.store.eviction import remove

        base = find_base(str(self.root))
        with cache_errors(base):
            return remove(base, entries)

    def entries(self) -> Iterator[EntryInfo]:
        """Iterate over all entries, valid or not, in no particular order."""
        from be_runtime.store.eviction import scan

        return scan(find_base(str(self.root)))

    def prune(
        self,
        max_size_bytes: int | None = None,
        max_age_days: float | None = None,
        *,
        patience_s: float = math.inf,
        now_s: float | None = None,
    ) -> bool:
        """Remove damaged and old entries, then the least recently used ones until the rest is small enough.

        Parameters
        ----------
        max_size_bytes : int, optional
            Limit for the size of all outputs together.
        max_age_days : float, optional
            Limit for the time since an entry's last use, which is known to a day.
        patience_s : float
            Time limit. Once it has passed, the call records its progress, and the next call continues from there.
        now_s : float, optional
            The current time; by default this machine's.

        Returns
        -------
        bool
            True if there is nothing left to do for a day.

        Raises
        ------
        CacheError
            The cache's folder can't be used or written.
        """
        from be_runtime.store.eviction import prune

        base = find_base(str(self.root))
        if not os.path.isdir(base):
            return True
        with cache_errors(base):
            now_s = time.time() if now_s is None else now_s
            return prune(base, max_size_bytes, max_age_days, patience_s=patience_s, now_s=now_s)

    def explain(self, key: CacheKey) -> tuple[str, ...]:
        """Describe the differences between `key` and the newest entry of the same kind and name, one line per field.

        The comparison reads every manifest, so it is only for users who ask for the reason of a rebuild.
        """
        from be_runtime.store.eviction import newest_key

        older = newest_key(find_base(str(self.root)), key)
        return () if older is None else older.explain(key)
