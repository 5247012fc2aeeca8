"""How an author's files are compiled, for editors: the format of ``compile_commands.json``.

The format is clang's: https://clang.llvm.org/docs/JSONCompilationDatabase.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

FILE = "compile_commands.json"
"""The file's name, in a cache entry and in a project."""


def render_commands(commands: Mapping[Path, Sequence[str]]) -> str:
    """A compilation database.

    Parameters
    ----------
    commands : mapping of Path to sequence of str
        For each source, the compiler and its flags, without files.
    """
    entries = [
        {"directory": str(path.parent), "file": str(path), "arguments": [*command, "-c", str(path)]}
        for path, command in commands.items()
    ]
    return json.dumps(entries, indent=1) + "\n"


def merge_commands(databases: Iterable[str]) -> str:
    """One database of several; of a file that is in more than one, the first counts, and files that are gone don't.

    Raises
    ------
    ValueError
        One is damaged.
    """
    merged: dict[str, object] = {}
    for text in databases:
        for entry in json.loads(text):
            if Path(entry["file"]).exists():
                merged.setdefault(entry["file"], entry)
    return json.dumps([merged[file] for file in sorted(merged)], indent=1) + "\n"
