"""A conda channel in a folder, filled with packages made of files that are on this machine."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import rattler.index
import rattler_build

SUBDIR = "linux-64"


class Package(NamedTuple):
    """What a channel says of a package; the rest of a package are its files."""

    name: str
    version: str
    depends: tuple[str, ...] = ()
    constrains: tuple[str, ...] = ()
    build: str = "0"
    number: int = 0
    noarch: Literal["generic"] | None = None


class Channel:
    """A local channel.

    Parameters
    ----------
    folder : Path
        Where its packages are written.
    scratch : Path
        Where the files are written that exist nowhere yet: scripts and links.
    """

    def __init__(self, folder: Path, scratch: Path) -> None:
        self.folder = folder
        self._scratch = scratch
        self._made = 0
        for name in (SUBDIR, "noarch"):
            (folder / name).mkdir(parents=True)

    @property
    def url(self) -> str:
        """What a solver is given."""
        return self.folder.as_uri()

    def add(self, package: Package, files: Mapping[str, Path] | None = None) -> None:
        """Write a package; `files` maps each path in it to its source, of which links stay links."""
        subdir = "noarch" if package.noarch else SUBDIR
        entries = [rattler_build.FileEntry.from_paths(source, path) for path, source in (files or {}).items()]
        rattler_build.assemble_package(
            package.name,
            package.version,
            subdir,
            package.build,
            self.folder / subdir,
            files=entries,
            depends=package.depends,
            constrains=package.constrains,
            noarch=package.noarch,
            build_number=package.number,
            compression_level=1,
        )

    def text(self, content: str, *, program: bool = False) -> Path:
        """A file that holds some text."""
        path = self.binary(content.encode())
        path.chmod(0o755 if program else 0o644)
        return path

    def binary(self, content: bytes) -> Path:
        """A program that holds some bytes."""
        path = self._new()
        path.write_bytes(content)
        path.chmod(0o755)
        return path

    def link(self, target: str) -> Path:
        """A symbolic link."""
        path = self._new()
        path.symlink_to(target)
        return path

    def index(self) -> None:
        """Write the list of packages that solvers read."""
        asyncio.run(rattler.index.index_fs(self.folder, write_shards=False, write_zst=False, force=True))

    def _new(self) -> Path:
        self._made += 1
        return self._scratch / str(self._made)


def tree(source: Path, to: str, *, without: frozenset[str] = frozenset()) -> dict[str, Path]:
    """The files below a folder, as `Channel.add` takes them, less the files and folders of some names."""
    found = {}
    for folder, names, files in os.walk(source):
        names[:] = sorted(set(names) - without)
        links = [name for name in names if Path(folder, name).is_symlink()]
        for name in (*files, *links):
            if name not in without:
                path = Path(folder, name)
                found[f"{to}/{path.relative_to(source).as_posix()}"] = path
    return found
