"""What tests of what a build looks at share: cases, and the edits that they are made of."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ANSWERING = """
#include "brainevent/common.h"
{text}
#ifndef ANSWER
#define ANSWER 1
#endif
extern "C" __attribute__((visibility("default"))) int answer() {{ return ANSWER; }}
"""
"""Begins a source: what it includes is the text, and ``answer`` gives what that defines."""

REAL_CXX = shutil.which("g++") or "c++"
ONE, TWO = "#define ANSWER 1\n", "#define ANSWER 2\n"


class Case(NamedTuple):
    """An edit that changes what a build makes.

    Parameters
    ----------
    text : str
        Of the source, before its function ``answer``; ``{}`` is the project's folder.
    before, after : dict of str to str, or callable
        Files to write, by name; None removes one.
    cflags, ldflags, includes : tuple of str
        Options of the load.
    environ : dict of str to str
    """

    text: str
    before: dict[str, str | None] | Callable[[Path], object]
    after: dict[str, str | None] | Callable[[Path], object]
    cflags: tuple[str, ...] = ()
    ldflags: tuple[str, ...] = ()
    environ: dict[str, str] = {}  # noqa: RUF012 - never changed
    includes: tuple[str, ...] = ()


def apply(change: dict[str, str | None] | Callable[[Path], object], root: Path) -> None:
    if callable(change):
        change(root)
        return
    for name, text in change.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            path.unlink()
        else:
            path.write_text(filled(text, root))


def compile_value(path: Path, value: int, *flags: str) -> None:
    """An object, or with ``-shared`` a library, that defines ``linked``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = path.with_suffix(".c")
    source.write_text(f"int linked(void) {{ return {value}; }}\n")
    kind = flags or ("-c",)
    subprocess.run(["cc", "-fPIC", *kind, str(source), "-o", str(path)], check=True, timeout=60)


def archive(path: Path, value: int) -> None:
    compile_value(path.with_suffix(".o"), value)
    path.unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", str(path), str(path.with_suffix(".o"))], check=True, timeout=60)


def archives(name: str) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (lambda root: archive(root / name, 1)), (lambda root: archive(root / name, 2))


def both(*changes: dict[str, str | None] | Callable[[Path], object]) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        for each in changes:
            apply(each, root)

    return change


INCLUDES = '#include "a.h"'
MAYBE = '#if __has_include("a.h")\n#include "a.h"\n#endif'
LINKED = 'extern "C" int linked(void);\n#define ANSWER linked()'


def filled(text: str, root: Path) -> str:
    return text.replace("{}", str(root))
