"""Choices as they are kept: in the cache for one machine, and in a package's file for the GPUs that its author has."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.tune.buckets import nearest
from be_runtime.tune.configs import Config
from be_toolchain.machine.trust.regular_file import LARGE, read_part

FILE = "tuned.json"
"""Name of a package's file."""

_SCHEMA = 1
_SOURCES = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl"])


class TunedDevice(NamedTuple):
    """A device.

    Parameters
    ----------
    name : str
        Name of the GPU, or what identifies the CPU.
    sm : str
        Compute capability; empty for a CPU.
    driver : str
        Version of the driver; empty for a CPU.
    """

    name: str
    sm: str
    driver: str


class Winner(NamedTuple):
    """The choice for a bucket.

    Parameters
    ----------
    name : str
        Name of what is tuned.
    bucket : str
    config : dict
    us, first_us : float
        Microseconds of a call with a flushed cache, of this configuration and of the first.
    device, sm, driver : str
        See `TunedDevice`.
    source : str
        Digest of what it was made from.
    """

    name: str
    bucket: str
    config: Config
    us: float
    first_us: float
    device: str
    sm: str
    driver: str
    source: str


def render_winners(rows: Iterable[Winner]) -> str:
    """Write choices as JSON, a row a line, so that changes are read easily."""
    lines = ",\n".join(
        json.dumps(row._asdict()) for row in sorted(rows, key=lambda row: (row.name, row.device, row.bucket))
    )
    return f'{{"schema": {_SCHEMA}, "rows": [\n{lines}\n]}}\n'


def parse_winners(text: str | bytes, where: str) -> tuple[Winner, ...]:
    """Read what `render_winners` wrote.

    Raises
    ------
    ArgumentError
        It is something else.

    Examples
    --------
    >>> parse_winners(render_winners([]), "tuned.json")
    ()
    """
    try:
        document = json.loads(text)
        if document["schema"] != _SCHEMA:
            raise ArgumentError(
                f"{where} has the schema {document['schema']!r}, and this release reads {_SCHEMA}",
                hints=(f"tune again: remove {where}, then python -m be_runtime tune",),
            )
        return tuple(_checked(Winner(**row)) for row in document["rows"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArgumentError(
            f"{where} holds no choices: {error}", hints=(f"remove {where}, then python -m be_runtime tune",)
        ) from None


def _checked(row: Winner) -> Winner:
    """Return a row, each text of which is one; TypeError if one is something else."""
    for field, value in row._asdict().items():
        kinds = dict if field == "config" else (int, float) if field in ("us", "first_us") else str
        if not isinstance(value, kinds):
            raise TypeError(f"{field} is {value!r}")
    return row


def merged(older: Iterable[Winner], newer: Iterable[Winner]) -> tuple[Winner, ...]:
    """Replace the rows of the same thing, bucket and device."""
    rows = {(row.name, row.bucket, row.device): row for row in (*older, *newer)}
    return tuple(rows.values())


def find_winner(rows: Sequence[Winner], bucket: str, device: TunedDevice) -> Winner | None:
    """Return the row for a bucket: of this device, else of the same architecture, else that of the nearest bucket."""
    groups = [
        {row.bucket: row for row in rows if (row.device, row.driver) == (device.name, device.driver)},
        {row.bucket: row for row in rows if row.device == device.name},
        {row.bucket: row for row in rows if row.sm == device.sm},
    ]
    exact = next((group[bucket] for group in groups if bucket in group), None)
    if exact is not None:
        return exact
    found = ((group, nearest(bucket, group)) for group in groups)
    return next((group[near] for group, near in found if near is not None), None)


def read_package(files: Traversable, name: str) -> tuple[Winner, ...]:
    """Read a package's choices; none if it has no file of them."""
    return _read(files / FILE, f"{name}/{FILE}")


def _read(file: Traversable, where: str) -> tuple[Winner, ...]:
    try:
        data = read_part(file, LARGE)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ArgumentError(f"{where} can't be read: {error.strerror}") from error
    return parse_winners(data, where)


def write_package(folder: Path, rows: Iterable[Winner]) -> Path:
    """Write a package's choices by one rename, beside those of other devices that it has."""
    path = folder / FILE
    older = _read(path, str(path))
    temporary = path.with_name(f".{FILE}.new")
    try:
        temporary.write_text(render_winners(merged(older, rows)), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ArgumentError(f"{path} can't be written: {error.strerror}") from error
    return path


def sources_digest(files: Traversable) -> str:
    """Hash the C++ and CUDA sources of a package, by their names and contents, wherever the package is."""
    digest = hashlib.sha256()
    for path, file in sorted(_source_files(files, "")):
        data = read_part(file, LARGE)
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return digest.hexdigest()


def _source_files(folder: Traversable, prefix: str) -> Iterable[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from () if each.name.startswith((".", "_")) else _source_files(each, f"{prefix}{each.name}/")
        elif Path(each.name).suffix in _SOURCES:
            yield f"{prefix}{each.name}", each


def texts_digest(texts: Iterable[str]) -> str:
    """Hash some texts, each after its length."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def row_of(
    name: str, bucket: str, source: str, device: TunedDevice, chosen: Mapping[str, Any], us: tuple[float, float]
) -> Winner:
    """Make the row of a choice that was timed now."""
    return Winner(name, bucket, dict(chosen), round(us[0], 3), round(us[1], 3), *device, source)
