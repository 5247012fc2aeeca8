"""Paths and formats of the files that both packages keep in the user's folders."""

from __future__ import annotations

import json
import os
from binascii import crc32
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from packaging.version import Version

    from be_toolchain.machine.system import System

APP = "be_toolchain"
"""The name of our folder in the user's data folder, and in the folder of the user's settings."""

CACHE = "brainevent-toolchain"
"""The name of our folder in the user's cache folder, in which the runtime keeps compiled modules."""

KERNELS = "kernels-v1"
"""The folder in a cache with its entries, each in a folder of its own: ``ab/ab12…/<variant>/``."""

FILE = "be-toolchain.toml"
"""The name of a project's settings file, and of the user's own file in the folder of the user's settings."""

ENV_STORE = "BE_TOOLCHAINS_DIR"
STORE_VARIABLES = (ENV_STORE, "XDG_DATA_HOME", "HOME")
"""The variables that decide the folder of managed toolchains, highest precedence first."""

CUDA_PREFIX = "cuda-"
ZIG_PREFIX = "zig-"
PREFIXES = (CUDA_PREFIX, ZIG_PREFIX)
"""Name prefixes of the folders of managed toolchains; the rest is the version."""

MANIFEST = "toolchain.json"
"""The manifest of a managed toolchain. It is written last, so a folder without it is not a toolchain."""

SELECTED = "selected"
"""The file that ``use`` writes: the name of one CUDA toolchain."""

INTERRUPTED = ".be-toolchain-installing.json"
"""The marker in a site-packages folder during an exchange of CUDA wheels; it stays if the exchange is interrupted."""


