"""Files of a package that are not as they were when its kernels were built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from be_runtime.ship.declaration import FILE
from be_toolchain.machine.trust.regular_file import file_sha256

MISSING = ""
"""Stands for the hash of a file that was not there."""


def record_sources(root: Path, files: Iterable[Path]) -> dict[str, str]:
    """Hash files of a package and its declaration, by their names below its folder; those elsewhere are left out."""
    own = root.resolve()
    found = sorted({path.resolve() for path in (root / FILE, *files)})
    return {
        str(path.relative_to(own)): digest
        for path in found
        if path.is_relative_to(own) and (digest := file_sha256(path)) is not None
    }


def changed_source(root: Path | None, sources: Mapping[str, str]) -> str:
    """Return the first file that changed or is new; empty if there is none. Wheels need not have the files.

    Parameters
    ----------
    root : Path or None
        Folder of the package, if it is one.
    sources : dict of str to str
        Hash of each file. A name with a slash at its end is a folder whose files of a kind, its value, are sources.
    """
    for name, recorded in sources.items() if root is not None else ():
        path = Path(root or "", name)
        if name.endswith("/"):
            files = path.glob("[!.]*")
            new = (str(PurePosixPath(name, each.name)) for each in files if each.suffix in recorded.split())
            added = next((each for each in sorted(new) if each not in sources), "")
            if added:
                return added
        elif file_sha256(path) not in (None, recorded):
            return name
    return ""
