"""The commands ``cache prune`` and ``cache clear``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from be_runtime.cache.folder.guard import cache_errors
from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cache.upkeep.pruning import beyond_limits
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import OpenCache, open_cache
from be_runtime.cli.cache.text import entry_json, many, now

_DAY_S = 86400


def prune(arguments: argparse.Namespace) -> Answer:
    """Remove what is old or too much, from each part of the cache."""
    cache = open_cache()
    settings = cache.session.settings
    size_mib = settings.cache_max_size_mib if arguments.max_size is None else arguments.max_size
    age_days = settings.cache_max_age_days if arguments.max_age is None else arguments.max_age
    doomed = [beyond_limits(store.entries(), size_mib << 20, age_days, now_s=now()) for store in cache.stores]
    old = [row for row in cache.imported.archives() if row[1].st_mtime < now() - age_days * _DAY_S]
    return _remove(cache, [info for infos in doomed for info in infos], old, is_dry=arguments.dry_run)


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
    removed = doomed if is_dry else cache.remove(doomed)
    if not is_dry:
        with cache_errors(str(cache.imported.folder)):
            for path, _ in archives:
                path.unlink(missing_ok=True)
    size = sum(info.size_bytes for info in removed) + sum(status.st_size for _, status in archives)
    verb = "would remove" if is_dry else "removed"
    imported = f" and {many(len(archives), 'imported archive')}" if archives else ""
    text = f"{verb} {many(len(removed), 'entry', 'entries')}{imported}, {size_text(size)}"
    names = {"removed": [*map(entry_json, removed)], "imported": [path.name for path, _ in archives]}
    return Answer(text, {**names, "size_bytes": size, "is_dry_run": is_dry})
