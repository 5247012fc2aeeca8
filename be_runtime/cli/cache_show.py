"""The ``cache`` commands that print entries: ``list``, ``path``, ``show``, ``stats``, ``verify`` and ``why``."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.cli.cache_common import (
    SHORT,
    OpenCache,
    ago,
    by,
    day,
    entry_json,
    manifest_of,
    open_cache,
    share_of,
    stamp,
    with_progress,
)
from be_runtime.cli.main import FAILED, Answer, size_text
from be_runtime.errors import CacheError, LoadError
from be_runtime.load.registry import Session
from be_runtime.store.cache import NOT_CACHED
from be_runtime.store.eviction import EntryInfo, read_key
from be_runtime.store.examine import Audit, audit, examine
from be_runtime.store.keys import CacheKey
from be_runtime.store.manifest import Manifest, absent_paths
from be_runtime.store.sharing import pack_entry, unnamed_paths
from be_toolchain.terminal import WORKS, many, printable_line, table

_HEADS = ("entry", "name", "kind", "for", "size", "built", "last use", "by")
_DAY_S = 86400
_USES = (("today", 1), ("this week", 7), ("this month", 30))
_LONGEST_TEXT = 100
"""The largest number of characters of a key's text that is printed in full."""
_MOST_IN_A_LINE = 4
"""The largest number of texts of a key's field that are printed in one line."""


def list_entries(arguments: argparse.Namespace) -> Answer:
    """List entries, newest first."""
    cache = open_cache()
    found = cache.entries() if arguments.everything else cache.kernels()
    if arguments.name is not None:
        found = cache.named(arguments.name, found)
    archs = [_archs(info) for info in found]
    size = sum(info.size_bytes for info in found)
    text = f"{many(len(found), 'entry', 'entries')}, {size_text(size)} in {cache.folder}"
    if found:
        rows = [_row(info, names, cache.now_s) for info, names in zip(found, archs, strict=True)]
        text = f"{table([_HEADS, *rows])}\n{text}"
    imported, line = _imported(cache)
    listed = [{**entry_json(info), "archs": names} for info, names in zip(found, archs, strict=True)]
    data = {"folder": str(cache.folder), "entries": listed, "size_bytes": size, "imported": imported}
    return Answer("\n".join([text, *line]), data)


def _imported(cache: OpenCache) -> tuple[dict[str, int], list[str]]:
    """Count the imported artifacts; return the numbers, and a line about them if there are any."""
    sizes = [status.st_size for _, status in cache.imported.archives()]
    lines = [f"imported: {many(len(sizes), 'artifact')}, {size_text(sum(sizes))}"] if sizes else []
    return {"archives": len(sizes), "size_bytes": sum(sizes)}, lines


def _archs(info: EntryInfo) -> tuple[str, ...]:
    """Return the GPU architectures of an entry; the CPU's name if it has none."""
    key = read_key(info.path)
    return () if key is None else key.texts("archs") or key.texts("cpu")


def _row(info: EntryInfo, archs: tuple[str, ...], now_s: float) -> tuple[str, ...]:
    digest = info.digest[:SHORT]
    if info.is_damaged:
        return (digest, "(damaged)", "", "", "", "", "", "")
    used, built = day(info.last_used_s, now_s), ago(info.created_ns / 1e9, now_s)
    return (digest, info.name, info.kind, " ".join(archs), size_text(info.size_bytes), built, used, by(info.made))


def path(_arguments: argparse.Namespace) -> Answer:
    """Print the cache's folder."""
    folder = str(open_cache().folder)
    return Answer(folder, {"folder": folder})


def stats(_arguments: argparse.Namespace) -> Answer:
    """Count the entries and bytes of each part of the cache, but not hits, since a load writes nothing."""
    cache = open_cache()
    settings = cache.session.settings
    limit = settings.cache_max_size_mib << 20
    parts = zip(("modules and kernels", "toolchain"), cache.stores, strict=True)
    counted = {name: _count([*store.entries()], limit, cache.now_s) for name, store in parts}
    imported, line = _imported(cache)
    lines = [f"{cache.folder}", *(_part_text(name, part) for name, part in counted.items()), *line]
    return Answer(
        "\n\n".join(lines),
        {
            "folder": str(cache.folder),
            "limit_bytes": limit,
            "max_age_days": settings.cache_max_age_days,
            "parts": counted,
            "imported": imported,
        },
    )


def _count(entries: Sequence[EntryInfo], limit: int, now_s: float) -> dict[str, Any]:
    size = sum(info.size_bytes for info in entries)
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
        rows = [(f"  {kind}", str(of["entries"]), size_text(of["size_bytes"])) for kind, of in part["kinds"].items()]
        uses = ", ".join(f"{count} {when}" for when, count in part["last_used"].items() if count)
        lines.append(table([("  kind", "entries", "size"), *rows]))
        lines += [f"  last used: {uses}", f"  built: {part['oldest']} to {part['newest']}"]
    return "\n".join(lines)


