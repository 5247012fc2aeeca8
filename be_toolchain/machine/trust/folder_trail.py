"""Checks of real folders: the folders and links that lead to a path, and the reason why a folder can't be used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.system import System
from be_toolchain.machine.trust.folder_trust import (
    distrust,
    distrust_own_part,
    distrusted_places,
    is_closed,
    is_shared,
    is_trusted_owner,
    own_part,
)

_MOST_LINKS = 40
_ALL_IDS = (1 << 32) - 1
"""How many users the machine's first namespace knows."""


class JudgedFolder(NamedTuple):
    """The reasons against a folder for libraries; see `FolderFacts` for the fields."""

    obstacle: str
    own_part: Path | None = None
    doubtful: tuple[Path, ...] = ()


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


def distrusted_on_way(path: Path, *, to_it: bool = False) -> tuple[tuple[str, str], ...]:
    """List what leads to a path, and that another user could exchange, each with the reason.

    Parameters
    ----------
    path : Path
    to_it : bool
        Leave out the path itself, which is judged by other rules.

    Raises
    ------
    OSError
        The path does not exist, or can't be examined.
    """
    uid = os.geteuid()
    places = tuple(trail(str(path)))
    places = places[:-1] if to_it else places
    if next(distrusted_places(places, uid), None) is None:
        return ()
    # Seldom needed, and the user database may be on the network.
    home, unknown = account_home(), _unmapped_owner()
    known = ((place, _given_to_root(status) if status.st_uid == unknown else status) for place, status in places)
    return tuple(distrusted_places(known, uid, *({home, os.path.realpath(home)} if home else ())))


def account_home() -> str:
    """Return the home folder of this process's user as the user database tells it; empty if it has no such user."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _unmapped_owner() -> int | None:
    """Return the id that stands for all owners whom this user namespace does not know; None if it knows all.

    In an unprivileged container root of the machine is one of them: ``/`` and ``/tmp`` seem to be nobody's. See
    https://man7.org/linux/man-pages/man7/user_namespaces.7.html
    """
    try:
        lengths = map(int, Path("/proc/self/uid_map").read_bytes().split()[2::3])
        return None if sum(lengths) >= _ALL_IDS else int(Path("/proc/sys/kernel/overflowuid").read_bytes())
    except (OSError, ValueError):
        return None


def _given_to_root(status: os.stat_result) -> os.stat_result:
    """Return the status of a folder as if root owned it; a file's or a link's is left as it is."""
    return os.stat_result((*status[:4], 0, *status[5:10])) if stat.S_ISDIR(status.st_mode) else status


def judge_folder_at(system: System, folder: Path, standing: Path) -> JudgedFolder:
    """Judge a folder for libraries, and all that leads to it.

    Parameters
    ----------
    system : System
        The machine, for the folders that the user vouches for.
    folder, standing : Path
        The folder, and what of it exists.
    """
    problem, own = _judge_alone(folder, standing)
    if problem:
        return JudgedFolder(problem, own)
    try:
        found = distrusted_on_way(standing, to_it=standing == folder)
    except OSError:
        return JudgedFolder(problem, own)
    places = ((row, Path(row[0])) for row in found)
    doubtful = tuple(row for row, place in places if not _is_sheltered(place) and not _is_vouched(system, place))
    if doubtful:
        problem = f"can't be trusted: {' '.join(doubtful[0])}"
    return JudgedFolder(problem, own, tuple(Path(place) for place, _ in doubtful))


def _is_sheltered(place: Path) -> bool:
    """Return whether a place that all may write to is the user's, below a folder that nobody else can enter."""
    uid = os.geteuid()
    return is_trusted_owner(place.lstat(), uid) and any(is_closed(above.stat(), uid) for above in place.parents)


def _is_vouched(system: System, place: Path) -> bool:
    """Return whether the user vouches for a place; a file of settings that is not valid vouches for nothing."""
    from be_toolchain.machine.trust.safe_folders import are_safe  # seldom needed

    try:
        return are_safe(system, (place,))
    except PreferenceError:
        return False


def _judge_alone(folder: Path, standing: Path) -> tuple[str, Path | None]:
    """Return the reason why a folder by itself can't be used, or an empty text, and the user's part of a shared one."""
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
