"""Folders of other users that this user vouches for, so that a project's file in them is believed."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.store_paths import user_file
from be_toolchain.machine.system import System

ENV_SAFE = "BE_SAFE_FOLDERS"
"""The variable that lists them, with ``:`` between; ``*`` stands for every folder, ``/folder/*`` for all below one."""

KEY = "safe"
"""The key of the user's own file that lists them too."""


def are_safe(system: System, folders: tuple[Path, ...]) -> bool:
    """Return whether the user vouches for all of some folders, given without links.

    Raises
    ------
    PreferenceError
        The user's own file is not valid.
    """
    entries = (*_listed(system), *_read_own(system))
    return all(any(_covers(system, entry, folder) for entry in entries) for folder in folders)


def how_to_vouch(system: System, folders: tuple[Path, ...]) -> str:
    """Return the hint that names the settings by which a project's file in some folders is believed."""
    file = user_file(system.environ)
    texts = list(dict.fromkeys(map(str, folders)))
    every = os.pathsep.join(dict.fromkeys((*_listed(system), *texts)))
    ways = [f"export {ENV_SAFE}={shlex.quote(every)}"] if not any(os.pathsep in text for text in texts) else []
    if file is not None and not (ways and _own_problem(system, file)):
        own = dict.fromkeys((*_read_own(system), *texts))
        ways.append(f"{KEY} = {json.dumps(list(own), ensure_ascii=False)} in {file}")
    return f"if you trust whoever can write there: {', or '.join(ways)}"


def _own_problem(system: System, file: Path) -> str:
    """Return why the user's own file is, or would be, not believed; empty when it is."""
    return system.distrust(next((place for place in (file, *file.parents) if system.stat(place)), file))


def _listed(system: System) -> tuple[str, ...]:
    """Return the entries of the variable."""
    return tuple(filter(None, system.environ.get(ENV_SAFE, "").split(os.pathsep)))


def _read_own(system: System) -> tuple[str, ...]:
    """Read the entries in the user's own file; none if it does not exist or is not trusted."""
    path = user_file(system.environ)
    if path is None or not system.is_file(path) or system.distrust(path):
        return ()
    import tomllib

    try:
        table: dict[str, Any] = tomllib.loads(system.read_text(path) or "")
    except (ValueError, RecursionError) as error:  # also of numbers and nests that Python gives up
        raise PreferenceError(f"{path} is no TOML: {error}", hints=("correct the file",)) from None
    entries = table.get(KEY, [])
    if not isinstance(entries, list) or not all(isinstance(entry, str) for entry in entries):
        raise PreferenceError(f"{KEY} in {path} is {entries!r}", hints=("it has to be a list of folders",))
    unknown = [key for key in table if key != KEY]
    if unknown:
        hint = f"its only key is {KEY}; a project's file has the others"
        raise PreferenceError(f"{path} has unknown keys: {', '.join(unknown)}", hints=(hint,))
    return tuple(entries)


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
