"""Compilation databases, ``compile_commands.json``, which tell editors the commands for an author's files.

The format is clang's: https://clang.llvm.org/docs/JSONCompilationDatabase.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FILE = "compile_commands.json"
"""Name of the file, in a cache entry and in a project."""


def render_commands(commands: Mapping[Path, Sequence[str]]) -> str:
    """Write a compilation database.

    Parameters
    ----------
    commands : mapping of Path to sequence of str
        Compiler and flags for each source, without files.
    """
    entries = [
        {"directory": str(path.parent), "file": str(path), "arguments": [*command, "-c", str(path)]}
        for path, command in commands.items()
    ]
    return json.dumps(entries, indent=1) + "\n"


def merge_commands(databases: Iterable[str]) -> str:
    """Merge several databases into one; the first entry for a file counts.

    Missing files are left out, and so is what is damaged.
    """
    merged: dict[str, object] = {}
    for text in databases:
        for file, entry in _entries(text):
            if _exists(file):
                merged.setdefault(file, entry)
    return json.dumps([merged[file] for file in sorted(merged)], indent=1) + "\n"


def _entries(text: str) -> list[tuple[str, object]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return []
    every = rows if isinstance(rows, list) else []
    return [(row["file"], row) for row in every if isinstance(row, dict) and isinstance(row.get("file"), str)]


def _exists(file: str) -> bool:
    try:
        return Path(file).exists()
    except (OSError, ValueError):  # a name that no file can have
        return False
