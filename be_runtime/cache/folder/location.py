"""The folder of the cache: the configured one, the user's cache folder, or a private temporary one."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.cache.folder.guard import find_base, unusable
from be_runtime.errors import CacheError, warn_caller
from be_toolchain.machine.store_paths import CACHE, usual_cache
from be_toolchain.machine.trust.folder_trust import against_libraries, distrust_own_part
from be_toolchain.machine.trust.safe_folders import how_to_vouch
from be_toolchain.terminal import printable_line

if TYPE_CHECKING:
    from be_runtime.settings import Settings
    from be_toolchain.machine.system import System

_CONFIGURE = "set BE_CACHE_DIR to a folder of your own that can be written and is not mounted noexec"


class CacheWarning(UserWarning):
    """The usual cache folder can't be used, so another one is used instead."""


def usable_cache_dir(settings: Settings, system: System) -> Path:
    """Find the folder for `Store`. No folder is made; existing ones are examined.

    Parameters
    ----------
    settings : Settings
        Settings. If `cache_dir` is set, that folder is used or refused; it may have a read-only cache.
    system : System
        The machine.

    Raises
    ------
    CacheError
        The configured folder can't be used, or no folder can.
    """
    facts = system.folder_facts(settings.cache_dir or usual_cache(system.environ))
    if settings.cache_dir is not None and not facts.writable and not facts.obstacle:
        facts = facts._replace(writable=os.path.isdir(find_base(str(facts.path))))
    problem = next(against_libraries(facts), None)
    if problem is None:
        return facts.path
    vouching = (how_to_vouch(system, facts.doubtful),) if facts.doubtful else ()
    if settings.cache_dir is not None:
        raise unusable(str(facts.path), problem, vouching)
    return _fall_back(facts.path, problem, vouching, system)


def temporary_dirs() -> tuple[Path, ...]:
    """List the user's private folders below the machine's temporary ones."""
    import tempfile

    try:
        usual = tempfile.gettempdir()
    except FileNotFoundError:  # none can be written; what is wrong with this one is said with the rest
        usual = "/tmp"  # noqa: S108 - the folders below are checked
    parents = dict.fromkeys((usual, "/var/tmp"))  # noqa: S108 - the same
    return tuple(Path(parent, f"{CACHE}-{os.geteuid()}") for parent in parents)


def _account_cache(system: System) -> tuple[Path, ...]:
    """Return the usual cache of the user's account where ``HOME`` is another user's, as sudo may leave it."""
    from be_toolchain.machine.trust.folder_trail import account_home

    with contextlib.suppress(OSError):
        home = account_home()
        if home and os.stat(system.environ.get("HOME", "/")).st_uid != os.geteuid():
            return (usual_cache({"HOME": home}),)
    return ()


def _fall_back(usual: Path, problem: str, vouching: tuple[str, ...], system: System) -> Path:
    """Return the first private folder that can be used, after a warning; Python shows each text once."""
    tried = [f"{usual} {problem}"]
    for folder in (*_account_cache(system), *temporary_dirs()):
        obstacle = _planted(folder) or next(against_libraries(system.folder_facts(folder)), None)
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
    """Return the reason a folder in a shared one is not the user's own; empty if it is, or does not exist."""
    with contextlib.suppress(OSError):
        return distrust_own_part(folder.lstat(), os.geteuid())
    return ""
