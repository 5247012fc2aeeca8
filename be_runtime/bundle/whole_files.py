"""Files whose whole hash was checked once on this machine: the cache remembers it, as long as their stat is the same.

A check that was made is an empty file, named by the hash of all that it is good for. It counts in a folder that is the
user's own alone. Where none can be written, each process hashes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

from be_runtime.cache.folder.guard import make_folder
from be_runtime.cache.validity.manifest import RACY_MARGIN_NS
from be_toolchain.machine.trust.folder_trust import distrust_own_part
from be_toolchain.machine.trust.regular_file import open_regular

KEPT = 1024
"""How many checks are remembered: one that is forgotten costs a hash."""


def is_whole(path: Path, digest: str, size: int, memory: str) -> bool:
    """Return whether a file has the size and the hash that it should have.

    Parameters
    ----------
    path : Path
    digest : str
        SHA-256 of its bytes.
    size : int
        In bytes.
    memory : str
        Folder that remembers checks; it need not exist. Empty if there is none.

    Raises
    ------
    OSError
        The file can't be read.
    """
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_size != size:
            return False
        name = _name(status, path, digest)
        if memory and _is_kept(memory, name):
            return True
        began_ns = time.time_ns()
        if hashlib.file_digest(file, "sha256").hexdigest() != digest:
            return False
        is_settled = max(status.st_mtime_ns, status.st_ctime_ns) < began_ns - RACY_MARGIN_NS
        if memory and is_settled and _name(os.fstat(file.fileno()), path, digest) == name:
            with contextlib.suppress(OSError):  # the next process hashes too
                _keep(memory, name)
    return True


def _name(status: os.stat_result, path: Path, digest: str) -> str:
    facts = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, path, digest)
    return hashlib.sha256("\0".join(map(str, facts)).encode("utf-8", "surrogateescape")).hexdigest()


def _is_kept(memory: str, name: str) -> bool:
    try:
        is_own = not distrust_own_part(os.lstat(memory), os.geteuid())
    except OSError:
        return False
    return is_own and os.path.lexists(f"{memory}/{name}")


def _keep(memory: str, name: str) -> None:
    """Remember a check, and forget the oldest ones."""
    os.makedirs(os.path.dirname(memory), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120 - with the cache's mode
    make_folder(memory)
    os.close(os.open(f"{memory}/{name}", os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    with os.scandir(memory) as found:
        ages = sorted((each.stat(follow_symlinks=False).st_mtime_ns, each.path) for each in found)
    for _, path in ages[:-KEPT]:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108 - of os.scandir
