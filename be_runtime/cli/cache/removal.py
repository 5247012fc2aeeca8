"""The commands ``cache prune`` and ``cache clear``."""

from __future__ import annotations

import argparse
import contextlib
import os
from pathlib import Path
from typing import Any

from be_runtime.cache.folder.guard import cache_errors
from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cache.upkeep.pruning import beyond_limits
from be_runtime.cache.validity.examine import examine
from be_runtime.cache.validity.homes import elsewhere
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import OpenCache, key_of, open_cache
from be_runtime.cli.cache.show_entry import manifest_of
from be_runtime.cli.cache.text import SHORT, entry_json, many, now, with_progress
from be_runtime.errors import CacheError
from be_runtime.load.own_code import own_code_digest
from be_runtime.sharing.archive import ArchiveError, unpack
from be_toolchain.machine.trust.regular_file import read_regular
from be_toolchain.terminal import table

_DAY_S = 86400


def prune(arguments: argparse.Namespace) -> Answer:
    """Remove what is old or too much, and what no load can use if asked for, from each part of the cache."""
    cache = open_cache()
    settings = cache.session.settings
    size_mib = settings.cache_max_size_mib if arguments.max_size is None else arguments.max_size
    age_days = settings.cache_max_age_days if arguments.max_age is None else arguments.max_age
    doomed = {
        info.path: info
        for store in cache.stores
        for info in beyond_limits(store.entries(), size_mib << 20, age_days, now_s=now())
    }
    if arguments.stale:
        entries = with_progress(cache.stored(toolchain=True), "looking")
        doomed |= {info.path: info for info in entries if _is_stale(info)}
    old = [row for row in cache.imported.archives() if row[1].st_mtime < now() - age_days * _DAY_S]
    return _remove(cache, [*doomed.values()], old, is_dry=arguments.dry_run)


def _is_stale(info: EntryInfo) -> bool:
    """Return whether no load can use an entry: a file that it was made from has changed or is gone."""
    try:
        manifest = manifest_of(info)
    except CacheError:  # damaged, or removed just now
        return False
    key = key_of(info)
    if key is not None and key.texts("generator") not in ((), (own_code_digest(),)):
        manifest = elsewhere(manifest)
    return bool(examine(info.path, manifest).problem)


def clear(arguments: argparse.Namespace) -> Answer:
    """Remove the entries of a name, or all.

    Raises
    ------
    ArgumentError
        There is nothing of the name.
    """
    cache = open_cache()
    doomed = cache.stored(toolchain=arguments.everything)
    if arguments.name is not None:
        return _remove(cache, cache.named(arguments.name, doomed), [], is_dry=arguments.dry_run)
    answer = _remove(cache, doomed, cache.imported.archives(), is_dry=arguments.dry_run)
    if not arguments.dry_run:
        cache.session.cache.clear()  # what killed builds left
    return answer


def _remove(
    cache: OpenCache, doomed: list[EntryInfo], archives: list[tuple[Path, os.stat_result]], *, is_dry: bool
) -> Answer:
    carried = [_archive_json(*row) for row in archives]
    removed = doomed if is_dry else cache.remove(doomed)
    if not is_dry:
        with cache_errors(str(cache.imported.folder)):
            for path, _ in archives:
                path.unlink(missing_ok=True)
    size = sum(info.size_bytes for info in removed) + sum(status.st_size for _, status in archives)
    verb = "would remove" if is_dry else "removed"
    imported = f" and {many(len(archives), 'imported archive')}" if archives else ""
    text = f"{verb} {many(len(removed), 'entry', 'entries')}{imported}, {size_text(size)}"
    if is_dry:
        rows = [
            (info.digest[:SHORT], info.name or "(damaged)", info.kind, size_text(info.size_bytes)) for info in doomed
        ]
        rows += [(row["digest"][:SHORT], row["name"], "imported", size_text(row["size_bytes"])) for row in carried]
        text = "\n".join([text, *([table([("entry", "name", "kind", "size"), *rows])] if rows else [])])
    names = {"removed": [*map(entry_json, removed)], "imported": carried}
    return Answer(text, {**names, "size_bytes": size, "is_dry_run": is_dry})


def _archive_json(path: Path, status: os.stat_result) -> dict[str, Any]:
    """Return an imported archive as JSON data; the name is empty if it can't be read."""
    name = ""
    with contextlib.suppress(OSError, ArchiveError):
        name = unpack(read_regular(path))[0].name
    return {"name": name, "digest": path.name, "size_bytes": status.st_size}
