"""The command ``show``: the contents of an exported program, a package, or the packages in a wheel."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from be_runtime.errors import ArgumentError
from be_runtime.kernels.launcher import archs_of
from be_runtime.ship.package_store import KERNELS
from be_runtime.store.artifact import Artifact, open_folder, unpack
from be_runtime.store.index import INDEX, ModuleRecord, reading
from be_toolchain.machine.trust import open_regular
from be_toolchain.machine.zips import open_archive


def describe_file(path: Path) -> list[dict[str, Any]]:
    """Describe each artifact in a file or folder; check the bytes of its images without loading them.

    Raises
    ------
    ArgumentError
        There is no artifact.
    LoadError
        An artifact is damaged, or of a format that this release does not read.
    """
    try:
        if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir raises where a path is too long
            found = [_describe(each) for each in map(open_folder, (path, path / KERNELS)) if each is not None]
        else:
            with open_regular(path) as file:
                found = [_describe(artifact) for artifact in _artifacts(path, file)]
                file.seek(0)
                seal = {"sha256": hashlib.file_digest(file, "sha256").hexdigest()} if found else {}
                found = [{**each, **seal} for each in found]
    except OSError as error:
        raise ArgumentError(f"{path} can't be read: {error.strerror}") from error
    if not found:
        raise ArgumentError(
            f"{path} has no kernels that were built ahead of time",
            hints=(
                "pass an exported program, a wheel, or a package's name or folder",
                "python -m be_runtime build makes them",
            ),
        )
    return found


def _artifacts(path: Path, file: BinaryIO) -> Iterator[Artifact]:
    try:
        archive = open_archive(file)
        names = archive.namelist()
    except Exception:  # noqa: BLE001 - zipfile raises many kinds of errors for damaged files
        file.seek(0)
        yield unpack(file.read(), str(path))
        return
    for name in (each for each in names if each.endswith(f"{KERNELS}/{INDEX}")):
        folder = name.removesuffix(INDEX)
        found = open_folder(zipfile.Path(archive, folder), f"{path}: {folder.rstrip('/')}")
        assert found is not None, "the zip lists its index"
        yield found


def _describe(artifact: Artifact) -> dict[str, Any]:
    table = artifact.table
    records = {name: ModuleRecord.read(row, artifact.where) for name, row in table.modules.items()}
    for digest in table.images:
        artifact.image(digest)
    with reading(artifact.where):
        return {
            "where": artifact.where,
            "machine": table.machine,
            "program": dict(table.program),
            "modules": {name: sorted(record.contents()) for name, record in records.items()},
            "functions": sorted(table.functions),
            "kernels": {row["name"]: list(archs_of(row)) for row in table.kernels.values()},
            "targets": {name: target.platform for name, target in table.targets.items()},
            "images": {digest: image._asdict() for digest, image in table.images.items()},
        }


def render_description(described: dict[str, Any]) -> str:
    """Format a description as text."""
    with reading(described["where"]):
        return "\n".join(_lines(described))


def _lines(described: dict[str, Any]) -> list[str]:
    program, lines = described["program"], [described["where"]]
    if program:
        types = f"{program['function']}({', '.join(program['in'])}) -> ({', '.join(program['out'])})"
        devices = f" on {program['devices']} devices" if program["devices"] > 1 else ""
        lines.append(f"  program  {types} for {', '.join(program['platforms'])}{devices}")
        lines.append(f"  made by  {program['made_by']} and JAX {program['jax']}")
    lines += [f"  sha256   {described['sha256']}"] if "sha256" in described else []
    lines.append(f"  machine  {described['machine']}")
    lines += [f"  module   {name}: {', '.join(functions)}" for name, functions in described["modules"].items()]
    lines += [f"  kernel   {name}" for name in described["functions"]]
    lines += [f"  launched {name}: {', '.join(archs)}" for name, archs in described["kernels"].items()]
    lines += [f"  target   {name} for {platform}" for name, platform in described["targets"].items()]
    for digest, image in described["images"].items():
        what = " ".join(filter(None, (image["kind"], image["platform"], image["baseline"], ", ".join(image["archs"]))))
        lines.append(f"  image    {digest[:32]} {image['size'] / 1024:.1f} KiB, {what}")
    return lines
