"""The command ``cache stats``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cli.answer import Answer, size_text
from be_runtime.cli.cache.opened import open_cache
from be_runtime.cli.cache.text import many, now, stamp
from be_toolchain.terminal import table

_DAY_S = 86400
_USES = (("today", 1), ("this week", 7), ("this month", 30))


def stats(_arguments: argparse.Namespace) -> Answer:
    """Count entries and bytes of each part of the cache; hits can't be counted, since a load writes nothing."""
    cache = open_cache()
    settings = cache.session.settings
    limit = settings.cache_max_size_mib << 20
    parts = zip(("modules and kernels", "toolchain"), cache.stores, strict=True)
    counted = {name: _count([*store.entries()], limit) for name, store in parts}
    sizes = [status.st_size for _, status in cache.imported.archives()]
    lines = [f"{cache.folder}", *(_part_text(name, part) for name, part in counted.items())]
    if sizes:
        lines.append(f"imported: {many(len(sizes), 'archive')}, {size_text(sum(sizes))}")
    data = {"folder": str(cache.folder), "limit_bytes": limit, "max_age_days": settings.cache_max_age_days}
    return Answer(
        "\n\n".join(lines), {**data, "parts": counted, "imported": {"archives": len(sizes), "size_bytes": sum(sizes)}}
    )


def _count(entries: Sequence[EntryInfo], limit: int) -> dict[str, Any]:
    size, now_s = sum(info.size_bytes for info in entries), now()
    whole = [info for info in entries if not info.is_damaged]
    built = sorted(info.created_ns / 1e9 for info in whole)
    kinds: dict[str, dict[str, int]] = {}
    uses = dict.fromkeys((*(name for name, _ in _USES), "older"), 0)
    for info in whole:
        kind = kinds.setdefault(info.kind, {"entries": 0, "size_bytes": 0})
        kind["entries"] += 1
        kind["size_bytes"] += info.size_bytes
        days = (now_s - info.last_used_s) / _DAY_S
        uses[next((name for name, most in _USES if days < most), "older")] += 1
    return {
        "entries": len(entries),
        "damaged": len(entries) - len(whole),
        "size_bytes": size,
        "of_limit": size / limit,
        "kinds": dict(sorted(kinds.items())),
        "last_used": uses,
        "oldest": stamp(built[0]) if built else None,
        "newest": stamp(built[-1]) if built else None,
    }


def _part_text(name: str, part: dict[str, Any]) -> str:
    limit = f"{size_text(part['size_bytes'])}, {part['of_limit']:.1%} of the limit"
    lines = [f"{name}: {many(part['entries'], 'entry', 'entries')}, {limit}"]
    if part["damaged"]:
        lines.append(f"damaged: {part['damaged']}, see python -m be_runtime cache verify")
    if part["kinds"]:
        rows = [(kind, str(of["entries"]), size_text(of["size_bytes"])) for kind, of in part["kinds"].items()]
        uses = ", ".join(f"{count} {when}" for when, count in part["last_used"].items() if count)
        lines += [table([("  kind", "entries", "size"), *((f"  {kind}", *rest) for kind, *rest in rows)])]
        lines += [f"  last used: {uses}", f"  built: {part['oldest']} to {part['newest']}"]
    return "\n".join(lines)
