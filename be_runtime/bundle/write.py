"""Bundles are written complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from be_runtime.bundle.index import IMAGES, INDEX, Index, image_file, render_index
from be_runtime.errors import ArgumentError


def write_bundle(
    folder: Path, index: Index, images: Mapping[str, bytes], texts: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Write a bundle that every user can read; an older one in its place is replaced.

    Parameters
    ----------
    folder : Path
    index : Index
    images : dict of str to bytes
        Bytes of each image, by its hash.
    texts : dict of str to str
        Files beside the index.

    Raises
    ------
    ArgumentError
        The folder holds something else, or can't be written.
    """
    if folder.exists() and not (folder / INDEX).is_file() and any(folder.iterdir()):
        raise ArgumentError(
            f"{folder} holds something else than kernels built by this command", hints=("name another folder",)
        )
    sweep_remains(folder)
    staging, old = (folder.with_name(f".{folder.name}.{os.getpid()}{end}") for end in ("", ".old"))
    try:
        (staging / IMAGES).mkdir(parents=True)
        for digest, data in images.items():
            path = staging / image_file(digest, index.images[digest])
            path.write_bytes(data)
            path.chmod(0o755 if path.suffix == ".so" else 0o644)
        for name, text in {**texts, INDEX: render_index(index)}.items():
            (staging / name).write_text(text, encoding="utf-8")
            (staging / name).chmod(0o644)
        for place in (staging, staging / IMAGES):
            place.chmod(0o755)
        if folder.exists():
            folder.rename(old)
        staging.rename(folder)
    except OSError as error:
        raise ArgumentError(f"{error.filename or folder} can't be written: {error.strerror}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def sweep_remains(folder: Path) -> None:
    """Remove what processes that were killed left beside the folder of a bundle."""
    for path in folder.parent.glob(f".{folder.name}.*"):
        pid = path.name.removeprefix(f".{folder.name}.").removesuffix(".old")
        if pid.isdecimal() and not Path("/proc", pid).exists():
            shutil.rmtree(path, ignore_errors=True)
