"""Which folder the cache is in: the configured one, the user's cache folder, or a private temporary one."""

from __future__ import annotations

import os
import re
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.cache.folder.guard import find_base, root_problem, unusable
from be_runtime.errors import CacheError
from be_toolchain.terminal import printable_line

if TYPE_CHECKING:
    from be_runtime.settings import Settings

_APP = "brainevent-toolchain"
_LOADER_TOKENS = re.compile(r"\$(?:\{(?:ORIGIN|LIB|PLATFORM)\}|(?:ORIGIN|LIB|PLATFORM)(?![A-Za-z0-9_]))")
"""Names that dlopen replaces in a path: https://man7.org/linux/man-pages/man8/ld.so.8.html, dynamic string tokens."""
_CONFIGURE = "set BE_CACHE_DIR to a folder of your own that can be written and is not mounted noexec"


class CacheWarning(UserWarning):
    """The usual cache folder can't be used, so another one is."""


def usable_cache_dir(
    settings: Settings,
    *,
    default: Callable[[], Path] | None = None,
    fallbacks: Callable[[], tuple[Path, ...]] | None = None,
    is_noexec: Callable[[Path], bool] | None = None,
    warn: Callable[[str], object] | None = None,
) -> Path:
    """The folder to give to `Store`. Nothing is made; existing folders are looked at.

    Parameters
    ----------
    settings : Settings
        Its `cache_dir` is used as it is, or refused, when it is set.
    default, fallbacks : callable
        The usual folder, and those tried in its place.
    is_noexec : callable
        Whether libraries in an existing folder can't be loaded, because of how its file system is mounted.
    warn : callable
        Told once, when a fallback is used.

    Raises
    ------
    CacheError
        The configured folder can't be used, or no folder can.
    """
    is_noexec = is_noexec or mounted_noexec
    if settings.cache_dir is not None:
        folder = settings.cache_dir.absolute()
        problem = folder_problem(folder, is_noexec, filled_serves=True)
        if problem is not None:
            raise unusable(str(folder), problem)
        return folder
    usual = (default or default_cache_dir)()
    problem = folder_problem(usual, is_noexec)
    return usual if problem is None else _fall_back(usual, problem, (fallbacks or temporary_dirs)(), is_noexec, warn)


def folder_problem(folder: Path, is_noexec: Callable[[Path], bool], *, filled_serves: bool = False) -> str | None:
    """Why a folder, which need not exist yet, can't hold the cache; None when it can.

    One that holds a cache already may serve, even if nothing can be added to it.
    """
    if not folder.is_absolute():
        return "is not absolute: the home folder is unknown"
    token = _LOADER_TOKENS.search(str(folder))
    if token is not None:
        return f"holds {token[0]}, which the dynamic loader replaces"
    uid = os.geteuid()
    try:
        existing = _existing_part(folder)
        status = existing.stat()
        problem = root_problem(status, uid) if existing == folder else None
        if problem is None and not stat.S_ISDIR(status.st_mode):
            problem = f"can't be made: {existing} is not a folder"
        serves = problem is None and filled_serves and os.path.isdir(find_base(str(folder)) or "")
        if problem is None and not serves and not os.access(existing, os.W_OK | os.X_OK):
            problem = "can't be written" if existing == folder else f"can't be made: {existing} can't be written"
        if problem is None and is_noexec(existing):
            problem = "is mounted noexec: libraries in it can't be loaded"
    except OSError as error:
        problem = f"can't be examined: {error.strerror}"
    return problem


def default_cache_dir() -> Path:
    """The user's cache folder, by the platform's convention."""
    import platformdirs

    return Path(platformdirs.user_cache_dir(_APP, appauthor=False))


def temporary_dirs() -> tuple[Path, ...]:
    """The user's private folders below the machine's temporary ones."""
    import tempfile

    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:  # none can be written; what is wrong with this one is said with the rest
        usual = "/tmp"  # noqa: S108 - the folders below are checked
    parents = dict.fromkeys((usual, "/var/tmp"))  # noqa: S108 - the same
    return tuple(Path(parent, f"{_APP}-{os.geteuid()}") for parent in parents)


def mounted_noexec(folder: Path) -> bool:
    """Whether a folder's file system forbids mapping code from its files."""
    return bool(os.statvfs(folder).f_flag & getattr(os, "ST_NOEXEC", 0))


def private_problem(folder: Path) -> str | None:
    """Why a folder where everybody may make folders is not the user's alone; None when it is, or does not exist."""
    try:
        status = folder.lstat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        return "is not a folder"
    if status.st_uid != os.geteuid():
        return f"belongs to another user (uid {status.st_uid})"
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        return f"is open to other users (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _fall_back(
    usual: Path,
    problem: str,
    fallbacks: tuple[Path, ...],
    is_noexec: Callable[[Path], bool],
    warn: Callable[[str], object] | None,
) -> Path:
    """The first fallback that can be used, with the warning."""
    tried = [f"{usual} {problem}"]
    for folder in fallbacks:
        obstacle = private_problem(folder) or folder_problem(folder, is_noexec)
        if obstacle is None:
            (warn or _warn)(f"the cache folder {usual} {problem}; using {folder} instead. To choose: {_CONFIGURE}")
            return folder
        tried.append(f"{folder} {obstacle}")
    raise CacheError("no folder can hold the cache:\n" + "\n".join(f"  {line}" for line in tried), hints=(_CONFIGURE,))


def _existing_part(folder: Path) -> Path:
    """The folder itself or the nearest one above it that exists."""
    for path in (folder, *folder.parents):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        return path
    return folder


def _warn(message: str) -> None:
    """A warning that points at the user's call rather than here; Python shows each text once."""
    warnings.warn(printable_line(message), CacheWarning, stacklevel=4)
