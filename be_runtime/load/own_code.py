"""Identity of the code of both packages: a changed generator must not find the modules of its predecessor.

A wheel's RECORD holds the hash of each of its files (https://packaging.python.org/specifications/recording-installed-packages).
In a checkout the files are hashed in the same way, so two checkouts of one commit, and the wheel made from it, have the
same identity. If Python keeps bytecode, that hash is kept too, and is used as long as no file's stat changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from be_toolchain import __version__
from be_toolchain.machine.trust.regular_file import SMALL, read_regular

_SITE = Path(__file__).parents[2]
_PACKAGES = ("be_runtime", "be_toolchain")
_ENDINGS = (".py", ".c", ".cc", ".h", ".sh", ".ci")
_TICK_NS = 2_000_000_000
"""Time after a change within which a file may change again and keep its stat."""


@cache
def own_code_digest() -> str:
    """Return the hash of the code that turns a request into a library."""
    record = _SITE / f"brainevent_toolchain-{__version__}.dist-info" / "RECORD"
    if record.is_file():
        rows = (row.rsplit(",", 1)[0] for row in record.read_text(encoding="utf-8").splitlines())
        return _digest(row for row in rows if row.startswith(_PACKAGES) and row.split(",")[0].endswith(_ENDINGS))
    memo = None if sys.dont_write_bytecode else Path(__spec__.cached or __file__).with_name("own_code.json")
    return checkout_digest(_SITE, memo, time.time_ns())


def checkout_digest(site: Path, memo: Path | None, now_ns: int) -> str:
    """Return the identity of the packages in a folder.

    Parameters
    ----------
    site : Path
        Folder that contains the packages.
    memo : Path or None
        File that keeps the identity and the stats it is valid for; None to keep nothing.
    now_ns : int
        The time.
    """
    stats = dict(_source_files(str(site)))
    facts = [f"{name} {now.st_size} {now.st_mtime_ns} {now.st_ctime_ns} {now.st_ino}" for name, now in stats.items()]
    seen = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    with contextlib.suppress(OSError, ValueError, RecursionError):
        kept = json.loads(read_regular(memo, SMALL)) if memo is not None else None
        if isinstance(kept, dict) and kept.get("seen") == seen and isinstance(kept.get("digest"), str):
            digest: str = kept["digest"]
            return digest
    digest = _digest(f"{name},sha256={_sha256(f'{site}/{name}')}" for name in stats)
    newest_ns = max(max(now.st_mtime_ns, now.st_ctime_ns) for now in stats.values())
    if memo is not None and newest_ns < now_ns - _TICK_NS:
        _keep(memo, json.dumps({"seen": seen, "digest": digest}))
    return digest


def _digest(rows: Iterable[str]) -> str:
    return hashlib.sha256("\n".join([__version__, *sorted(rows)]).encode()).hexdigest()


def _source_files(site: str) -> Iterator[tuple[str, os.stat_result]]:
    """List the packages' sources in all folders, relative to `site`, and their stats."""
    folders = list(_PACKAGES)
    while folders:
        folder = folders.pop()
        with os.scandir(f"{site}/{folder}") as entries:
            for entry in entries:
                if entry.name.endswith(_ENDINGS):
                    yield f"{folder}/{entry.name}", entry.stat()
                elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
                    folders.append(f"{folder}/{entry.name}")


def _sha256(path: str) -> str:
    """Hash a file in RECORD's format."""
    import base64  # a kept identity needs no hashes

    with open(path, "rb") as file:
        return base64.urlsafe_b64encode(hashlib.sha256(file.read()).digest()).rstrip(b"=").decode()


def _keep(path: Path, text: str) -> None:
    """Write a file in one step; do nothing if it can't be written."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
