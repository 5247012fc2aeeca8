"""What tests of rebuilds share: edits, which sources a load compiled, and what an edit must cost."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from be_runtime import CompiledModule

TICK_S = 0.02
"""A file system's clock may tick this slowly; an edit in the tick in which a build begins is compiled twice."""


def compiled(module: CompiledModule) -> set[str]:
    """The author's files that were compiled for a module, whatever the phases."""
    log = (module.path.parent / "build.log").read_text()
    return set(re.findall(r"^# compiling (\w+\.(?:cc|cu))\b", log, re.MULTILINE))


def append(path: Path) -> None:
    """Edit a file so that it means the same."""
    with path.open("a") as file:
        file.write("// edited\n")


class Edit(NamedTuple):
    """A change between two loads, by an edit, options or variables, and the files that it has compiled again."""

    change: Callable[[Path], object]
    options: Mapping[str, Any]
    environ: Mapping[str, str]
    expected: Collection[str]


def load_twice(
    load: Callable[..., CompiledModule],
    folder: Path,
    edit: Edit,
    every: Collection[str],
    monkeypatch: pytest.MonkeyPatch,
) -> CompiledModule:
    """Load a folder, change it and load it again, checking what each load compiles; the second module."""
    first = load(folder)
    assert compiled(first) == every
    edit.change(folder)
    time.sleep(TICK_S)
    for name, value in edit.environ.items():
        monkeypatch.setenv(name, value)
    second = load(folder, **edit.options)
    assert second.path != first.path
    assert compiled(second) == edit.expected
    return second