class _Seen(NamedTuple):
    """The entry of a key that a load takes, or the newest one if no entry is valid.

    Parameters
    ----------
    info : EntryInfo
    manifest : Manifest
    problem : str
        Reason that the entry is not valid.
    entries : int
        Number of the key's entries.
    """

    info: EntryInfo
    manifest: Manifest
    problem: str
    entries: int

    @property
    def others(self) -> list[str]:
        """A line about the other entries of the key, if there are any."""
        which = "none is valid, the newest" if self.problem else "the valid one"
        return [f"{self.entries} entries of this key; {which}:"] if self.entries > 1 else []


def _see(cache: OpenCache, name: str) -> _Seen:
    """Examine all entries of the key of a name's newest entry, as a load does.

    Raises
    ------
    ArgumentError
        No entry has the name.
    CacheError
        The entry was removed after it was listed.
    """
    chosen = cache.chosen(name)
    found = [info for info in cache.entries() if info.digest == chosen.digest and not info.is_damaged]
    seen = []
    for info in found:
        with contextlib.suppress(CacheError):
            manifest = manifest_of(info)
            each = _Seen(info, manifest, examine(info.path, manifest).problem, len(found))
            if not each.problem:
                return each
            if Path(info.path).is_dir():  # otherwise another process has removed it
                seen.append(each)
    if not seen:
        raise CacheError(f"{chosen.path} was removed while it was read")
    return seen[0]


def show(arguments: argparse.Namespace) -> Answer:
    """Print the details of the entry of a name or a digest.

    Raises
    ------
    ArgumentError
        No entry matches.
    CacheError
        The entry was removed after it was listed.
    """
    cache = open_cache()
    seen = _see(cache, arguments.name)
    info, manifest = seen.info, seen.manifest
    key = read_key(info.path)
    files = {
        "sources and headers": manifest.dependencies.paths,
        "other files": manifest.others.paths,
        "no file was at": absent_paths(manifest.absent),
    }
    lines = [*seen.others, *_entry_lines(seen, cache.now_s), *_key_lines(key)]
    for title, paths in files.items() if arguments.files else ():
        lines += [f"\n{title}", *(f"  {printable_line(path)}" for path in paths)]
    others = [each for each in cache.entries() if each.name == info.name and each.path != info.path]
    if others:
        lines.append(f"\nmore of this name: {', '.join(f'{other.kind} {other.digest[:SHORT]}' for other in others)}")
    return Answer(
        "\n".join(lines),
        {
            **entry_json(info),
            "is_valid": not seen.problem,
            "problem_now": seen.problem,
            "outputs": [record._asdict() for record in manifest.outputs.records],
            **dict(zip(("dependencies", "others", "absent"), map(list, files.values()), strict=True)),
            "key": None if key is None else json.loads(key.to_json())["fields"],
        },
    )


def _entry_lines(seen: _Seen, now_s: float) -> Iterator[str]:
    info, manifest = seen.info, seen.manifest
    built_s = info.created_ns / 1e9
    yield printable_line(f"{info.name} ({info.kind})")
    rows = {
        "digest": info.digest,
        "folder": info.path,
        "files": ", ".join(f"{record.path} ({size_text(record.size)})" for record in manifest.outputs.records),
        "built": f"{ago(built_s, now_s)} ({stamp(built_s)}), by {by(info.made)}",
        "since": info.made.reason,
        "last use": day(info.last_used_s, now_s),
        "made from": f"{many(len(manifest.dependencies.paths), 'source and header', 'sources and headers')}, "
        f"{many(len(manifest.others.paths), 'other file')}, "
        f"and {many(len(absent_paths(manifest.absent)), 'name')} where no file was",
        "now": f"not valid: {seen.problem}" if seen.problem else "valid",
    }
    for label, text in rows.items():
        yield f"  {label:<9}  {printable_line(text)}"


def _key_lines(key: CacheKey | None) -> Iterator[str]:
    """List the fields of a key; for a long text, such as a source, list only the size."""
    if key is None:
        yield "\nits key can't be read"
        return
    yield "\nkey"
    for label, value in key.fields:
        texts = key.texts(label)
        shown = list(map(_short, texts)) if texts or value[1:] == b"" else [value[1:].hex()]
        if len(shown) <= _MOST_IN_A_LINE:
            yield f"  {label}: {' '.join(shown)}"
        else:
            yield f"  {label}"
            yield from (f"    {text}" for text in shown)


def _short(text: str) -> str:
    if "\n" in text or len(text) > _LONGEST_TEXT:
        return f"<{many(len(text.splitlines()), 'line')}, {len(text)} characters>"
    return printable_line(text) if text and " " not in text else repr(text)


