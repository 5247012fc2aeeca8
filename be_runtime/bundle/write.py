"""Bundles are written complete or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from be_runtime.bundle.index import IMAGES, INDEX, Index, image_file, render_index
from be_runtime.errors import ArgumentError


def write_bundle(folder: Path, index: Index, images: Mapping[str, bytes]) -> None:
    """Write a bundle that every user can read; an older one in its place is replaced.

    Raises
    ------
    ArgumentError
        The folder holds something else, or can't be written.
    """
    if folder.exists() and not (folder / INDEX).is_file() and any(folder.iterdir()):
        raise ArgumentError(
            f"{folder} holds something else than kernels built by this command", hints=("name another folder",)
        )
    staging, old = (folder.with_name(f".{folder.name}.{os.getpid()}{end}") for end in ("", ".old"))
    try:
        (staging / IMAGES).mkdir(parents=True)
        for digest, data in images.items():
            path = staging / image_file(digest, index.images[digest])
            path.write_bytes(data)
            path.chmod(0o755 if path.suffix == ".so" else 0o644)
        (staging / INDEX).write_text(render_index(index), encoding="utf-8")
        (staging / INDEX).chmod(0o644)
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
