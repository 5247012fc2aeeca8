"""The command ``cache show``."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.cache import CacheKey, Manifest
from be_runtime.cache.upkeep.entries import EntryInfo, read_entry
from be_runtime.cache.validity.absent import absent_paths
from be_runtime.cache.validity.examine import examine
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import OpenCache, key_of, open_cache
from be_runtime.cli.cache.text import SHORT, ago, by, day, entry_json, many, now, stamp
from be_runtime.errors import CacheError
from be_toolchain.terminal import printable_line

_LONGEST = 100
_IN_A_LINE = 4


class Seen(NamedTuple):
    """The entry of a key that a load takes, or the newest if none is valid.

    Parameters
    ----------
    info : EntryInfo
    manifest : Manifest
    problem : str
        Reason that it is not valid.
    entries : int
        Number of the key's entries.
    """

    info: EntryInfo
    manifest: Manifest
    problem: str
    entries: int

    @property
    def others(self) -> tuple[str, ...]:
        """A line about the other entries of the key, if there are any."""
        which = "none is valid, the newest" if self.problem else "the valid one"
        return (f"{self.entries} entries of this key; {which}:",) if self.entries > 1 else ()


def as_a_load_sees(cache: OpenCache, chosen: EntryInfo) -> Seen:
    """Look at all entries of an entry's key, as a load does.

    Raises
    ------
    CacheError
        One was removed just now.
    """
    found = [info for info in cache.stored(toolchain=True) if info.digest == chosen.digest and not info.is_damaged]
    seen = []
    for info in found:
        with contextlib.suppress(CacheError):
            manifest = manifest_of(info)
            each = Seen(info, manifest, examine(info.path, manifest).problem, len(found))
            if not each.problem:
                return each
            if Path(info.path).is_dir():  # else it was removed just now
                seen.append(each)
    if not seen:
        raise CacheError(f"{chosen.path} was removed just now")
    return seen[0]


def show(arguments: argparse.Namespace) -> Answer:
    """Show the newest entry of a name, or that of a digest.

    Raises
    ------
    ArgumentError
        There is none.
    CacheError
        It was removed just now.
    """
    cache = open_cache()
    seen = as_a_load_sees(cache, cache.chosen(arguments.name))
    info, manifest, problem, _ = seen
    key = key_of(info)
    lines = [*seen.others, *_entry_lines(info, manifest, problem), *_key_lines(key)]
    if arguments.files:
        lines += _file_lines(manifest)
    others = [each for each in cache.entries(everything=True) if each.name == info.name and each.path != info.path]
    if others:
        listed = ", ".join(f"{other.kind} {other.digest[:SHORT]}" for other in others)
        lines.append(f"\nmore of this name: {listed}")
    return Answer("\n".join(lines), _data(info, manifest, key, problem))


def manifest_of(info: EntryInfo) -> Manifest:
    """Return the manifest of an entry.

    Raises
    ------
    CacheError
        It was removed just now.
    """
    try:
        return read_entry(info.path)[0]
    except (OSError, ValueError) as error:
        raise CacheError(f"{info.path} was removed just now") from error


def _entry_lines(info: EntryInfo, manifest: Manifest, problem: str) -> Iterator[str]:
    now_s = now()
    yield printable_line(f"{info.name} ({info.kind})")
    outputs = [f"{record.path} ({size_text(record.size)})" for record in manifest.outputs.records]
    rows = {
        "digest": info.digest,
        "folder": info.path,
        "files": ", ".join(outputs),
        "built": f"{ago(info.created_ns / 1e9, now_s)} ({stamp(info.created_ns / 1e9)}), by {by(info.made)}",
        "since": info.made.reason,
        "last use": day(info.last_used_s, now_s),
        "made from": f"{many(len(manifest.dependencies.paths), 'source and header', 'sources and headers')}, "
        f"{many(len(manifest.others.paths), 'other file')}, "
        f"and {many(len(absent_paths(manifest.absent)), 'name')} where no file was",
        "now": f"not valid: {problem}" if problem else "valid",
    }
    for label, text in rows.items():
        yield f"  {label:<9}  {printable_line(text)}"


def _key_lines(key: CacheKey | None) -> Iterator[str]:
    """Write the fields of a key; long texts, such as sources, by their size."""
    if key is None:
        yield "\nits key can't be read"
        return
    yield "\nkey"
    for label, value in key.fields:
        texts = key.texts(label)
        shown = list(map(_short, texts)) if texts or value[1:] == b"" else [value[1:].hex()]
        yield f"  {label}: {' '.join(shown)}" if len(shown) <= _IN_A_LINE else f"  {label}"
        yield from (f"    {text}" for text in shown if len(shown) > _IN_A_LINE)


def _short(text: str) -> str:
    if "\n" in text or len(text) > _LONGEST:
        return f"<{many(len(text.splitlines()), 'line')}, {len(text)} characters>"
    return printable_line(text) if text and " " not in text else repr(text)


def _file_lines(manifest: Manifest) -> Iterator[str]:
    for title, paths in (
        ("sources and headers", manifest.dependencies.paths),
        ("other files", manifest.others.paths),
        ("no file was at", absent_paths(manifest.absent)),
    ):
        yield f"\n{title}"
        yield from (f"  {printable_line(path)}" for path in paths)


def _data(info: EntryInfo, manifest: Manifest, key: CacheKey | None, problem: str) -> dict[str, object]:
    fields: Any = None if key is None else json.loads(key.to_json())["fields"]
    return {
        **entry_json(info),
        "is_valid": not problem,
        "problem_now": problem,
        "outputs": [record._asdict() for record in manifest.outputs.records],
        "dependencies": list(manifest.dependencies.paths),
        "others": list(manifest.others.paths),
        "absent": list(absent_paths(manifest.absent)),
        "key": fields,
    }
