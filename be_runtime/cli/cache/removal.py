"""The commands ``cache prune`` and ``cache clear``."""

from __future__ import annotations

import argparse

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cache.upkeep.pruning import beyond_limits
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import OpenCache, open_cache
from be_runtime.cli.cache.text import entry_json, many, now


def prune(arguments: argparse.Namespace) -> Answer:
    """Remove what is old or too much, from each part of the cache."""
    cache = open_cache()
    settings = cache.session.settings
    size_mib = settings.cache_max_size_mib if arguments.max_size is None else arguments.max_size
    age_days = settings.cache_max_age_days if arguments.max_age is None else arguments.max_age
    doomed = [beyond_limits(store.entries(), size_mib << 20, age_days, now_s=now()) for store in cache.stores]
    return _remove(cache, [info for infos in doomed for info in infos], is_dry=arguments.dry_run)


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
        return _remove(cache, cache.named(arguments.name, doomed), is_dry=arguments.dry_run)
    answer = _remove(cache, doomed, is_dry=arguments.dry_run)
    if not arguments.dry_run:
        cache.session.cache.clear()  # what killed builds left
    return answer


def _remove(cache: OpenCache, doomed: list[EntryInfo], *, is_dry: bool) -> Answer:
    removed = doomed if is_dry else cache.remove(doomed)
    size = sum(info.size_bytes for info in removed)
    verb = "would remove" if is_dry else "removed"
    text = f"{verb} {many(len(removed), 'entry', 'entries')}, {size_text(size)}"
    return Answer(text, {"removed": [*map(entry_json, removed)], "size_bytes": size, "is_dry_run": is_dry})
