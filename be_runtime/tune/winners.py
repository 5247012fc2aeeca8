"""Stored choices of configurations, in the cache for one machine, and in a package's file for its author's GPUs."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, BeRuntimeError
from be_runtime.store.cache import replace_file
from be_toolchain.machine.trust import LARGE, read_part

_ARRAY = re.compile(r"(\w+)\[((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)\]")

Shapes = Sequence[tuple[str, Sequence[int]]]
"""The dtype and the shape of each array."""

FILE = "tuned.json"
"""Name of a package's file of choices."""

_SCHEMA = 1
_SOURCES = frozenset([".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inc", ".inl"])


def bucket_of(arrays: Shapes) -> str:
    """Name the bucket of arrays: their dtypes, and their extents rounded up to powers of two.

    Examples
    --------
    >>> bucket_of([("float32", (1000, 64)), ("int32", ())])
    'float32[1024,64] int32[]'
    """
    rounded = [(dtype, [str(1 << (n - 1).bit_length() if n else 0) for n in shape]) for dtype, shape in arrays]
    return " ".join(f"{dtype}[{','.join(extents)}]" for dtype, extents in rounded)


def nearest(bucket: str, known: Iterable[str]) -> str | None:
    """Return the bucket of equal dtypes and ranks with the nearest sizes, by ratio; None if there is none.

    Examples
    --------
    >>> nearest("float32[1024]", ["float32[64]", "float32[4096]", "int32[1024]"])
    'float32[4096]'
    """
    ranked = ((distance, name) for name in known if (distance := _distance(bucket, name)) is not None)
    return min(ranked, default=(0.0, None))[1]


def _distance(first: str, second: str) -> float | None:
    if first == second:
        return 0.0
    here, there = (_ARRAY.findall(each) for each in (first, second))
    if [dtype for dtype, _ in here] != [dtype for dtype, _ in there] or not here:
        return None
    sizes = [[list(map(int, filter(None, extents.split(",")))) for _, extents in each] for each in (here, there)]
    if [len(shape) for shape in sizes[0]] != [len(shape) for shape in sizes[1]]:
        return None
    pairs = ((a, b) for one, other in zip(*sizes, strict=True) for a, b in zip(one, other, strict=True))
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in pairs)


Config = dict[str, Any]


def expand(configs: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]]) -> tuple[Config, ...]:
    """List the given configurations, or all combinations of a mapping's values in its order; each once.

    Raises
    ------
    ArgumentError
        There is no configuration, or a configuration is not a mapping from names to values that JSON can represent.

    Examples
    --------
    >>> expand({"block": [64, 128], "vector": [1]})
    ({'block': 64, 'vector': 1}, {'block': 128, 'vector': 1})
    """
    if isinstance(configs, Mapping):
        wrong = next((name for name, values in configs.items() if not isinstance(values, list | tuple | range)), None)
        if wrong is not None:
            raise ArgumentError(
                f"configs[{wrong!r}] is {configs[wrong]!r}", hints=("list the values that it may have: [64, 128]",)
            )
        found = [dict(zip(configs, values, strict=True)) for values in itertools.product(*configs.values())]
    else:
        each: Any
        for number, each in enumerate(configs):
            if not isinstance(each, Mapping) or not all(isinstance(name, str) for name in each):
                raise ArgumentError(
                    f"configs[{number}] is {each!r}", hints=("a configuration is a dict of keyword arguments",)
                )
        found = [dict(each) for each in configs]
    if not found:
        raise ArgumentError("configs names no configuration", hints=("name values: configs={'block': [64, 128]}",))
    return tuple({name_of(each): each for each in found}.values())


def name_of(config: Mapping[str, Any]) -> str:
    """Return a configuration as a text that identifies it.

    Raises
    ------
    ArgumentError
        JSON can't represent a value.
    """
    try:
        return json.dumps(dict(config), sort_keys=True)
    except TypeError as error:
        raise ArgumentError(
            f"a configuration is {dict(config)!r}, and it is kept as JSON: {error}",
            hints=("name a choice by a number, a string or a bool, and look the rest up in the function",),
        ) from None


