"""Checks of real folders: the folders and links that lead to a path, and the reason why a folder can't be used."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from be_toolchain.machine.trust.folder_trust import distrust, distrust_own_part, distrust_trail, is_shared, own_part

_MOST_LINKS = 40
_ALL_IDS = 2**32 - 1


def trail(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every folder and link that leads to an absolute path, from the root on, and the path itself."""
    yield "/", os.lstat("/")
    place, links, left = "", 0, path.split("/")[::-1]
    while left:
        name = left.pop()
        here = f"{place}/{name}"
        if name == "..":
            place = place.rpartition("/")[0]
        if name in ("", ".", ".."):
            continue
        status = os.lstat(here)
        yield here, status
        if not stat.S_ISLNK(status.st_mode):
            place = here
            continue
        target = os.readlink(here)  # noqa: PTH115 - the same
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        place = "" if target.startswith("/") else place
        left += target.split("/")[::-1]


def untrusted_parents(folder: str) -> dict[Path, str]:
    """Return the folders and links above a folder by which others could put one in its place, each with the reason.

    Each must belong to the user or root, and nobody else may write to it unless it is sticky, as sshd's StrictModes
    has it. Of a missing folder, all that exists is above it. The folders above the home of the account, whatever HOME
    is, are the administrator's choice.
    """
    parents = []
    try:
        for each in trail(folder):
            parents.append(each)  # noqa: PERF402 - what was there before an error counts
    except OSError:
        pass
    else:
        parents.pop()
    uid, hidden = os.geteuid(), _hidden_owner()
    judged = {Path(path): distrust_trail([(path, status)], uid) for path, status in parents if status.st_uid != hidden}
    found = {path: problem for path, problem in judged.items() if problem}
    home = _account_home(uid) if found else None
    if home is not None and Path(folder).is_relative_to(home):
        found = {path: problem for path, problem in found.items() if path not in home.parents}
    return found


def _account_home(uid: int) -> Path | None:
    """Return the home folder in the user database; None for a user without an entry, as in containers."""
    import pwd  # few folders need it, and the database may be a server

    with contextlib.suppress(KeyError):
        return Path(pwd.getpwuid(uid).pw_dir)
    return None


@functools.cache
def _hidden_owner() -> int | None:
    """Return the number that stands for all users that this user namespace hides, root among them; None if none is.

    See https://man7.org/linux/man-pages/man7/user_namespaces.7.html, unmapped user and group IDs.
    """
    with contextlib.suppress(OSError, ValueError):
        mapped = Path("/proc/self/uid_map").read_bytes().splitlines()
        if sum(int(line.split()[2]) for line in mapped) < _ALL_IDS:
            return int(Path("/proc/sys/kernel/overflowuid").read_bytes())
    return None


def judge_folder_at(folder: Path, standing: Path) -> tuple[str, Path | None]:
    """Return the reason why a folder can't be used, empty when it can, and the user's own part of a shared one.

    Parameters
    ----------
    folder : Path
    standing : Path
        The folder, or what of it exists.
    """
    if standing != folder or not folder.is_absolute():
        return _unmade(folder, standing), None
    uid = os.geteuid()
    try:
        link, status = folder.lstat(), folder.stat()
    except OSError:
        return "", None
    problem = distrust(status, uid, link=link if stat.S_ISLNK(link.st_mode) else None)
    if problem or not is_shared(status):
        return problem, None
    own = Path(own_part(str(folder), uid))
    try:
        problem = distrust_own_part(own.lstat(), uid)
    except OSError:
        return "", own
    return problem and f"is shared, and {own} in it {problem}", own


def _unmade(folder: Path, standing: Path) -> str:
    """Return the reason why a missing folder can't be made, judged by the folders and links that exist."""
    if not folder.is_absolute():
        unknown = "home" if folder.parts[:1] == ("~",) else "working"
        return f"is not absolute: the {unknown} folder is unknown"
    broken = next((path for path in (folder, *folder.parents) if os.path.islink(path)), standing)  # noqa: PTH114 - Path.is_symlink raises below a folder that can't be read
    if broken != standing and broken.is_relative_to(standing):
        return f"can't be made: {broken} is a symbolic link that leads nowhere"
    return "" if standing.is_dir() else f"can't be made: {standing} is not a folder"
