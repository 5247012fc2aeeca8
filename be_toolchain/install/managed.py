"""The store of managed toolchains: whole versions side by side, each published by one rename."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.errors import StoreError
from be_toolchain.find.record import make_private
from be_toolchain.install.installers import check_wheel
from be_toolchain.known.versions import release_of
from be_toolchain.machine.files import CUDA_PREFIX, MANIFEST, OTHER_STORE, PREFIXES, SELECTED, find_store, version_in
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.machine.trust import LARGE, SMALL, how_to_vouch, read_regular

_LOCK = "lock"

WORK = "be-toolchain-work-"
"""The prefix of working folders in the temporary folder."""


@contextlib.contextmanager
def make_workplace(parent: Path | None = None, prefix: str = WORK) -> Generator[Path]:
    """Make a working folder, by default in the temporary folder, and remove it at the end.

    Raises
    ------
    OSError
        The folder can't be made.
    """
    folder, lock = _make_locked(parent, prefix)
    try:
        yield folder
    finally:
        _empty(folder)
        os.close(lock)


def _make_locked(parent: Path | None, prefix: str) -> tuple[Path, int]:
    """Make a folder and its lock; try again if a sweep removes the folder in between."""
    while True:
        folder = Path(tempfile.mkdtemp(dir=parent, prefix=prefix))
        try:
            lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        if _take(lock) is not False and os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def _take(lock: int) -> bool | None:
    """Take a lock and return whether it was free; None on a file system without locks, where nothing is swept."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def find_dead(parent: Path, prefixes: str | tuple[str, ...] = WORK) -> tuple[Path, ...]:
    """Find the user's working folders in `parent` whose processes have ended."""
    try:
        found = sorted(entry for entry in parent.iterdir() if entry.name.startswith(prefixes))
    except OSError:
        return ()
    return tuple(folder for folder in found if _is_mine(folder) and _is_dead(folder))


def sweep_dead(folders: Iterable[Path]) -> tuple[str, ...]:
    """Remove the folders of killed processes; return a sentence for each folder that this process removed."""
    return tuple(said for folder in folders if (said := _sweep(folder)))


def _sweep(folder: Path) -> str:
    """Remove one folder under its lock."""
    if not _is_mine(folder):
        return ""
    with contextlib.suppress(OSError):
        folder.rmdir()
        return f"removed {folder}, left by an interrupted installation"
    with _dead_lock(folder) as is_dead:
        if not is_dead:
            return ""
        size_mb = _size_bytes(folder) // 1_000_000
        _empty(folder)
    if folder.exists():
        return f"{folder}, left by an interrupted installation, could not be removed"
    return f"removed {folder} ({size_mb} MB), left by an interrupted installation"


def _is_mine(folder: Path) -> bool:
    """Return whether a path is a folder of this user, and not a link to one."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_dead(folder: Path) -> bool:
    """Return whether a folder's process has ended, or has not locked the folder yet: then it makes another one."""
    with contextlib.suppress(OSError), _dead_lock(folder) as is_dead:
        return is_dead or not any(folder.iterdir())
    return False


@contextlib.contextmanager
def _dead_lock(folder: Path) -> Generator[bool]:
    """Yield whether a folder's process has ended; if so, hold the folder's lock meanwhile."""
    try:
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield False
        return
    try:
        yield bool(_take(lock))
    finally:
        os.close(lock)


def _empty(folder: Path) -> None:
    """Remove a folder, its lock last, so that another sweep can complete a killed removal."""
    with contextlib.suppress(OSError):
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != _LOCK:
                entry.unlink(missing_ok=True)
        if [entry.name for entry in folder.iterdir()] == [_LOCK]:
            shutil.rmtree(folder, ignore_errors=True)


