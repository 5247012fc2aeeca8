"""The command ``cache why``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from be_runtime.cache import Manifest
from be_runtime.cache.upkeep.entries import EntryInfo
from be_runtime.cache.validity.lookup import NOT_CACHED
from be_runtime.cli.answer import Answer
from be_runtime.cli.cache.opened import key_of, open_cache
from be_runtime.cli.cache.shared import share_of
from be_runtime.cli.cache.show_entry import as_a_load_sees
from be_runtime.cli.cache.text import ago, by, now
from be_runtime.load.session import Session
from be_runtime.sharing.archive import ArchiveError
from be_runtime.sharing.roots import unnamed_paths
from be_runtime.sharing.travelling_entry import pack_entry
from be_toolchain.terminal import printable_line


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
