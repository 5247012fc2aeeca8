"""What tests of what a build looks at share: cases, and the edits that they are made of."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.support.runtime import script

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


def thin_archive(name: str) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        member = (root / name).with_name("member.o")
        compile_value(member, 1)
        subprocess.run(["ar", "rcsT", str(root / name), str(member)], check=True, timeout=60)

    return make


def objects(one: str, two: str = "") -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (lambda root: compile_value(root / one, 1)), (lambda root: compile_value(root / (two or one), 2))


def archives(name: str) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (lambda root: archive(root / name, 1)), (lambda root: archive(root / name, 2))


def versions(one: str, two: str) -> tuple[Callable[[Path], object], Callable[[Path], object]]:
    return (
        (lambda root: compile_value(root / one, 1, "-shared")),
        (lambda root: compile_value(root / two, 2, "-shared")),
    )


def both(*changes: dict[str, str | None] | Callable[[Path], object]) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        for each in changes:
            apply(each, root)

    return change


def wrapper(name: str, value: int) -> Callable[[Path], object]:
    """A compiler that defines what the answer is."""
    return lambda root: script(root / name, f'exec {REAL_CXX} "-DANSWER={value}" "$@"')


def assembler(name: str) -> Callable[[Path], object]:
    return lambda root: script(root / name, f'exec {shutil.which("as")} --defsym OTHER=1 "$@"')


def linker(folder: str) -> Callable[[Path], object]:
    """Linkers of all names that link another object than they are told to."""

    def make(root: Path) -> None:
        (root / folder).mkdir(exist_ok=True)
        for name in ("ld", "ld.gold", "ld.bfd", "ld.lld"):
            real = shutil.which(name)
            if real is not None:
                line = f'for each; do shift; case $each in *one.o) each={root}/two.o;; esac; set -- "$@" "$each"; done'
                script(root / folder / name, line, f'exec {real} "$@"')

    return make


def loaded(folder: str) -> Callable[[Path], object]:
    """A library that is loaded into the compiler and has it look for headers in a folder."""

    def make(root: Path) -> None:
        text = f'setenv("CPATH", "{root}/{folder}", 1);'
        (root / "l.c").write_text(f"#include <stdlib.h>\n__attribute__((constructor)) void f(void) {{ {text} }}\n")
        command = ["cc", "-fPIC", "-shared", str(root / "l.c"), "-o", str(root / "l.so")]
        subprocess.run(command, check=True, timeout=60)

    return make


def swap(first: str, second: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / first).rename(root / "aside")
        (root / second).rename(root / first)
        (root / "aside").rename(root / second)

    return change


def link(name: str, target: str) -> Callable[[Path], object]:
    def change(root: Path) -> None:
        (root / name).unlink(missing_ok=True)
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)

    return change


INCLUDES = '#include "a.h"'
MAYBE = '#if __has_include("a.h")\n#include "a.h"\n#endif'
LINKED = 'extern "C" int linked(void);\n#define ANSWER linked()'
ASSEMBLED = (
    'extern "C" int assembled; asm(".data\\n.globl assembled\\n.hidden assembled\\nassembled:\\n{}\\n.text");\n'
    "#define ANSWER assembled"
)
BY_DEFSYM = ASSEMBLED.replace("{}", ".ifdef OTHER\\n.long 2\\n.else\\n.long 1\\n.endif")


def filled(text: str, root: Path) -> str:
    return text.replace("{}", str(root))
