"""Write a bundle so that readers always find a whole one: images first, then the index in one step, then clean up."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from be_runtime.errors import ArgumentError
from be_runtime.store.bundle import IMAGES, INDEX, Index, image_file, render_index

_NEW = f"{IMAGES}/.new"
"""Name of the one file that is being written; a killed process may leave it, and the next process replaces it."""

_PYTHON = "__init__.py"
"""Earlier releases wrote this file for kernels that needed only JAX; a new build removes it."""

_OURS = frozenset([INDEX, IMAGES, _PYTHON, "__pycache__"])
_OLD = re.compile(r"[0-9a-f]{64}\.\w+|\.new")


def write_bundle(folder: Path, index: Index, images: Mapping[str, bytes]) -> None:
    """Write a bundle that every user can read, and replace an older bundle in the folder.

    Parameters
    ----------
    folder : Path
    index : Index
    images : dict of str to bytes
        Bytes of each image, by its hash.

    Raises
    ------
    ArgumentError
        The folder holds something else, or can't be written.
    """
    files = {image_file(digest, index.images[digest]): data for digest, data in images.items()}
    table = render_index(index).encode()
    try:
        if folder.exists() and not _OURS.issuperset(path.name for path in folder.iterdir()):
            raise ArgumentError(
                f"{folder} holds something else than kernels built by this command", hints=("name another folder",)
            )
        (folder / IMAGES).mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            for place in (folder, folder / IMAGES):
                place.chmod(0o755)
            for name, data in files.items():
                _write(folder, name, data, 0o755 if name.endswith(".so") else 0o644)
            _write(folder, INDEX, table, 0o644)
            _remove_others(folder, set(files))
    except OSError as error:
        raise ArgumentError(f"{error.filename or folder} can't be written: {error.strerror}") from error


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock against other writers, if its file system has locks."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _write(folder: Path, name: str, data: bytes, mode: int) -> None:
    """Replace a file in one step: a library that a process has mapped is never changed."""
    new = folder / _NEW
    new.write_bytes(data)
    new.chmod(mode)
    new.replace(folder / name)


def _remove_others(folder: Path, kept: set[str]) -> None:
    """Remove files of earlier builds: images that are not in `kept`, and the Python file of earlier releases."""
    for path in (folder / IMAGES).iterdir():
        if _OLD.fullmatch(path.name) and str(path.relative_to(folder)) not in kept:
            path.unlink(missing_ok=True)
    (folder / _PYTHON).unlink(missing_ok=True)
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
