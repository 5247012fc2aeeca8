"""Stores that share artifacts with other machines, and the exchange of an artifact with them after a cache miss.

An export file is a zip of artifacts, each under the digest of its movable key, with a member ``be-export`` that states
the format.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError
from be_runtime.jax.coordination import find_job_store
from be_runtime.settings import Settings
from be_runtime.store import cache, folder, job, publish, sharing, signing
from be_runtime.store.artifact import EXPORT_MARK, MAGIC, Artifact, unpack
from be_runtime.store.remote import name_remote, open_remote, open_signer, open_verifier
from be_toolchain.machine import trust, zips
from be_toolchain.machine.forks import made_once
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable_line

_LONGEST = 600
"""Most characters of a message about an artifact, which may contain a path of any length."""

_FORMAT = b"1\n"


class Imported:
    """The imported artifacts of one cache, each under the digest of its movable key. This `Store` is only read.

    Parameters
    ----------
    root : Path
        The cache's folder.

    Raises
    ------
    CacheError
        Another user could put files there.
    """

    def __init__(self, root: Path) -> None:
        self.folder = Path(folder.own_folder(str(root)), folder.IMPORTED)
        self.secrets: tuple[str, ...] = ()

    def describe(self) -> str:
        """See `Store.describe`."""
        return str(self.folder)

    @property
    def is_there(self) -> bool:
        """True if anything was imported."""
        return self.folder.is_dir()

    def get(self, wanted: sharing.Query) -> Artifact | None:
        """See `Store.get`. An artifact that another user can change counts as missing."""
        path = self._path(wanted.key.digest)
        data = b""
        with contextlib.suppress(OSError):
            for status in (self.folder.lstat(), path.parent.lstat()):
                if not stat.S_ISDIR(status.st_mode) or trust.distrust_entry(status, os.geteuid()):
                    return None
            data = trust.read_regular(path, judge=trust.distrust_entry, follows_link=False)
        return unpack(data, sharing.where_of(self), wanted.verify) if data else None  # a crash may leave an empty file

    def put(self, wanted: sharing.Query, artifact: Artifact) -> None:
        """See `Store.put`. It does nothing, since only users import artifacts."""

    def store(self, digest: str, data: bytes) -> None:
        """Write an artifact as one file, and replace an older one of the same entry.

        Raises
        ------
        CacheError
            The file can't be written.
        """
        path = self._path(digest)
        with folder.cache_errors(str(path)):
            folder.make_way(str(path.parent))
            cache.replace_file(str(path), data, is_new=True)

    def archives(self) -> list[tuple[Path, os.stat_result]]:
        """List the files of the artifacts and their stats."""
        found = []
        for path in sorted(self.folder.glob("??/*")):
            with contextlib.suppress(OSError):
                found.append((path, path.lstat()))
        return found

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


class ExportWriter:
    """Write an export file, which gets its name once it is complete.

    Raises
    ------
    ArgumentError
        The file can't be written.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(f"{path.name}.{os.urandom(4).hex()}.partial")
        self._seen: set[str] = set()

    def __enter__(self) -> Self:
        with self._writing():
            self._file = self._partial.open("xb")  # follow no link, and write no file of another user
            self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_STORED)
        try:
            self._write(EXPORT_MARK, _FORMAT)
        except ArgumentError as error:
            with contextlib.suppress(ArgumentError):  # closing also writes
                self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            with self._writing():
                self._zip.close()
                self._file.close()
                if kind is None:
                    self._partial.replace(self._path)
        finally:
            self._partial.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self._file.close()

    def add(self, digest: str, data: bytes) -> None:
        """Add an artifact as one file, unless the export has one of the same entry."""
        if digest not in self._seen:
            self._seen.add(digest)
            self._write(digest, data)

    def _write(self, name: str, data: bytes) -> None:
        with self._writing():
            self._zip.writestr(zipfile.ZipInfo(name), data)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ArgumentError(f"{self._path} can't be written: {error.strerror}") from error


def read_export(path: Path, verify: signing.Verifier | None = None) -> Iterator[Artifact]:
    """Iterate over the artifacts in an export file, after checks of the hashes and, with `verify`, of the signatures.

    Raises
    ------
    ArgumentError
        The file does not exist, is damaged, has another format, or has an artifact without a trusted signature.
    """
    try:
        with trust.open_regular(path) as file:
            if file.read(len(MAGIC)) == MAGIC:
                hints = ("be_runtime.load_exported loads it",)
                raise ArgumentError(f"{path} is an exported program, not an export of the cache", hints=hints)
        with trust.open_regular(path) as file, zips.open_archive(file) as opened:
            members = opened.infolist()
            names = [member.filename for member in members]
            if EXPORT_MARK not in names or opened.getinfo(EXPORT_MARK).file_size > len(_FORMAT):
                raise ArgumentError(
                    f"{path} is not an export of the cache", hints=("python -m be_runtime cache export",)
                )
            if opened.read(EXPORT_MARK) != _FORMAT:
                raise ArgumentError(f"{path} has the format of another release")
            for member in members:
                if member.filename != EXPORT_MARK:
                    yield _read_artifact(opened, member, verify, path)
    except zipfile.BadZipFile as error:
        hint = "an export is the file that python -m be_runtime cache export writes; it may have been cut short"
        raise ArgumentError(f"{path} is not an export of the cache, or is damaged: {error}", hints=(hint,)) from error
    except (OSError, RuntimeError, EOFError) as error:
        raise ArgumentError(f"{path} can't be read: {getattr(error, 'strerror', None) or error}") from error


