"""Names and paths of the store of managed toolchains, of the user's own file and of the usual cache.

Pure: an environment in, paths out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

APP = "be_toolchain"
"""The folder below the user's data folder, and below that of the user's settings."""

CACHE = "brainevent-toolchain"
"""The folder below the user's cache folder, where the runtime keeps what it compiled."""

KERNELS = "kernels-v1"
"""The folder below a cache that has its entries, each in a folder of its own: ``ab/ab12…/<variant>/``."""

FILE = "be-toolchain.toml"
"""A project's wishes; in the folder of the user's settings, what is the user's alone to say."""

ENV_STORE = "BE_TOOLCHAINS_DIR"
STORE_VARIABLES = (ENV_STORE, "XDG_DATA_HOME", "HOME")
"""The variables that say where managed toolchains are, most binding first."""

CUDA_PREFIX = "cuda-"
ZIG_PREFIX = "zig-"
PREFIXES = (CUDA_PREFIX, ZIG_PREFIX)
"""How the folders of managed toolchains begin; the rest is the version."""

MANIFEST = "toolchain.json"
"""Written last: a folder without it is no toolchain."""

SELECTED = "selected"
"""The file that ``use`` writes: the name of one CUDA toolchain."""

INTERRUPTED = ".be-toolchain-installing.json"
"""Stands in a site-packages folder while CUDA wheels are exchanged in it, and after that was interrupted."""


def store_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of managed toolchains.

    Parameters
    ----------
    environ : Mapping of str to str
        Environment variables.

    Returns
    -------
    Path or None
        ``BE_TOOLCHAINS_DIR``, else ``toolchains`` in the user's data folder; None when there is no home.

    Examples
    --------
    >>> store_dir({"HOME": "/home/ada"}).as_posix()
    '/home/ada/.local/share/be_toolchain/toolchains'
    """
    named = environ.get(ENV_STORE, "").strip()
    if named.startswith("/"):
        return Path(named)
    data = _user_folder(environ, "XDG_DATA_HOME", ".local/share")
    return data and data / APP / "toolchains"


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Return the user's own file, in the folder of the user's settings; None when there is no home.

    Examples
    --------
    >>> user_file({"HOME": "/home/ada"}).as_posix()
    '/home/ada/.config/be_toolchain/be-toolchain.toml'
    """
    settings = _user_folder(environ, "XDG_CONFIG_HOME", ".config")
    return settings and settings / APP / FILE


def usual_cache(environ: Mapping[str, str]) -> Path:
    """Return the default folder of the runtime's compiled modules; it starts with ``~`` when there is no home.

    Examples
    --------
    >>> usual_cache({"HOME": "/home/ada"}).as_posix()
    '/home/ada/.cache/brainevent-toolchain'
    """
    return (_user_folder(environ, "XDG_CACHE_HOME", ".cache") or Path("~/.cache")) / CACHE


def _user_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return a user's folder as in https://specifications.freedesktop.org/basedir-spec: relative paths don't count."""
    named, home = (environ.get(name, "").strip() for name in (variable, "HOME"))
    if named.startswith("/"):
        return Path(named)
    return Path(home, usual) if home.startswith("/") else None


def misnamed_store(environ: Mapping[str, str]) -> str:
    """Return why the folder that ``BE_TOOLCHAINS_DIR`` names is not used; empty when it is, or when it is unset.

    Examples
    --------
    >>> misnamed_store({"BE_TOOLCHAINS_DIR": "toolchains"})
    "BE_TOOLCHAINS_DIR is 'toolchains', which is not an absolute path"
    """
    named = environ.get(ENV_STORE, "").strip()
    return f"{ENV_STORE} is {named!r}, which is not an absolute path" if named and not named.startswith("/") else ""


def interrupted_marker(root: Path) -> Path:
    """Return the marker of an interrupted exchange for wheels that share a root, ``<site-packages>/nvidia/cu13``."""
    return root.parent.parent / INTERRUPTED
