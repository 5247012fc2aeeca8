"""Checks of real folders: the folders and links that lead to a path, and the reason why a folder can't be used."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from be_toolchain.machine.trust.folder_trust import distrust, distrust_own_part, is_shared, own_part

_MOST_LINKS = 40


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