def store_dir(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of managed toolchains.

    Parameters
    ----------
    environ : Mapping of str to str
        Environment variables.

    Returns
    -------
    Path or None
        ``BE_TOOLCHAINS_DIR``, else ``toolchains`` in the user's data folder; None without a home folder.

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


def placed_store(environ: Mapping[str, str]) -> Path | None:
    """Return `store_dir` for a command that writes into it, as platformdirs places it for the user of this process."""
    folder = store_dir(environ)
    if folder is None or environ is not os.environ or environ.get(ENV_STORE, "").strip().startswith("/"):
        return folder
    import platformdirs  # a warm load looks for the folder, and would pay 2 ms for the import

    return platformdirs.user_data_path(APP) / "toolchains"


def user_file(environ: Mapping[str, str]) -> Path | None:
    """Return the user's own file, in the folder of the user's settings; None without a home folder.

    Examples
    --------
    >>> user_file({"HOME": "/home/ada"}).as_posix()
    '/home/ada/.config/be_toolchain/be-toolchain.toml'
    """
    settings = _user_folder(environ, "XDG_CONFIG_HOME", ".config")
    return settings and settings / APP / FILE


def placed_file(environ: Mapping[str, str]) -> Path | None:
    """Return `user_file` for a message that asks the user to write it, as platformdirs places it."""
    if (file := user_file(environ)) is None or environ is not os.environ:
        return file
    import platformdirs

    return platformdirs.user_config_path(APP) / FILE


def usual_cache(environ: Mapping[str, str]) -> Path:
    """Return the default folder of compiled modules; it begins with ``~`` without a home folder.

    Examples
    --------
    >>> usual_cache({"HOME": "/home/ada"}).as_posix()
    '/home/ada/.cache/brainevent-toolchain'
    """
    return (_user_folder(environ, "XDG_CACHE_HOME", ".cache") or Path("~/.cache")) / CACHE


def _user_folder(environ: Mapping[str, str], variable: str, usual: str) -> Path | None:
    """Return a user's folder as in https://specifications.freedesktop.org/basedir-spec, which ignores relative paths.

    `platformdirs` places the folders of this process's user, and asks the user database if HOME is not set. A warm load
    would pay for it, so the cache's folder comes from here, and so do the folders of other environments. A test shows
    that both agree.
    """
    named, home = (environ.get(name, "").strip() for name in (variable, "HOME"))
    if named.startswith("/"):
        return Path(named)
    return Path(home, usual) if home.startswith("/") else None


def misnamed_store(environ: Mapping[str, str]) -> str:
    """Return the reason why the folder of ``BE_TOOLCHAINS_DIR`` is not used; empty if it is used or not set.

    Examples
    --------
    >>> misnamed_store({"BE_TOOLCHAINS_DIR": "toolchains"})
    "BE_TOOLCHAINS_DIR is 'toolchains', which is not an absolute path"
    """
    named = environ.get(ENV_STORE, "").strip()
    return f"{ENV_STORE} is {named!r}, which is not an absolute path" if named and not named.startswith("/") else ""


OTHER_STORE = f"close it to other users with chmod -R go-w, or name a folder of your own with {ENV_STORE}"
"""The hint for a folder that is not trusted."""


class StoreFolder(NamedTuple):
    """The folder of managed toolchains.

    Parameters
    ----------
    path : Path or None
        The folder, or the user's own part of a folder for all users; None without a home folder.
    problem : str
        The reason why the folder is not used; empty if it is used or does not exist yet.
    """

    path: Path | None
    problem: str = ""


def find_store(system: System) -> StoreFolder:
    """Find the folder of managed toolchains, and judge whether it is trusted."""
    named = store_dir(system.environ)
    if named is None or not system.is_dir(named):
        return StoreFolder(named)
    facts = system.folder_facts(named)
    return StoreFolder(facts.own_part or named, facts.obstacle and f"{named} {facts.obstacle}")


def find_managed(system: System, prefix: str | tuple[str, ...]) -> tuple[str, ...]:
    """List the names in the store that begin with a prefix, newest first; none if the store is not trusted."""
    store = find_store(system)
    if store.path is None or store.problem:
        return ()
    names = [name for name in system.list_dir(store.path) if name.startswith(prefix)]
    return tuple(sorted(names, key=version_in, reverse=True))


def version_in(name: str) -> Version:
    """Return the version in a managed toolchain's name, for comparing; any other text sorts below all versions.

    Examples
    --------
    >>> version_in("cuda-13.1.0rc1") < version_in("cuda-13.1.0")
    True
    """
    from packaging.version import InvalidVersion, Version

    try:
        return Version(name.partition("-")[2])
    except InvalidVersion:
        return Version("0.dev0")


def distrust_managed(system: System, folder: Path) -> str:
    """Return the reason why a toolchain in the store is not used: unfinished, or writable by others; else empty."""
    if not system.is_file(folder / MANIFEST):
        return f"not a managed toolchain: no {MANIFEST}"
    return system.folder_facts(folder).obstacle


def interrupted_marker(root: Path) -> Path:
    """Return the marker of an interrupted exchange for wheels that share a root, ``<site-packages>/nvidia/cu13``."""
    return root.parent.parent / INTERRUPTED


_HEAD = b'{"crc32":"%08x",'
_HEAD_BYTES = len(_HEAD % 0)


def seal(document: dict[str, Any]) -> str:
    """Write an object as JSON, with its checksum.

    Examples
    --------
    >>> seal({"a": 1})
    '{"crc32":"94da56a3","a":1}'
    """
    rest = json.dumps(document, separators=(",", ":"))[1:]
    return (_HEAD % crc32(rest.encode())).decode() + rest


def unseal(text: str | bytes) -> Any:
    """Parse a text that `seal` returned.

    Raises
    ------
    ValueError
        The text is damaged.

    Examples
    --------
    >>> unseal(seal({"a": 1}))
    {'a': 1}
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    rest = data[_HEAD_BYTES:]
    if data[:_HEAD_BYTES] != _HEAD % crc32(rest):
        raise ValueError("the text is damaged: it has another checksum")
    return json.loads(b"{" + rest)


MOST_DOTS = 500
"""The largest number of dots in a line: a key of 15,000 parts takes 2.4 s, and a key of 500 parts takes 3 ms."""


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises
    ------
    ValueError
        The text is not TOML, or would take too long to parse.
    """
    import tomllib  # few loads need it

    if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
        raise ValueError(f"a line has more than {MOST_DOTS} dots")
    try:
        text.encode()
        return tomllib.loads(text)
    except UnicodeEncodeError:
        raise ValueError("it is not UTF-8") from None
    except RecursionError:
        raise ValueError("its values are nested too deeply") from None
