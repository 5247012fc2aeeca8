"""Verification of installed wheels: each file is compared with the wheel's RECORD."""

from __future__ import annotations

import base64
import csv
import hashlib
from collections.abc import Iterator
from pathlib import Path

from be_toolchain.known.distributions import normalize, parse_dist_info

_CHUNK = 1 << 20


def dist_infos_of(site: Path, name: str) -> tuple[tuple[Path, str], ...]:
    """Find a distribution's dist-info folders and versions: one, several after an interrupted exchange, or none."""
    from packaging.utils import canonicalize_name

    paths = sorted(site.glob("*.dist-info")) if site.is_dir() else ()
    found = ((path, parse_dist_info(path.name)) for path in paths)
    rows = ((path, normalize(*row)) for path, row in found if row is not None)
    return tuple((path, version) for path, (each, version) in rows if each == canonicalize_name(name))


def check_wheel(site: Path, name: str, version: str) -> Iterator[str]:
    """Compare every installed file of a wheel with its RECORD.

    Parameters
    ----------
    site : Path
        The folder that it was installed into.
    name, version : str
        The distribution and its version.

    Yields
    ------
    str
        A description of each difference.
    """
    folders = dist_infos_of(site, name)
    if [found for _, found in folders] != [normalize(name, version)[1]]:
        listed = ", ".join(folder.name for folder, _ in folders) or "none"
        yield f"{name} {version} is not what is installed in {site} (found: {listed})"
        return
    try:
        with (folders[0][0] / "RECORD").open(encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file) if len(row) == 3]
    except OSError as error:
        yield f"{name}: no readable RECORD ({error.strerror})"
        return
    for path, digest, _ in rows:
        # Above the folder are only the commands that installers generate.
        if digest and not path.startswith("../") and not _matches(site / path, digest):
            yield f"{name}: {path} is missing or differs from the wheel"


def _matches(path: Path, recorded: str) -> bool:
    """Return whether a file has the digest ``sha256=<urlsafe base64>`` of a RECORD."""
    algorithm, _, wanted = recorded.partition("=")
    try:
        digest = hashlib.new(algorithm)
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    except (OSError, ValueError):
        return False
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode() == wanted
