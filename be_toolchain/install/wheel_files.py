"""Whether installed wheels are what their index served: each file against the RECORD that came with it."""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

_CHUNK = 1 << 20


def canonical_name(name: str) -> str:
    """A distribution's name as indexes compare it.

    Examples
    --------
    >>> canonical_name("nvidia_CUDA.nvcc")
    'nvidia-cuda-nvcc'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def dist_info_of(site: Path, name: str) -> tuple[Path, ...]:
    """Every dist-info folder of a distribution: one, more after an interrupted exchange, or none."""
    wanted = canonical_name(name)
    found = site.glob("*.dist-info") if site.is_dir() else ()
    return tuple(sorted(path for path in found if canonical_name(path.stem.rpartition("-")[0]) == wanted))


def check_wheel(site: Path, name: str, version: str) -> Iterator[str]:
    """Compare every installed file of a wheel with its RECORD.

    Parameters
    ----------
    site : Path
        The folder that it was installed into.
    name, version : str
        Which distribution.

    Yields
    ------
    str
        What is wrong; nothing when all is right.
    """
    folders = dist_info_of(site, name)
    if [entry.stem.rpartition("-")[2] for entry in folders] != [version]:
        found = ", ".join(entry.name for entry in folders) or "none"
        yield f"{name} {version} is not what is installed in {site} (found: {found})"
        return
    try:
        with (folders[0] / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 3]
    except OSError as error:
        yield f"{name}: no readable RECORD ({error.strerror})"
        return
    for path, digest, _ in rows:
        # Above the folder are only the commands that installers generate.
        if digest and not path.startswith("../") and not _matches(site / path, digest):
            yield f"{name}: {path} is missing or differs from the wheel"


def _matches(path: Path, recorded: str) -> bool:
    """Whether a file has the digest ``sha256=<urlsafe base64>`` of a RECORD."""
    algorithm, _, wanted = recorded.partition("=")
    try:
        digest = hashlib.new(algorithm)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() == wanted
