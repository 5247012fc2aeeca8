"""The command ``cache verify``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache.upkeep.entries import EntryInfo, read_entry
from be_runtime.cache.validity.audit import Audit, audit
from be_runtime.cli.answer import FAILED, Answer
from be_runtime.cli.cache.opened import key_of, open_cache
from be_runtime.cli.cache.text import SHORT, entry_json, many, with_progress
from be_toolchain.report.exit_codes import WORKS
from be_toolchain.terminal import printable_line


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
            "damaged": [_data(each) for each in damaged],
            "changed": [_data(each) for each in changed],
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


def _data(each: _Checked) -> dict[str, object]:
    return {**entry_json(each.info), "files": list(each.found.damaged or each.found.changed)}
