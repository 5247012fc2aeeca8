"""Build an entry after a cache miss. One process builds in a staging folder and publishes, and the others wait.

A staging folder is named after its key, host and process, so that another process can see who builds, and remove the
files of killed builds.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from be_runtime.errors import CacheError
from be_runtime.store import cache, examine, keys, lock
from be_runtime.store.folder import (
    KEY,
    MANIFEST,
    cache_errors,
    created_ns,
    disk_errors,
    fan_folder,
    key_folder,
    lock_file,
    make_folder,
    move,
    output_problem,
    repeatedly,
    staging_root,
    variant_name,
)
from be_runtime.store.manifest import FileRecord, Files, Making, Manifest, group_absent, on_disk, render_manifest
from be_toolchain.machine.trust import NotRegularError
from be_toolchain.named import NamedTuple

_NAME = r"(?P<short>[0-9a-f]{16})\.(?P<host>[0-9a-f]{8})\.(?P<pid>[0-9]+)\.(?P<random>[0-9a-f]{8})"

_UNFINISHED = r"(?:manifest|pruning)\.json\.[0-9a-f]{8}"
"""Temporary files of `be_runtime.store.cache.replace_file`."""

DEAD_OWNER_AGE_S = 3600.0
"""Time to keep a dead owner's folder: a live process in a container with this host's name may seem dead."""

ANY_OWNER_AGE_S = 48 * 3600.0
"""Time after which any folder is removed, also another host's, since no build takes this long."""

MOST_VARIANTS = 4
"""Number of entries to keep for one key, for headers that change back and forth."""

GRACE_NS = 60_000_000_000
"""Time to keep a superseded entry, since another process may have found it and may load it soon."""


def discard(base: str, path: str, digest: str) -> bool:
    """Move an entry away in one step, then delete it; return False if it did not exist.

    Raises
    ------
    OSError
        The entry can't be removed.
    """
    aside = _new_staging(base, digest)
    try:
        move(path, aside)
    except OSError:
        if not os.path.isdir(path):
            return False
        # The disk is full, or the folder is in an overlay's lower layer. A folder without a manifest is no entry.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{path}/{MANIFEST}")
        aside = path
    remove_tree(aside)
    return True


def remove_tree(path: str) -> None:
    """Delete a folder and its contents; files that can't be deleted now are removed later."""
    import shutil

    for _ in range(2):  # a network file system may fail once
        with contextlib.suppress(OSError):  # rmtree raises it for the folder itself
            shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return


def builder_of(base: str, digest: str) -> str:
    """Name the process that builds a key now."""
    with contextlib.suppress(OSError):
        for name in os.listdir(staging_root(base)):
            match = re.fullmatch(_NAME, name)
            if match and match["short"] == digest[:16]:
                pid = int(match["pid"])
                if match["host"] != host_id():
                    return f"process {pid} on another host"
                if is_alive(pid):
                    return lock.THIS_PROCESS if pid == os.getpid() else f"process {pid}"
    return "another process"


def sweep(base: str, *, now_s: float | None = None) -> int:
    """Remove the folders of killed processes, and return their number."""
    removed = 0
    now_s = time.time() if now_s is None else now_s
    sweep_unfinished(base)
    with contextlib.suppress(FileNotFoundError), os.scandir(staging_root(base)) as items:
        for item in items:
            with contextlib.suppress(OSError):
                age_s = now_s - item.stat(follow_symlinks=False).st_mtime
                if is_abandoned(item.name, age_s, host=host_id(), is_alive=is_alive):
                    remove_tree(item.path)
                    removed += 1
    return removed


def sweep_unfinished(folder: str) -> None:
    """Remove the temporary files of killed processes in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as items:
        for item in items:
            if re.fullmatch(_UNFINISHED, item.name) and time.time() - item.stat().st_mtime > DEAD_OWNER_AGE_S:
                os.unlink(item.path)


def is_abandoned(name: str, age_s: float, *, host: str, is_alive: Callable[[int], bool]) -> bool:
    """Return whether a staging folder's process has ended; False for any other folder. Pure."""
    match = re.fullmatch(_NAME, name)
    if match is None:
        return False
    if age_s > ANY_OWNER_AGE_S:
        return True
    return match["host"] == host and age_s > DEAD_OWNER_AGE_S and not is_alive(int(match["pid"]))


def is_alive(pid: int) -> bool:
    """Return whether a process of this host has the id."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def host_id() -> str:
    """Return eight hexadecimal digits of the hash of the host's name."""
    return hashlib.sha256(os.uname().nodename.encode()).hexdigest()[:8]


