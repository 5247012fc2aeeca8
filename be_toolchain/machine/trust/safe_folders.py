"""Folders of other users that this user vouches for, so that a project's file in them is believed."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

from be_toolchain.machine.store_paths import user_file
from be_toolchain.machine.system import System

ENV_SAFE = "BE_SAFE_FOLDERS"
"""The variable that lists them, with ``:`` between; ``*`` stands for every folder, ``/folder/*`` for all below one."""


def are_safe(system: System, folders: tuple[Path, ...]) -> bool:
    """Return whether the user vouches for all of some folders, given without links.

    Raises
    ------
    PreferenceError
        The user's own file is not valid.
    """
    entries = (*_listed(system), *_own(system))
    return all(any(_covers(system, entry, folder) for entry in entries) for folder in folders)


def how_to_vouch(system: System, folders: tuple[Path, ...]) -> str:
    """Return the hint that names the settings by which a project's file in some folders is believed."""
    file = user_file(system.environ)
    texts = list(dict.fromkeys(map(str, folders)))
    every = os.pathsep.join(dict.fromkeys((*_listed(system), *texts)))
    ways = [f"export {ENV_SAFE}={shlex.quote(every)}"] if not any(os.pathsep in text for text in texts) else []
    if file is not None and not (ways and _own_problem(system, file)):
        own = dict.fromkeys((*_own(system), *texts))
        ways.append(f"safe = {json.dumps(list(own), ensure_ascii=False)} in {file}")
    return f"if you trust whoever can write there: {', or '.join(ways)}"


def _own_problem(system: System, file: Path) -> str:
    """Return why the user's own file is, or would be, not believed; empty when it is."""
    return system.distrust(next((place for place in (file, *file.parents) if system.stat(place)), file))


def _listed(system: System) -> tuple[str, ...]:
    """Return the entries of the variable."""
    return tuple(filter(None, system.environ.get(ENV_SAFE, "").split(os.pathsep)))


def _own(system: System) -> tuple[str, ...]:
    """Return the entries in the user's own file."""
    from be_toolchain.machine.trust.own_settings import read_own_settings  # few loads need it

    return read_own_settings(system).safe


def _covers(system: System, entry: str, folder: Path) -> bool:
    """Return whether an entry covers a folder."""
    if entry == "*":
        return True
    if entry == "~" or entry.startswith("~/"):
        home = system.environ.get("HOME", "")
        entry = home and home + entry[1:]  # without a home, "~/*" is not "/*"
    if not entry.startswith("/"):
        return False
    if entry.endswith("/*"):
        return folder.is_relative_to(system.realpath(Path(entry[:-1])))
    return folder == system.realpath(Path(entry))
