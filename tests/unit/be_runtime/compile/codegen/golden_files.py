"""Golden files: a text as a whole, compared with the one that was looked at and kept."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import be_runtime
from be_runtime.compile.plan import Edge
from be_runtime.errors import BeRuntimeError

UPDATE = "BE_UPDATE_GOLDEN"
OURS = str(Path(be_runtime.__file__).parent)


def check_golden(path: Path, text: str) -> None:
    """Compare a text with a file; with ``BE_UPDATE_GOLDEN=1`` write that file instead."""
    if os.environ.get(UPDATE):
        path.write_text(text)
    assert text == path.read_text(), (
        f"the text differs from {path.name}. If that is meant, run the test with {UPDATE}=1, and look at the difference"
    )


def shell_text(argv: Iterable[str]) -> str:
    """A command as a shell reads it, wherever this package lies."""
    return shlex.join(word.replace(OURS, "OURS") for word in argv)


def edges_text(edges: Iterable[Edge]) -> str:
    """Two lines a command: its kind, what it reads and writes, what it says, where it lists headers; its arguments."""
    return "".join(
        f"{edge.tool}: {', '.join(edge.inputs)} -> {', '.join(edge.outputs)} ({edge.description}) {edge.depfile or ''}"
        f"\n  {shell_text(edge.argv)}\n".replace(OURS, "OURS")
        for edge in edges
    )


def answer(function: Callable[..., object], *arguments: Any, **options: Any) -> str:
    """What a call gives as text, or the whole of the error that it raises, on one line."""
    try:
        return str(function(*arguments, **options))
    except BeRuntimeError as error:
        return f"{type(error).__name__}: {error}".partition("\ncauses and remedies: ")[0].replace("\n", "; ")