def _new_staging(base: str, digest: str) -> str:
    """Return the path of a staging folder that no other build uses."""
    return f"{staging_root(base)}/{digest[:16]}.{host_id()}.{os.getpid()}.{os.urandom(4).hex()}"


class Stage(NamedTuple):
    """A build's two folders, the reason for the build, and its start time by two clocks."""

    work: str
    entry: str
    reason: str
    began_ns: int
    began_s: float


def open_stage(folder: str, reason: str) -> Stage:
    """Make a staging folder, with the folders for the build and for the entry inside."""
    make_folder(folder)
    began_ns = build_began(folder, time.time_ns())
    stage = Stage(f"{folder}/build", f"{folder}/entry", reason, began_ns, time.monotonic())
    make_folder(stage.work)
    make_folder(stage.entry)
    return stage


def build_began(folder: str, now_ns: int) -> int:
    """Return the start time of the build in a new folder, the earlier of its file system's clock and this machine's.

    On local file systems, both are the same clock, so a file that changed right before the build is not uncertain. A
    file server has its own clock, and the files of a build may be on either machine.
    """
    return min(os.stat(folder).st_ctime_ns, now_ns)


def publish(base: str, key: keys.CacheKey, stage: Stage, output: cache.BuildOutput) -> tuple[str, Manifest]:
    """Move a build's outputs into a new entry of `key`. After an error, the call may be repeated.

    Returns
    -------
    tuple of (str, Manifest)
        The entry's folder, which never changes except for the stats in its manifest, and the manifest.

    Raises
    ------
    CacheError
        An output's name is not allowed, or the output is missing or not a regular file.
    OSError
        The entry can't be written.
    """
    manifest = _describe(base, key, stage, output)
    cache.write_file(f"{stage.entry}/{KEY}", key.to_json())
    cache.write_file(f"{stage.entry}/{MANIFEST}", render_manifest(on_disk(manifest)))
    folder = key_folder(base, key.digest)
    variant = f"{folder}/{variant_name(manifest.created_ns, os.urandom(4).hex())}"
    while True:
        make_folder(fan_folder(base, key.digest))
        try:
            make_folder(folder)
            move(stage.entry, variant)
        except FileNotFoundError:  # another process may remove the folders above at any time
            if not os.path.isdir(stage.entry):
                raise
        else:
            return variant, manifest


def trim(base: str, digest: str, damaged: Iterable[str] = ()) -> None:
    """Remove a key's damaged and superseded entries.

    A removed library stays mapped in processes that have loaded it, since its file is unlinked and never written.
    """
    for folder in {*damaged, *superseded(cache.variant_folders(base, digest), time.time_ns())}:
        with contextlib.suppress(OSError):
            discard(base, folder, digest)


def superseded(folders: Sequence[str], now_ns: int) -> list[str]:
    """Select the superseded entries of a key, which are neither among the newest few nor in their grace time. Pure.

    Parameters
    ----------
    folders : sequence of str
        The key's entries, newest first.
    now_ns : int
        Current time.
    """
    return [folder for folder in folders[MOST_VARIANTS:] if created_ns(folder) < now_ns - GRACE_NS]


def _describe(base: str, key: keys.CacheKey, stage: Stage, output: cache.BuildOutput) -> Manifest:
    """Collect the outputs, hash all files, and note the inputs that changed meanwhile."""
    known = output.recorded or cache.Recorded(stage.began_ns, time.time_ns(), {})
    seconds = time.monotonic() - stage.began_s + (stage.began_ns - known.began_ns) / 1e9
    if not output.outputs:
        raise CacheError(f"the build of {key.name or key.kind} produced no outputs")
    outputs = [_collect(stage, name) for name in dict.fromkeys(output.outputs)]
    absent, appeared = group_absent(map(str, output.absent))
    read, looked_at = _outside(stage.work, output.dependencies), _outside(stage.work, output.others)
    records = record_files([*read, *looked_at], known).records
    dependencies: dict[str, FileRecord | None] = {path: records.get(path) for path in read}
    others: dict[str, FileRecord | None] = {path: records.get(path) for path in looked_at}
    for path in appeared:  # the build could not use it because of its permissions, or since it is a folder
        others[path] = examine.record_stat(path, path) if os.path.isfile(path) else None
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
            os.lstat(target)  # an earlier call may have moved the output
        except FileNotFoundError:
            raise CacheError(f"the build did not make its output {name!r}") from None
    else:
        if not stat.S_ISREG(status.st_mode):
            raise CacheError(f"the build's output {name!r} is not a regular file")
        if "/" in name:
            os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        if status.st_nlink == 1:
            move(source, target)
        else:  # another program has a hard link to it, such as a compiler launcher's cache
            import shutil

            shutil.copyfile(source, target)
    os.chmod(target, 0o600)
    return examine.record_file(target, name)