def name_config(error: Exception, config: Mapping[str, Any]) -> None:
    """Add the configuration that raised an error to the error's hints or notes."""
    text = f"this was the configuration {name_of(config)}"
    if isinstance(error, BeRuntimeError):
        error.hints += (text,)
    else:
        error.add_note(text)


class TunedDevice(NamedTuple):
    """A device that kernels are tuned for.

    Parameters
    ----------
    name : str
        Name of the GPU, or the identity of the CPU.
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
        Name of the tuned function.
    bucket : str
    config : dict
    us, first_us : float
        Microseconds of a call in this configuration and in the first that works; on a GPU, after a flush of its cache.
    device, sm, driver : str
        See `TunedDevice`.
    source : str
        Digest of the sources.
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
    """Format choices as JSON with one row a line, so that a diff is easy to read."""
    lines = ",\n".join(
        json.dumps(row._asdict()) for row in sorted(rows, key=lambda row: (row.name, row.device, row.bucket))
    )
    return f'{{"schema": {_SCHEMA}, "rows": [\n{lines}\n]}}\n'


def parse_winners(text: str | bytes, where: str) -> tuple[Winner, ...]:
    """Parse the text of `render_winners`.

    Raises
    ------
    ArgumentError
        The text is not such JSON.

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
        return tuple(_with_checked_types(Winner(**row)) for row in document["rows"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArgumentError(
            f"{where} holds no choices: {error}", hints=(f"remove {where}, then python -m be_runtime tune",)
        ) from None


def _with_checked_types(row: Winner) -> Winner:
    """Return a row, or raise TypeError if a field has a wrong type."""
    for field, value in row._asdict().items():
        kinds = dict if field == "config" else (int, float) if field in ("us", "first_us") else str
        if not isinstance(value, kinds):
            raise TypeError(f"{field} is {value!r}")
    return row


def merged(older: Iterable[Winner], newer: Iterable[Winner]) -> tuple[Winner, ...]:
    """Return both lists of rows, in which a newer row replaces the older one of its name, bucket and device."""
    rows = {(row.name, row.bucket, row.device): row for row in (*older, *newer)}
    return tuple(rows.values())


def find_winner(rows: Sequence[Winner], bucket: str, device: TunedDevice) -> Winner | None:
    """Return the row for a bucket, of this device, otherwise of its architecture, otherwise of the nearest bucket."""
    groups = [
        {row.bucket: row for row in rows if (row.device, row.driver) == (device.name, device.driver)},
        {row.bucket: row for row in rows if row.device == device.name},
        {row.bucket: row for row in rows if row.sm == device.sm},
    ]
    exact = [group[bucket] for group in groups if bucket in group]
    found = ((group, nearest(bucket, group)) for group in groups)
    return exact[0] if exact else next((group[near] for group, near in found if near is not None), None)


def read_file(file: Traversable, where: str) -> tuple[Winner, ...]:
    """Read a file of choices; empty if the file does not exist."""
    try:
        data = read_part(file, LARGE)
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ArgumentError(f"{where} can't be read: {error.strerror}") from error
    return parse_winners(data, where)


def write_package(folder: Path, rows: Iterable[Winner]) -> Path:
    """Add choices to a package's file; one rename replaces the file."""
    path = folder / FILE
    older = read_file(path, str(path))
    try:
        replace_file(str(path), render_winners(merged(older, rows)), mode=0o666)
    except OSError as error:
        raise ArgumentError(f"{path} can't be written: {error.strerror}") from error
    return path


def sources_digest(files: Traversable) -> str:
    """Hash the names and contents of a package's C++ and CUDA sources, independent of the package's folder."""
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
    """Hash texts, each after its length."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()
