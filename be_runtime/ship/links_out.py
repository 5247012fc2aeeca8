"""Links that lead out of a package: what they show is no part of it, and a wheel would not have it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from be_runtime.errors import ArgumentError
from be_runtime.ship.declaration import FILE

_CODE = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl"])


def refuse_links_out(where: str, root: Path, sources: Iterable[Path], include_folders: Iterable[Path]) -> None:
    """Refuse a source, a header beside one, or anything below a folder of headers that leads out of a package.

    Parameters
    ----------
    where : str
        The beginning of the message.
    root : Path
        Folder of the package, itself wherever it is.
    sources : iterable of Path
        Files and folders of sources, below `root`.
    include_folders : iterable of Path
        Folders of headers, below `root`.

    Raises
    ------
    ArgumentError
        One does; the message names the link and its target.
    """
    # An installer may make each file a link to its own copy of the package: the declaration lies beside the rest there.
    own = (os.path.realpath(root), str((root / FILE).resolve().parent))
    for path in (*_of_sources(sources), *_of_headers(include_folders)):
        if not _is_out(path, own):
            continue
        below = (each for each in (*reversed(path.parents), path) if each.is_relative_to(root))
        link = next(each for each in below if _is_out(each, own))
        raise ArgumentError(
            f"{where}: {link.relative_to(root)} is a link to {os.path.realpath(link)}, which is outside the package",
            hints=("put the file or folder itself there: a wheel has only the files of the package",),
        )


def refuse_read_links_out(where: str, root: Path, read: Iterable[str]) -> None:
    """Refuse a package whose compiler read files below it through a link out; paths to other places are the author's.

    Raises
    ------
    ArgumentError
        It did; the message names the link and its target.
    """
    paths = (Path(os.path.normpath(each)) for each in read)
    refuse_links_out(where, root, [path for path in paths if path.is_relative_to(root)], ())


def _is_out(path: Path, own: tuple[str, ...]) -> bool:
    """Return whether a path, links followed, is outside some folders."""
    target = f"{os.path.realpath(path)}/"
    return not target.startswith(tuple(f"{folder}/" for folder in own))


def _of_sources(paths: Iterable[Path]) -> Iterator[Path]:
    """List sources, and links to code in their folders."""
    for path in paths:
        yield path
        folder = path if path.is_dir() else path.parent
        if folder.is_dir():
            yield from (each for each in folder.iterdir() if each.suffix in _CODE and each.is_symlink())


def _of_headers(folders: Iterable[Path]) -> Iterator[Path]:
    """List folders of headers, and all links in them."""
    for folder in folders:
        yield folder
        for place, names, files in os.walk(folder):
            yield from (path for path in (Path(place, name) for name in (*names, *files)) if path.is_symlink())