def _outside(work: str, paths: Iterable[Path | str]) -> list[str]:
    """Return the absolute paths of the files outside of the build's folder, each once, in order."""
    found: dict[str, None] = {}
    for path in map(str, paths):
        full = path if path.startswith("/") else os.path.normpath(f"{work}/{path}")
        if not full.startswith(f"{work}/"):
            found[full] = None
    return list(found)


def record_dependency(path: str) -> FileRecord | None:
    """Return a dependency's record; None if the file was removed or is not a regular file."""
    try:
        return examine.record_file(path, path)
    except (FileNotFoundError, NotRegularError):
        return None


def record_files(paths: Iterable[Path | str], known: cache.Recorded) -> cache.Recorded:
    """Hash files once for several outputs of a build; missing files are left out.

    Parameters
    ----------
    paths : iterable of Path or str
    known : Recorded
        Earlier records. A file with a record is hashed again only if its stat has changed.
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
        return examine.has_stat(record, os.stat(record.path))
    except OSError:
        return False


def _recorded_before(base: str, digest: str, began_ns: int) -> set[FileRecord]:
    """Return the records of files that a key's entries took before a build began.

    A file that still matches such a record has not changed during the build, whatever its file system's clock shows.
    With a clock that is ahead, all changes seem to come after the build's start. Without this check, every load would
    build again.
    """
    manifests = (cache.read_manifest(folder, digest) for folder in cache.variant_folders(base, digest))
    older = [manifest for manifest in manifests if manifest is not None and manifest.recorded_ns < began_ns]
    return {record for manifest in older for record in manifest.dependencies.records}


class Building:
    """The only build of a key on this machine; `be_runtime.store.cache.Cache.building` opens it.

    Attributes
    ----------
    entry : Entry or None
        The entry of the key, once it exists.
    folder : Path
        An empty folder for the build; it is removed at the end.
    """

    def __init__(self, base: str, key: keys.CacheKey, *, force: bool) -> None:
        self.entry: cache.Entry | None = None
        self.folder = Path()
        self._base, self._key, self._force = base, key, force
        self._stage: Stage | None = None
        self._seen: list[str] = []

    def publish(self, output: cache.BuildOutput) -> None:
        """Make an entry from the outputs in the folder."""
        stage = self._stage
        assert stage is not None, "the build is open"
        with cache_errors(self._base):
            path, manifest = repeatedly(lambda: publish(self._base, self._key, stage, output))
        self.entry = cache.Entry(Path(path), manifest, built=True, reason=stage.reason)

    def is_there(self) -> bool:
        """Return whether another machine has added a valid entry to the cache meanwhile."""
        return cache.look_up(self._base, self._key.digest).manifest is not None

    def take(self) -> None:
        """Use the entry that another machine has added to the cache.

        Raises
        ------
        CacheError
            The entry is not valid here.
        """
        found = cache.look_up(self._base, self._key.digest)
        if found.manifest is None:
            name = self._key.name or self._key.kind
            raise CacheError(f"{name} was built by another machine, but not for this one: {found.problem}")
        self.entry = cache.Entry(Path(found.folder), found.manifest, built=False)

    def _has_come(self) -> bool:
        """Return whether the entry exists already, since the lock's holder may release the lock late, or hang."""
        before, self._seen = self._seen, cache.variant_folders(self._base, self._key.digest)
        return self._seen != before and not self._force and self.is_there()

    @contextlib.contextmanager
    def opened(self, timeout_s: float | None, on_wait: lock.OnWait | None, flock: lock.Flock) -> Iterator[Building]:
        """Hold the key's lock, and make the folder unless another process has built the entry during the wait."""
        base, digest = self._base, self._key.digest
        with lock.key_lock(
            lock_file(base, digest),
            timeout_s=timeout_s,
            on_wait=on_wait,
            holder=lambda: builder_of(base, digest),
            is_needless=self._has_come,
            flock=flock,
        ):
            found = cache.Lookup(problem="a rebuild was requested") if self._force else cache.look_up(base, digest)
            if found.manifest is not None:
                self.entry = cache.Entry(Path(found.folder), found.manifest, built=False)
                yield self
                return
            staging = _new_staging(base, digest)
            try:
                with cache_errors(base):
                    self._stage = repeatedly(lambda: open_stage(staging, found.problem))
                self.folder = Path(self._stage.work)
                with disk_errors(self._stage.work):
                    yield self
            finally:
                remove_tree(staging)
            if self.entry is not None and self.entry.built:
                trim(base, digest, found.damaged)
