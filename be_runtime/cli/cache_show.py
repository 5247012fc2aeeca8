"""The command ``cache verify``."""

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
    key_of,
    many,
    now,
    open_cache,
    share_of,
    stamp,
    with_progress,
)
from be_runtime.cli.main import FAILED, Answer, size_text
from be_runtime.errors import CacheError
from be_runtime.load.registry import Session
from be_runtime.store.archive import ArchiveError
from be_runtime.store.eviction import EntryInfo, read_entry
from be_runtime.store.examine import Audit, audit, examine
from be_runtime.store.keys import CacheKey
from be_runtime.store.lookup import NOT_CACHED
from be_runtime.store.manifest import Manifest, absent_paths
from be_runtime.store.travelling import pack_entry, unnamed_paths
from be_toolchain.terminal import WORKS, printable_line, table

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


def why(arguments: argparse.Namespace) -> Answer:
    """Say why the valid entry of a name, or the newest, was built, and whether it is valid now."""
    cache = open_cache()
    seen = as_a_load_sees(cache, cache.chosen(arguments.name))
    info, manifest, problem, _ = seen
    differs = _differences(info, cache.entries(everything=True))
    elsewhere, paths = _elsewhere(info, manifest, cache.session)
    came = f"{'fetched' if info.made.source else 'built'} {ago(info.created_ns / 1e9, now())}"
    lines = [
        *seen.others,
        printable_line(f"{info.name} ({info.kind}) was {came} by {by(info.made)},"),
        printable_line(f"since {info.made.reason or 'nothing is known'}"),
    ]
    if differs:
        lines += ["what differs from the entry before it:", *(f"  {printable_line(line)}" for line in differs)]
    elif info.made.reason == NOT_CACHED:
        lines.append("no entry before it is left to compare with")
    lines.append(printable_line(f"the next load builds again: {problem}" if problem else "it is valid now"))
    lines += [printable_line(elsewhere), *(f"  {printable_line(line)}" for line in paths)]
    return Answer(
        "\n".join(lines),
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
    """Say which other machines can use an entry, and the paths that they need to have."""
    try:
        share = share_of(info, session)
        pack_entry(Path(info.path), manifest, share)
    except (ArchiveError, OSError) as problem:
        return f"other machines can't use it: it {problem}", ()
    paths = unnamed_paths(share.key)
    if not paths:
        return "other machines with the same components can use it", ()
    return "other machines can use it only if they have the same paths:", paths


def _differences(info: EntryInfo, newest_first: Sequence[EntryInfo]) -> tuple[str, ...]:
    """Compare the key with that of the entry before it, if there was no entry of this key."""
    if info.made.reason != NOT_CACHED:
        return ()
    older = [other for other in newest_first if other.created_ns < info.created_ns]
    before = next((other for other in older if (other.kind, other.name) == (info.kind, info.name)), None)
    keys = key_of(info), before and key_of(before)
    return keys[1].explain(keys[0]) if keys[0] and keys[1] else ()


class _Checked(NamedTuple):
    """An entry and what was found out about it."""

    info: EntryInfo
    found: Audit


def verify(arguments: argparse.Namespace) -> Answer:
    """Hash every file of entries, and of what they were made from.

    Raises
    ------
    ArgumentError
        There is nothing of the name.
    """
    cache = open_cache()
    entries = cache.entries(everything=True)
    if arguments.name is not None:
        entries = cache.named(arguments.name, entries)
    known: dict[str, str] = {}
    checked = [_Checked(info, _audit(info, known)) for info in with_progress(entries, "verifying")]
    damaged = [each for each in checked if each.found.damaged]
    changed = [each for each in checked if each.found.changed and not each.found.damaged]
    is_left = bool(damaged) and not arguments.remove
    if arguments.remove:
        cache.remove(each.info for each in damaged)
    return Answer(
        "\n".join((*map(_line, (*damaged, *changed)), _total(checked, damaged, changed, is_left=is_left))),
        {
            "entries": len(checked),
            "damaged": [_data_verify_entries(each) for each in damaged],
            "changed": [_data_verify_entries(each) for each in changed],
            "is_removed": bool(damaged) and not is_left,
        },
        FAILED if is_left else WORKS,
    )


def _audit(info: EntryInfo, known: dict[str, str]) -> Audit:
    try:
        manifest = read_entry(info.path)[0]
    except (OSError, ValueError):
        return Audit(damaged=("manifest.json",) if Path(info.path).is_dir() else ())
    found = audit(info.path, manifest, known)
    key = key_of(info)
    if key is None or not key.digest == manifest.digest == info.digest:
        found = found._replace(damaged=("key.json", *found.damaged))
    return found if Path(info.path).is_dir() else Audit()  # removed meanwhile


def _line(each: _Checked) -> str:
    info, found = each
    name = f"{info.name or 'unknown'} {info.digest[:SHORT]}"
    if found.damaged:
        return printable_line(f"{name} is damaged: {', '.join(found.damaged)} in {info.path}")
    more = f" and {len(found.changed) - 1} more" if found.changed[1:] else ""
    return printable_line(f"{name} is out of date: {found.changed[0]}{more} changed since it was built")


def _total(checked: list[_Checked], damaged: list[_Checked], changed: list[_Checked], *, is_left: bool) -> str:
    intact = len(checked) - len(damaged) - len(changed)
    end = ", remove them with --remove" if is_left else ", removed" if damaged else ""
    return (
        f"{many(len(checked), 'entry', 'entries')}: {intact} as built, {len(changed)} out of date, "
        f"{len(damaged)} damaged{end}"
    )


def _data_verify_entries(each: _Checked) -> dict[str, object]:
    return {**entry_json(each.info), "files": list(each.found.damaged or each.found.changed)}
