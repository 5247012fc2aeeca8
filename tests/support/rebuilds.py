"""What tests of rebuilds share: an edit, and which sources a load compiled."""

from __future__ import annotations

import re
from pathlib import Path

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
