"""The folder of imported archives beside the cache, as a place for entries."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from be_runtime.cache import own_folder
from be_runtime.cache.folder.guard import cache_errors, make_way
from be_runtime.sharing.place import WantedEntry
from be_toolchain.machine.trust.folder_trust import distrust_entry
from be_toolchain.machine.trust.regular_file import read_regular


class Imported:
    """The imported archives of one cache, each under the digest of its movable key.

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
        self.folder = Path(own_folder(str(root)), "imported")
        self.label = str(self.folder)
        self.secrets: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """True if anything was imported."""
        return self.folder.is_dir()

    def fetch(self, wanted: WantedEntry) -> bytes | None:
        """See `EntryPlace.fetch`. What another user could have written is not there."""
        path = self._path(wanted.key.digest)
        with contextlib.suppress(OSError):
            if any(_is_foreign(folder.lstat()) for folder in (self.folder, path.parent)):
                return None
            # Of a file that lost its content the name may be left.
            return read_regular(path, judge=distrust_entry, follows_link=False) or None
        return None

    def offer(self, wanted: WantedEntry, data: bytes) -> None:
        """See `EntryPlace.offer`: only a person imports."""

    def abandon(self, wanted: WantedEntry, problem: str) -> None:
        """See `EntryPlace.abandon`."""

    def store(self, digest: str, data: bytes) -> None:
        """Keep an archive, in the place of an older one of the same entry.

        Raises
        ------
        CacheError
            It can't be written.
        """
        path = self._path(digest)
        fresh = path.with_name(f"{digest}.{os.urandom(4).hex()}")
        with cache_errors(str(path)):
            make_way(str(path.parent))
            try:
                with os.fdopen(
                    os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
                ) as file:
                    file.write(data)
                fresh.replace(path)
            except BaseException:
                fresh.unlink(missing_ok=True)
                raise

    def archives(self) -> list[tuple[Path, os.stat_result]]:
        """List the archives and their stats."""
        found = []
        for path in sorted(self.folder.glob("??/*")):
            with contextlib.suppress(OSError):
                found.append((path, path.lstat()))
        return found

    def _path(self, digest: str) -> Path:
        return self.folder / digest[:2] / digest


def _is_foreign(status: os.stat_result) -> bool:
    """Return whether a folder is none, or one that another user could write to."""
    return not stat.S_ISDIR(status.st_mode) or bool(distrust_entry(status, os.geteuid()))