def why(arguments: argparse.Namespace) -> Answer:
    """Print why the entry of a name was built, and whether a load can use it."""
    cache = open_cache()
    seen = _see(cache, arguments.name)
    info, problem = seen.info, seen.problem
    differs = _differences(info, cache.entries())
    elsewhere, paths = _elsewhere(info, seen.manifest, cache.session)
    came = f"{'fetched' if info.made.source else 'built'} {ago(info.created_ns / 1e9, cache.now_s)}"
    lines = [
        f"{info.name} ({info.kind}) was {came} by {by(info.made)},",
        f"since {info.made.reason or 'no reason was recorded'}",
    ]
    if differs:
        lines += ["differences from the entry before it:", *(f"  {line}" for line in differs)]
    elif info.made.reason == NOT_CACHED:
        lines.append("the cache has no earlier entry to compare it with")
    lines.append(f"the next load builds again: {problem}" if problem else "it is valid now")
    lines += [elsewhere, *(f"  {line}" for line in paths)]
    return Answer(
        "\n".join([*seen.others, *map(printable_line, lines)]),
        {
            "name": info.name,
            "kind": info.kind,
            "digest": info.digest,
            "entries_of_key": seen.entries,
            "reason": info.made.reason,
            "differs": list(differs),
            "is_valid": not problem,
            "problem_now": problem,
            "elsewhere": elsewhere,
            "paths_elsewhere": list(paths),
        },
    )


def _elsewhere(info: EntryInfo, manifest: Manifest, session: Session) -> tuple[str, tuple[str, ...]]:
    """Return a line about other machines that can use an entry, and the paths that they must have."""
    try:
        share = share_of(info, session)
        pack_entry(Path(info.path), manifest, share)
    except LoadError as problem:
        return f"other machines can't use it: {problem.message}", ()
    paths = unnamed_paths(share.key)
    if not paths:
        return "other machines with the same components can use it", ()
    return "other machines can use it only if they have the same paths:", paths


def _differences(info: EntryInfo, newest_first: Sequence[EntryInfo]) -> tuple[str, ...]:
    """Return the differences from the key of the previous entry, if this is the first entry of its key."""
    if info.made.reason != NOT_CACHED:
        return ()
    older = (other for other in newest_first if other.created_ns < info.created_ns)
    before = next((other for other in older if (other.kind, other.name) == (info.kind, info.name)), None)
    key, key_before = read_key(info.path), before and read_key(before.path)
    return key_before.explain(key) if key and key_before else ()


def verify(arguments: argparse.Namespace) -> Answer:
    """Hash every file of entries, and every file that they depend on.

    Raises
    ------
    ArgumentError
        No entry has the name.
    """
    cache = open_cache()
    entries = cache.entries()
    if arguments.name is not None:
        entries = cache.named(arguments.name, entries)
    known: dict[str, str] = {}
    checked = [(info, _audit(info, known)) for info in with_progress(entries, "verifying")]
    damaged = [(info, found.damaged) for info, found in checked if found.damaged]
    changed = [(info, found.changed) for info, found in checked if found.changed and not found.damaged]
    is_left = bool(damaged) and not arguments.remove
    if arguments.remove:
        cache.remove(info for info, _ in damaged)
    lines = [f"{_label(info)} is damaged: {', '.join(files)} in {info.path}" for info, files in damaged]
    for info, files in changed:
        more = f" and {len(files) - 1} more" if files[1:] else ""
        lines.append(f"{_label(info)} is out of date: {files[0]}{more} changed since it was built")
    end = ", remove them with --remove" if is_left else ", removed" if damaged else ""
    total = (
        f"{many(len(checked), 'entry', 'entries')}: {len(checked) - len(damaged) - len(changed)} as built, "
        f"{len(changed)} out of date, {len(damaged)} damaged{end}"
    )
    return Answer(
        "\n".join([*map(printable_line, lines), total]),
        {
            "entries": len(checked),
            "damaged": [{**entry_json(info), "files": list(files)} for info, files in damaged],
            "changed": [{**entry_json(info), "files": list(files)} for info, files in changed],
            "is_removed": bool(damaged) and not is_left,
        },
        FAILED if is_left else WORKS,
    )


def _label(info: EntryInfo) -> str:
    return f"{info.name or 'unknown'} {info.digest[:SHORT]}"


def _audit(info: EntryInfo, known: dict[str, str]) -> Audit:
    """Audit an entry; return no problem for an entry that is removed meanwhile."""
    try:
        manifest = manifest_of(info)
    except CacheError:
        return Audit(damaged=("manifest.json",) if Path(info.path).is_dir() else ())
    found = audit(info.path, manifest, known)
    key = read_key(info.path)
    if key is None or not key.digest == manifest.digest == info.digest:
        found = found._replace(damaged=("key.json", *found.damaged))
    return found if Path(info.path).is_dir() else Audit()