def _size_bytes(folder: Path) -> int:
    """Return the disk usage of a folder in bytes."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - as os.walk
    return total


SCHEMA = 1
"""The version of the manifest; it increases when a field changes its meaning."""

_STAGING, _REMOVED = ".staging-", ".removed-"


class ManagedToolchain(NamedTuple):
    """One version in the store.

    Parameters
    ----------
    name : str
        The name of its folder, such as ``"cuda-13.0.2"``.
    path : Path
        Its folder.
    version : str
        Its version, such as ``"13.0.2"``.
    wheels : tuple of (name, version)
        The wheels that it was made from.
    selected : bool
        Whether ``use`` selected it.
    """

    name: str
    path: Path
    version: str
    wheels: tuple[tuple[str, str], ...]
    selected: bool = False


class ManagedStore:
    """Managed toolchains below one folder, which the first installation makes.

    Parameters
    ----------
    root : Path
        The folder.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def list(self) -> tuple[ManagedToolchain, ...]:
        """Return every complete toolchain: CUDA first, newest first."""
        entries: list[Path] = []
        with contextlib.suppress(OSError):
            entries = sorted(self.root.iterdir())
        selected = self.selected()
        found = (_read(entry, selected) for entry in entries if entry.name.startswith(PREFIXES))
        rows = [row for row in found if row is not None]
        rows.sort(key=lambda row: version_in(row.name), reverse=True)
        return tuple(sorted(rows, key=lambda row: not row.name.startswith(CUDA_PREFIX)))

    def find(self, version: str, *, to_use: bool = False) -> ManagedToolchain:
        """Find the newest toolchain whose name, version or release is `version`.

        With `to_use`, the error also names the command that installs it.

        Raises
        ------
        StoreError
            No toolchain matches.
        """
        rows = self.list()
        for row in rows:
            if version in (row.name, row.version, release_of(row.version), row.version.split(".")[0]):
                return row
        present = ", ".join(row.name for row in rows) or "none"
        hints: tuple[str, ...] = (f"name one of these: {present}",) if rows else ()
        number = version.removeprefix(CUDA_PREFIX)
        if to_use and number[:1].isdigit():
            hints += (f"python -m be_toolchain install --cuda {number} --into managed",)
        raise StoreError(f"no managed toolchain {version!r} in {self.root}; there: {present}", hints=hints)

    def selected(self) -> str:
        """Return the name that ``use`` wrote, empty when there is none."""
        try:
            return read_regular(self.root / SELECTED, SMALL).decode().strip()
        except (OSError, UnicodeDecodeError):
            return ""

    def select(self, row: ManagedToolchain | None) -> None:
        """Make searches take one toolchain before all others, or none."""
        with self._explained():
            if row is None:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    (self.root / SELECTED).unlink()
                return
            with make_workplace(self.root, _STAGING) as work:
                (work / SELECTED).touch(0o600)
                (work / SELECTED).write_text(f"{row.name}\n", encoding="utf-8")
                (work / SELECTED).replace(self.root / SELECTED)

    def damage(self, row: ManagedToolchain) -> tuple[str, ...]:
        """List the differences between a toolchain and its wheels; this reads every file."""
        return tuple(text for name, version in row.wheels for text in check_wheel(row.path, name, version))

    @contextlib.contextmanager
    def stage(self) -> Generator[Path]:
        """Make a folder to build in, removed at the end unless it was published; see `make_workplace`.

        Raises
        ------
        StoreError
            Another user could exchange the store, or a folder above it; or it can't be made.
        """
        system = LocalSystem()
        facts = system.folder_facts(self.root)
        if facts.obstacle:
            hints = (OTHER_STORE, how_to_vouch(system, facts.doubtful)) if facts.doubtful else (OTHER_STORE,)
            raise StoreError(f"the folder of managed toolchains {self.root} {facts.obstacle}", hints=hints)
        with contextlib.ExitStack() as stack:
            with self._explained():
                make_private(self.root)
                folder = stack.enter_context(make_workplace(self.root, _STAGING))
            yield folder

    def publish(self, tree: Path, name: str, wheels: tuple[tuple[str, str], ...]) -> ManagedToolchain:
        """Turn a built folder into a toolchain of the store: write its manifest last, then rename it.

        Parameters
        ----------
        tree : Path
            The folder, in a staging folder of this store.
        name : str
            The toolchain's name.
        wheels : tuple of (name, version)
            The wheels that it was made from.

        Returns
        -------
        ManagedToolchain
            The published toolchain, or the toolchain that another process published first.
        """
        prefix = next(prefix for prefix in PREFIXES if name.startswith(prefix))
        manifest = {"schema": SCHEMA, "version": name.removeprefix(prefix), "wheels": dict(wheels)}
        (tree / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")
        tree.chmod(0o700)
        flush(tree)
        final = self.root / name
        with self._explained():
            present = _read(final, "")
            if present is None or self.damage(present):
                self._discard(final)
            try:
                tree.rename(final)
            except OSError as error:
                # Another process took the name, or a file has it: a manifest shows which.
                if not (isinstance(error, FileExistsError | NotADirectoryError) or final.is_dir()):
                    raise
        published = _read(final, self.selected())
        if published is None:
            raise StoreError(f"{final} is in the way of a managed toolchain", hints=(f"remove {final}",))
        return published

    def remove(self, row: ManagedToolchain) -> None:
        """Remove a toolchain: the store loses it at once, its files are deleted afterwards."""
        if self.selected() == row.name:
            self.select(None)
        with self._explained():
            self._discard(row.path)

    def leftovers(self) -> tuple[Path, ...]:
        """Find the folders of interrupted installations and removals; running ones are not among them."""
        return find_dead(self.root, (_STAGING, _REMOVED))

    def superseded(self) -> tuple[ManagedToolchain, ...]:
        """Find the toolchains, except the selected one, that a newer patch of the same release supersedes."""
        newest: set[tuple[str, str]] = set()
        rows = []
        for row in self.list():
            family = (row.name.partition("-")[0], release_of(row.version))
            if family in newest and not row.selected:
                rows.append(row)
            newest.add(family)
        return tuple(rows)

    def _discard(self, path: Path) -> None:
        """Rename a folder to a hidden name, then delete it."""
        if not path.is_dir():
            return
        with make_workplace(self.root, _REMOVED) as aside:
            path.replace(aside / path.name)

    @contextlib.contextmanager
    def _explained(self) -> Generator[None]:
        """Turn an error of the file system into an error that names the folder."""
        try:
            yield
        except OSError as error:
            raise StoreError(
                f"the folder of managed toolchains, {self.root}, can't be changed: {error.strerror or error}",
                hints=("name another one with BE_TOOLCHAINS_DIR",),
            ) from error


def sweep(system: System) -> tuple[str, ...]:
    """Remove the folders of killed installations in the store and the temporary folder; return a sentence for each."""
    store = find_store(system)
    left = ManagedStore(store.path).leftovers() if store.path is not None and not store.problem else ()
    with contextlib.suppress(FileNotFoundError):  # no temporary folder can be written
        left += find_dead(Path(tempfile.gettempdir()))
    return sweep_dead(left)


def flush(folder: Path) -> None:
    """Flush the file system's buffers, so that a power cut does not publish empty files."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).syncfs(handle)
    finally:
        os.close(handle)


def _read(path: Path, selected: str) -> ManagedToolchain | None:
    """Read a toolchain from its manifest; None if there is no valid manifest."""
    try:
        data: Any = json.loads(read_regular(path / MANIFEST, LARGE))
        if data["schema"] != SCHEMA:
            return None
        wheels = tuple((str(name), str(version)) for name, version in data["wheels"].items())
        return ManagedToolchain(path.name, path, str(data["version"]), wheels, path.name == selected)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
