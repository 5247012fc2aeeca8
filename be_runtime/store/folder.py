"""Choose, check and make the cache's folder, and name the files in it.

The folder is the configured one, the user's cache folder, or a private temporary one. Libraries are loaded from it, so
no other user may have write access.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, TypeVar

from be_runtime.errors import CacheError, warn_caller
from be_toolchain.machine import files, local_system, trust
from be_toolchain.terminal import printable_line

if TYPE_CHECKING:
    from be_runtime.settings import Settings
    from be_toolchain.machine.system import System

T = TypeVar("T")

MANIFEST, KEY = "manifest.json", "key.json"

IMPORTED = "imported"
"""Folder of imported artifacts below the cache's folder."""
RESERVED = frozenset({MANIFEST, KEY})

PASSING = frozenset({errno.EIO, errno.ESTALE})
"""Errors of network file systems that may not recur at the next attempt, or that hide a success."""

FAN = re.compile(r"[0-9a-f]{2}")
DIGEST = re.compile(r"[0-9a-f]{64}")
VARIANT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")
"""Names of fan-out folders, of keys' folders, and of entries' folders."""

_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Compiled kernels of brainevent-toolchain. They are built again when deleted.\n"
)
"""Text that marks the folder for backup programs: https://bford.info/cachedir/."""

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_HINTS_FULL = (
    "free some of the disk, such as with be_runtime.clear_cache()",
    "or set BE_CACHE_DIR and TMPDIR to a folder with room",
)
_CONFIGURE = "set BE_CACHE_DIR to a folder of your own that can be written and is not mounted noexec"
_TRIES = 3


class CacheWarning(UserWarning):
    """The usual cache folder can't be used, so another one is used instead."""


def base_folder(home: str) -> str:
    """Return the folder of everything that the cache writes; its name has the version of the layout."""
    return f"{home}/{files.KERNELS}"


def staging_root(base: str) -> str:
    """Return the folder of builds in progress, on the file system of the entries, so that a rename publishes them."""
    return f"{base}/staging"


def fan_folder(base: str, digest: str) -> str:
    """Return the folder of a 256th of all keys."""
    return f"{base}/{digest[:2]}"


def key_folder(base: str, digest: str) -> str:
    """Return the folder of one key's variants."""
    return f"{base}/{digest[:2]}/{digest}"


def lock_file(base: str, digest: str) -> str:
    """Return the lock file of a key, which is next to the key's folder, so that each can be removed alone."""
    return f"{base}/{digest[:2]}/{digest}.lock"


def variant_name(created_ns: int, random: str) -> str:
    """Return the name of a variant's folder. Names sort by age, and no two builds share a name."""
    return f"{created_ns:016x}-{random}"


def created_ns(folder: str) -> int:
    """Return the build time of a variant, from its folder's name."""
    return int(folder.rpartition("/")[2].partition("-")[0], 16)


def output_problem(name: str) -> str | None:
    """Return the reason that a name can't be an entry's output; None if it can be one."""
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        return "not a plain relative path"
    if path.parts[0] in RESERVED:
        return "a name the cache keeps for itself"
    return None


def find_base(root: str) -> str:
    """Return the folder below `root` with the user's entries; it need not exist.

    Raises
    ------
    CacheError
        Another user could put files there.
    """
    base = base_folder(own_folder(root))
    _checked_stat(base)  # it may have been made while other users could write to the root
    return base


def own_folder(root: str) -> str:
    """Return the part of the cache's folder that belongs to the user alone; it need not exist.

    Raises
    ------
    CacheError
        Another user could put files there.
    """
    _require_way_once(root)
    status = _checked_stat(root)
    if status is None or not trust.is_shared(status):
        return root
    own = trust.own_part(root, os.geteuid())
    with contextlib.suppress(FileNotFoundError):
        problem = trust.distrust_own_part(os.lstat(own), os.geteuid())
        if problem:
            raise unusable(own, problem)
    return own


