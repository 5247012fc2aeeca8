"""Read the files that sources include from their author's folders."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from be_runtime.request.options import Unit
from be_runtime.signature import SourceText
from be_toolchain.machine.trust import LARGE, read_regular

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^">\n]+)[">]', re.MULTILINE)
_LARGEST = 1 << 19
"""Limit for the characters of the files that are read for one unit."""


def included_texts(unit: Unit, folders: Sequence[Path]) -> tuple[SourceText, ...]:
    """Read the files that a unit includes from its own folder or the given folders, and the files that these include.

    A text is named as in the first ``#include`` of its file, so that no name has a folder of this machine. A file that
    can't be read, or that exceeds the total limit, is left out.
    """
    found: dict[Path, SourceText] = {}
    own = [] if unit.path is None else [unit.path.parent]
    texts, room = [(own, source.text) for source in unit.sources], _LARGEST
    for beside, text in texts:
        for name in _INCLUDE.findall(text):
            try:
                path = next((each for folder in (*beside, *folders) if (each := Path(folder, name)).is_file()), None)
                if path is None or (path := path.resolve()) in found:
                    continue
                read = read_regular(path, LARGE).decode("utf-8", "surrogateescape")
            except (OSError, ValueError):
                continue
            room -= len(read)
            if room >= 0:
                found[path] = SourceText(name=name, text=read)
                texts.append(([path.parent], read))
    return tuple(found.values())
