"""Compiled kernels in the cache: images in files of their own, and a list of them."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from be_toolchain.arch import Arch

from ..cache import BuildOutput, CacheKey, Entry
from ..identity import content_hash
from ..pipeline import Session, use_entry
from .describe import ID_DIGITS, Form, Image, Kernel

_LIST = "images.json"


class Compiled(NamedTuple):
    """What a compiler made, and the files it read, as `BuildOutput` has them."""

    images: tuple[Image, ...]
    dependencies: tuple[Path, ...] = ()
    absent: tuple[Path, ...] = ()
    unknown: tuple[str, ...] = ()


def obtain_kernel(key: CacheKey, compile_now: Callable[[Path], Compiled], name: str, session: Session) -> Kernel:
    """The kernel of a key: from the cache, or compiled now, once however many processes ask.

    Parameters
    ----------
    compile_now : callable
        Given an empty folder to work in.

    Raises
    ------
    CacheError
        The cache's folder can't be used, or another process takes too long to compile the same kernel.
    """

    def build(staging: Path) -> BuildOutput:
        compiled = compile_now(staging)
        names = write_images(compiled.images, staging)
        return BuildOutput(names, compiled.dependencies, compiled.absent, unknown=compiled.unknown)

    def find() -> Entry:
        return session.store.get_or_build(
            key, build, lock_timeout_s=session.settings.lock_timeout_s, on_wait=partial(_say_waiting, key.name)
        )

    def read(entry: Entry) -> Kernel:
        return Kernel(_identify(key, entry)[:ID_DIGITS], name, read_images(entry))

    return use_entry(find, read, session)


def _identify(key: CacheKey, entry: Entry) -> str:
    """What a kernel was made from; where that is not certain, what was made as well."""
    content = content_hash(key, entry)
    if not entry.manifest.uncertain:
        return content
    return hashlib.sha256(
        "".join([content, *(record.sha256 for record in entry.manifest.outputs)]).encode()
    ).hexdigest()


def write_images(images: Sequence[Image], folder: Path) -> tuple[str, ...]:
    """Write images into a folder; the names of the files."""
    names = [f"image{index}.{'ptx' if image.is_ptx else 'cubin'}" for index, image in enumerate(images)]
    for name, image in zip(names, images, strict=True):
        (folder / name).write_bytes(image.data)
    rows = [
        image._asdict() | {"data": name, "arch": str(image.arch)} for name, image in zip(names, images, strict=True)
    ]
    (folder / _LIST).write_text(json.dumps(rows), encoding="utf-8")
    return (*names, _LIST)


def read_images(entry: Entry) -> tuple[Image, ...]:
    """What `write_images` wrote."""
    rows = json.loads(entry.output(_LIST).read_bytes())
    return tuple(
        Image(**row)._replace(
            arch=Arch.parse(row["arch"]),
            data=entry.output(row["data"]).read_bytes(),
            form=Form(row["form"]),
            words=None if row["words"] is None else tuple(row["words"]),
        )
        for row in rows
    )


def _say_waiting(name: str, seconds: float) -> None:
    sys.stderr.write(f"be_runtime: {name}: waiting for another process that is compiling it ({seconds:.0f} s)\n")
