"""The commands ``cache list`` and ``cache path``."""

from __future__ import annotations

import argparse

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import key_of, open_cache
from be_runtime.cli.cache.text import SHORT, ago, by, day, entry_json, many, now
from be_toolchain.terminal import table

_HEADS = ("entry", "name", "kind", "for", "size", "built", "last use", "by")


def list_entries(arguments: argparse.Namespace) -> Answer:
    """List entries, newest first."""
    cache = open_cache()
    found = cache.entries(everything=arguments.everything)
    if arguments.name is not None:
        found = cache.named(arguments.name, found)
    archs = [archs_of(info) for info in found]
    size = sum(info.size_bytes for info in found)
    rows = [_row(info, names, now()) for info, names in zip(found, archs, strict=True)]
    total = f"{many(len(found), 'entry', 'entries')}, {size_text(size)} in {cache.folder}"
    listed = [{**entry_json(info), "archs": names} for info, names in zip(found, archs, strict=True)]
    text = f"{table([_HEADS, *rows])}\n{total}" if rows else total
    return Answer(text, {"folder": str(cache.folder), "entries": listed, "size_bytes": size})


def path(_arguments: argparse.Namespace) -> Answer:
    """Say the cache's folder."""
    folder = str(open_cache().folder)
    return Answer(folder, {"folder": folder})


def archs_of(info: EntryInfo) -> tuple[str, ...]:
    """Return the GPU architectures of an entry, or the CPU's name if it has none."""
    key = key_of(info)
    return () if key is None else key.texts("archs") or key.texts("cpu")


def _row(info: EntryInfo, archs: tuple[str, ...], now_s: float) -> tuple[str, ...]:
    digest = info.digest[:SHORT]
    if info.is_damaged:
        return (digest, "(damaged)", "", "", "", "", "", "")
    used, built = day(info.last_used_s, now_s), ago(info.created_ns / 1e9, now_s)
    return (digest, info.name, info.kind, " ".join(archs), size_text(info.size_bytes), built, used, by(info.made))