def prepare_base(root: str) -> str:
    """Make the folder that `find_base` returns, with its initial contents.

    Raises
    ------
    CacheError
        The folder can't be made or written, or another user could put files there.
    """
    with cache_errors(root):
        return repeatedly(lambda: _prepare(root))


def _prepare(root: str) -> str:
    own_folder(root)  # before anything is made in a place that is refused
    make_way(root)
    _require_way(root)  # again: another user may have made it meanwhile
    own = own_folder(root)
    if own != root:
        make_folder(own)
    make_folder(base_folder(own))
    base = find_base(root)  # again, for the new folder
    make_folder(staging_root(base))
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(f"{base}/CACHEDIR.TAG", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(_TAG)
    return base


def make_way(path: str) -> None:
    """Make a folder and the missing folders above it, as `make_folder` does."""
    try:
        make_folder(path)
    except FileNotFoundError:
        for folder in (*reversed(Path(path).parents), path):
            make_folder(str(folder))


def make_folder(path: str) -> None:
    """Make a folder that only the user can access, unless it exists."""
    while True:
        try:
            os.mkdir(path, 0o700)
        except OSError as error:
            if not isinstance(error, FileExistsError) and not os.path.isdir(path):
                raise
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(path).st_mode):
                return
        if os.path.lexists(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def move(old: str, new: str) -> None:
    """Rename to a name that no other build uses; if the new name exists after an error, only the reply was lost."""
    for is_last in (False, True):
        try:
            os.rename(old, new)
        except OSError:
            if os.path.lexists(new):
                return
            if is_last:
                raise
        else:
            return


def repeatedly(step: Callable[[], T]) -> T:
    """Return the result of a step, which is repeated a few times if its errors may not recur."""
    for _ in range(_TRIES - 1):
        try:
            return step()
        except (CacheError, OSError) as error:
            if not is_passing(error):
                raise
    return step()


def is_passing(error: BaseException) -> bool:
    """Return whether an error, or its cause, may not recur at the next attempt.

    The dynamic loader's errors have no number, only a text.
    """
    return any(os.strerror(code) in str(error.__cause__ or error) for code in PASSING)


@contextlib.contextmanager
def cache_errors(path: str) -> Iterator[None]:
    """Convert the operating system's errors in the block to errors of the cache.

    Raises
    ------
    CacheError
        The block raised an OSError.
    """
    try:
        yield
    except OSError as error:
        raise _from(error, path) from error


@contextlib.contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Convert errors of the disk, and of files below `path`, to errors of the cache; pass other errors on.

    Raises
    ------
    CacheError
        The block raised such an OSError.
    """
    try:
        yield
    except OSError as error:
        is_below = str(error.filename or "").startswith(f"{path}/")
        if error.errno not in _FULL | PASSING and not is_below:
            raise
        raise _from(error, path) from error


def _from(error: OSError, path: str) -> CacheError:
    name = str(error.filename or "")
    found = unusable(name if name.startswith("/") else path, error.strerror or repr(error))
    if error.errno in _FULL:
        found.hints = _HINTS_FULL
    return found


def unusable(path: str, problem: str, more_hints: tuple[str, ...] = ()) -> CacheError:
    """Make the error for a cache folder that can't be used."""
    hints = ["set BE_CACHE_DIR to a folder of your own", *more_hints]
    if problem.startswith("can be written by"):
        hints.append(f"or close it to others, with all in it: chmod -R go-w {path}")
    if problem.startswith("belongs to"):
        hints.append("or ask its owner to give it to you with chown")
    link = "" if problem.startswith(("is ", "can ", "can't ", "belongs ")) else "can't be used: "
    return CacheError(f"the cache folder {path} {link}{problem}", hints=tuple(hints))


def _require_way(folder: str) -> None:
    """Check that no other user can replace a folder through the folders above it."""
    system = local_system.LocalSystem()
    facts = system.folder_facts(Path(folder))
    if facts.doubtful:
        raise unusable(folder, facts.obstacle, (trust.how_to_vouch(system, facts.doubtful),))


_require_way_once = lru_cache(maxsize=64)(_require_way)
"""`_require_way`, once in a process for each accepted folder, since the check takes a tenth of a warm load's time."""


def _checked_stat(folder: str) -> os.stat_result | None:
    """Return the stat of a folder, after a check that libraries may be loaded from it; None if it does not exist."""
    try:
        link = status = repeatedly(lambda: os.lstat(folder))
        if stat.S_ISLNK(link.st_mode):
            status = repeatedly(lambda: os.stat(folder))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unusable(folder, error.strerror or repr(error)) from error
    problem = trust.distrust(status, os.geteuid(), link=link)
    if problem:
        raise unusable(folder, problem)
    return status


def usable_cache_dir(settings: Settings, system: System) -> Path:
    """Return the folder for `be_runtime.store.cache.Cache`: check existing folders, and make none.

    Parameters
    ----------
    settings : Settings
        If `cache_dir` is set, that folder is used or refused; it may contain a read-only cache.
    system : System
        The machine.

    Raises
    ------
    CacheError
        The configured folder can't be used; or no folder is configured, and none can be used.
    """
    facts = system.folder_facts(settings.cache_dir or files.usual_cache(system.environ))
    if settings.cache_dir is not None and not facts.writable and not facts.obstacle:
        facts = facts._replace(writable=os.path.isdir(find_base(str(facts.path))))
    problem = next(trust.against_libraries(facts), None)
    if problem is None:
        return facts.path
    vouching = (trust.how_to_vouch(system, facts.doubtful),) if facts.doubtful else ()
    if settings.cache_dir is not None:
        raise unusable(str(facts.path), problem, vouching)
    return _fall_back(facts.path, problem, vouching, system)


def temporary_dirs() -> tuple[Path, ...]:
    """List the user's private folders below the temporary folders of the machine."""
    import tempfile

    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:  # no temporary folder can be written; its error is reported with the other errors
        usual = "/tmp"  # noqa: S108 - the folders below are checked
    parents = dict.fromkeys((usual, "/var/tmp"))  # noqa: S108 - the folders below are checked
    return tuple(Path(parent, f"{files.CACHE}-{os.geteuid()}") for parent in parents)


def _account_cache(system: System) -> tuple[Path, ...]:
    """Return the usual cache of the user's account if ``HOME`` belongs to another user, as it may under sudo."""
    from be_toolchain.machine.trust import account_home

    with contextlib.suppress(OSError):
        home = account_home()
        if home and os.stat(system.environ.get("HOME", "/")).st_uid != os.geteuid():
            return (files.usual_cache({"HOME": home}),)
    return ()


def _fall_back(usual: Path, problem: str, vouching: tuple[str, ...], system: System) -> Path:
    """Return the first private folder that can be used, after a warning, which Python shows once."""
    tried = [f"{usual} {problem}"]
    for folder in (*_account_cache(system), *temporary_dirs()):
        obstacle = _planted(folder) or next(trust.against_libraries(system.folder_facts(folder)), None)
        if obstacle is None:
            choices = "; ".join((_CONFIGURE, *vouching))
            message = f"the cache folder {usual} {problem}; using {folder} instead. To choose: {choices}"
            warn_caller(printable_line(message), CacheWarning)
            return folder
        tried.append(f"{folder} {obstacle}")
    raise CacheError(
        "no folder can hold the cache:\n" + "\n".join(f"  {line}" for line in tried), hints=(_CONFIGURE, *vouching)
    )


def _planted(folder: Path) -> str:
    """Return the reason that a folder in a shared folder is not the user's own; empty if it is, or does not exist."""
    with contextlib.suppress(OSError):
        return trust.distrust_own_part(folder.lstat(), os.geteuid())
    return ""
