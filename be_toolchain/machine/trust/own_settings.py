"""The user's own file of settings, in the folder of the user's settings: what is the user's alone to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from be_toolchain.errors import PreferenceError
from be_toolchain.machine.store_paths import user_file
from be_toolchain.machine.system import System
from be_toolchain.machine.toml_text import parse_toml

SAFE = "safe"
"""The key with folders of other users in which a project's file is believed."""

REMOTE_CACHE = "remote-cache"
REMOTE_CACHE_KEY = "remote-cache-public-key"


class OwnSettings(NamedTuple):
    """The settings in the user's own file.

    Parameters
    ----------
    path : Path, optional
        The file; None if there is none that is believed.
    safe : tuple of str
        Folders of other users, see `safe_folders`.
    remote_cache, remote_cache_key : str
        URL of a remote cache, and the public keys of those who may sign its entries; empty without them.
    """

    path: Path | None = None
    safe: tuple[str, ...] = ()
    remote_cache: str = ""
    remote_cache_key: str = ""


def read_own_settings(system: System) -> OwnSettings:
    """Read the user's own file; a file that others could have written does not count.

    Raises
    ------
    PreferenceError
        It is not TOML, has an unknown key, or a value of the wrong type.
    """
    path = user_file(system.environ)
    if path is None or not system.is_file(path) or system.distrust(path):
        return OwnSettings()
    try:
        table: dict[str, Any] = parse_toml(system.read_text(path) or "")
    except ValueError as error:
        raise PreferenceError(f"{path} is no TOML: {error}", hints=("correct the file",)) from None
    keys = (SAFE, REMOTE_CACHE, REMOTE_CACHE_KEY)
    unknown = [key for key in table if key not in keys]
    if unknown:
        hint = f"its keys are {', '.join(keys)}; a project's file has the others"
        raise PreferenceError(f"{path} has unknown keys: {', '.join(unknown)}", hints=(hint,))
    safe = table.get(SAFE, [])
    if not isinstance(safe, list) or not all(isinstance(entry, str) for entry in safe):
        raise PreferenceError(f"{SAFE} in {path} is {safe!r}", hints=("it has to be a list of folders",))
    for key in keys[1:]:
        if not isinstance(table.get(key, ""), str):
            raise PreferenceError(f"{key} in {path} is {table[key]!r}", hints=("it has to be a text",))
    return OwnSettings(path, tuple(safe), table.get(REMOTE_CACHE, "").strip(), table.get(REMOTE_CACHE_KEY, "").strip())
