"""Paths of the parts of a cache below its root. Pure.

::

    <root>/[user-<uid>/]kernels-v1/CACHEDIR.TAG
                                   staging/<short>.<host>.<pid>.<random>/  builds in progress, entries being deleted
                                   ab/ab12…/<variant>/                     an entry: manifest.json, key.json, outputs
                                   ab/ab12….lock                           held while the key is being built

The user's folder exists only below a root that all users share. Two digits of fan-out keep folders small with
10,000 entries, and a look-up lists only its own key's folder.

Paths are str in the whole package: a warm load examines dozens of files, and making a Path costs more than the
system call that it is for.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from be_toolchain.machine.store_paths import KERNELS

MANIFEST = "manifest.json"
KEY = "key.json"
RESERVED = frozenset({MANIFEST, KEY})

_FAN = re.compile(r"[0-9a-f]{2}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_VARIANT = re.compile(r"[0-9a-f]{16}-[0-9a-f]{8}")


def base_folder(home: str) -> str:
    """The folder that holds everything the cache writes; its name has the version of the layout."""
    return f"{home}/{KERNELS}"


def staging_root(base: str) -> str:
    """The folder of builds in progress, on the entries' own file system so that one rename publishes."""
    return f"{base}/staging"


def fan_folder(base: str, digest: str) -> str:
    """The folder of a 256th of all keys."""
    return f"{base}/{digest[:2]}"


def key_folder(base: str, digest: str) -> str:
    """The folder of one key's variants."""
    return f"{base}/{digest[:2]}/{digest}"


def lock_file(base: str, digest: str) -> str:
    """The file locked while one key is built: beside the key's folder, so that both can come and go."""
    return f"{base}/{digest[:2]}/{digest}.lock"


def variant_name(created_ns: int, random: str) -> str:
    """A variant's folder name: names sort by age, and no two builds share one."""
    return f"{created_ns:016x}-{random}"


def created_ns(folder: str) -> int:
    """Return the time at which a variant was made, from its folder's name."""
    return int(folder.rpartition("/")[2].partition("-")[0], 16)


def is_fan(name: str) -> bool:
    """Return whether a name is that of a fan-out folder."""
    return _FAN.fullmatch(name) is not None


def is_digest(name: str) -> bool:
    """Return whether a name is that of a key's folder."""
    return _DIGEST.fullmatch(name) is not None


def is_variant(name: str) -> bool:
    """Return whether a name is that of an entry's folder."""
    return _VARIANT.fullmatch(name) is not None


def output_problem(name: str) -> str | None:
    """Return the reason a name can't be an entry's output; None if it can."""
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or str(path) != name or name == ".":
        return "not a plain relative path"
    if path.parts[0] in RESERVED:
        return "a name the cache keeps for itself"
    return None