def _read_artifact(
    opened: zipfile.ZipFile, member: zipfile.ZipInfo, verify: signing.Verifier | None, path: Path
) -> Artifact:
    name = member.filename
    if not folder.DIGEST.fullmatch(name) or member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
        raise ArgumentError(f"{path} has {name!r}, which is not an artifact")
    try:
        artifact = unpack(zips.read_member(opened, name, trust.LARGEST), f"{path}: the artifact {name[:12]}", verify)
    except ValueError as error:
        raise ArgumentError(f"{path}: the artifact {name[:12]} can't be read: {error}") from error
    except LoadError as problem:
        raise ArgumentError(problem.message, hints=("nothing was imported", *problem.hints)) from None
    if artifact.table.inputs is None or artifact.table.inputs.digest != name:
        raise ArgumentError(f"{artifact.where} does not belong to the entry in its name")
    return artifact


@dataclass
class Exchange:
    """The exchange of one entry's artifact between this machine and other stores.

    Parameters
    ----------
    wanted : Query
    share : Shareable
    stores : sequence of Store
        Stores, in the order in which they are asked.
    offers : bool
        Whether the stores get artifacts that are built here.
    sign : callable, optional
        Signs artifacts that are made here.
    say : callable
        Shows the user the reason that an artifact is not used.
    """

    wanted: sharing.Query
    share: sharing.Shareable
    stores: Sequence[sharing.Store]
    offers: bool
    sign: signing.Sign | None
    say: sharing.Say
    _asked: list[sharing.Store] = field(default_factory=list, init=False)
    _found: Artifact | None = field(default=None, init=False)

    def get(self, building: publish.Building, *, force: bool) -> bool:
        """Make the entry from the first store that has it; return False if none has it, or if `force` is set."""
        if force:
            self._asked = [*self.stores]
            return False
        for store in self.stores:
            artifact = output = None
            try:
                artifact = store.get(self.wanted)
                if artifact is not None:
                    output = sharing.unpack_entry(artifact, self.share, building.folder, store.describe())
            except Exception as problem:  # noqa: BLE001 - no answer of a store ends a load
                shutil.rmtree(building.folder)
                building.folder.mkdir(mode=0o700)
                self._report(store, problem)
            if output is not None:
                self._found = artifact
                building.publish(output)
                return True
            self._asked.append(store)
            if self.wanted.has_come():
                building.take()
                return True
        return False

    def _report(self, store: sharing.Store, problem: Exception) -> None:
        """Show the user why an artifact is not used, without the store's secrets."""
        if not isinstance(problem, BeRuntimeError):
            problem = LoadError(f"{sharing.where_of(store)} can't be used here: {problem!r}")
        text = problem.message
        for secret in store.secrets:
            text = text.replace(secret, "...")
        shown = printable_line(f"{self.wanted.name}: {text}"[:_LONGEST])
        self.say("; ".join([shown, "it is not used", *problem.hints]))

    def put(self, entry: cache.Entry) -> None:
        """Send an entry's artifact to the stores that did not have it."""
        if not self.offers:
            return
        try:
            packed = (
                self._found.packed
                if self._found
                else sharing.pack_entry(entry.path, entry.manifest, self.share, self.sign)
            )
        except LoadError as problem:
            self.abandon(problem.message)
            return
        for store in self._asked:
            store.put(self.wanted, entry.artifact()._replace(packed=packed))

    def abandon(self, problem: str) -> None:
        """Report to the job's other processes, if they were asked, that this process shares no artifact."""
        for store in self._asked:
            if isinstance(store, job.Job):
                store.abandon(self.wanted, problem)


def open_exchange(
    share: Callable[[], sharing.Shareable],
    name: str,
    has_come: Callable[[], bool],
    settings: Settings,
    system: System,
    say: Callable[[str], object],
    cache_dir: Path,
) -> Exchange | None:
    """Open the stores that may have an entry; None if there are no stores.

    Parameters
    ----------
    share : callable
        Returns the part of the entry that is shared. It is called only if there is a store.
    name : str
        Name for messages.
    has_come : callable
        Returns whether the entry is now in this machine's cache.
    settings : Settings
    system : System
    say : callable
        Shows the user a message.
    cache_dir : Path
        The cache's folder, which also has the imported artifacts.
    """
    source = name_remote(settings, system, say)
    imported = Imported(cache_dir)
    stores: list[sharing.Store] = [imported] if imported.is_there else []
    if settings.cluster:
        stores.append(_open_job(say, settings.compile_timeout_s, verbose=settings.verbose))
    remote = open_remote(source, settings, say)
    if remote is not None:
        stores.append(remote)
    if not stores:
        return None
    shared = share()
    return Exchange(
        sharing.Query(shared.key, name, has_come, open_verifier(source)),
        shared,
        stores,
        offers=settings.shares,
        sign=open_signer(settings, system, say),
        say=say,
    )


@made_once(2)
def _open_job(say: Callable[[str], object], patience_s: float, *, verbose: bool) -> job.Job:
    """Return the process's only link to the other processes of its job, which remembers the requests."""
    return job.Job(find_job_store, say, say if verbose else lambda _: None, patience_s=patience_s)
