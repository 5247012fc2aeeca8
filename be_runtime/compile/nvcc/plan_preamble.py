"""The beginning that all host sides of CUDA sources have in common, compiled once for a set of flags. Pure.

What cudafe++ hands to the host compiler is ``cuda_runtime.h`` and all it includes, 36,000 lines, and then the author's
text. g++ takes those lines from a precompiled header in a third of the time. The text is compared each time, so
whatever changes it, such as another header or macro, only costs the gain. A precompiled header that g++ does not accept
is read as text, with the same result: https://gcc.gnu.org/onlinedocs/gcc/Precompiled-Headers.html.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from be_runtime.compile.nvcc.plan_headers import preprocessing, probes, without_output
from be_runtime.compile.plan.build_plan import Edge, GeneratedFile, Tool, UnitBuild
from be_runtime.compile.plan.unit_files import OBJECTS, files_named

UNIT = files_named("be_preamble", "cuda")
"""The files of the empty source whose commands make the preamble."""

FILES = ("preamble.h", "preamble.h.gch", "pragmas.h", "size", "read.d")
"""Files of a preamble in `FOLDER`; not all of them exist if a command failed."""

FOLDER = f"{OBJECTS}/{UNIT.stem}"
_SCRIPT = f"{FOLDER}.sh"
_DONE = f"{FOLDER}.done"
DEPFILE = f"{FOLDER}/read.d"
MESSAGES = f"{FOLDER}/messages"
"""File with the messages of the preprocessors."""


def use_preamble(build: UnitBuild, script: str, folder: str) -> UnitBuild:
    """The same commands, the host compiler's with the beginning precompiled.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_preamble.sh``.
    folder : str
        Holds `FILES`.
    """
    whole, compilation = _translated(build), _the(build, "compile")
    used = compilation._replace(argv=("/bin/sh", script, folder, whole, *_without_input(compilation.argv, whole)))
    return build._replace(edges=tuple(used if edge is compilation else edge for edge in build.edges))


def make_preamble(phases: UnitBuild, dropped: Sequence[str]) -> UnitBuild:
    """The command that makes a preamble; it never fails, since a build does not need one.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of `UNIT`.
    dropped : sequence of str
        Flags to leave out: the author's include folders, which the preamble does not read.
    """
    edge = Edge(
        argv=("/bin/sh", _SCRIPT),
        inputs=(UNIT.source,),
        outputs=(_DONE,),
        description="compiling the preamble of CUDA sources",
        tool="make preamble",
    )
    source = GeneratedFile(path=UNIT.source, text="\n")
    script = GeneratedFile(path=_SCRIPT, text=preamble_text(phases, dropped))
    return phases._replace(edges=(edge,), files=(*phases.files, source, script))


def preamble_text(phases: UnitBuild, dropped: Sequence[str]) -> str:
    """The script that makes a preamble, which is all that decides it beside the toolchain."""
    whole = _translated(phases)
    compiler = _without_input(_the(phases, "compile").argv, whole)
    header, quoted = f"{FOLDER}/preamble.h", shlex.quote(whole)
    depfiles = shlex.join(edge.depfile or "" for edge in preprocessing(phases).values())
    lines = [
        f"mkdir -p {FOLDER} {shlex.quote(str(PurePath(whole).parent))}",
        "make() {",
        *(f"{_shell(argv, dropped)} 2>> {MESSAGES} &&" for argv in probes(phases, FOLDER)),
        f"cat {depfiles} > {DEPFILE} &&",
        f"{_shell(_the(phases, 'cudafe++').argv, dropped)} &&",
        # Not the first line, which names the source, nor the end, which includes what the device side made.
        f"sed -e 1d -e '/^# 1 \"{UNIT.stem}\\.[a-z0-9_.]*stub\\.c\"$/,$d' {quoted} | sed '$d' > {header} &&",
        f"sed -n -e '/^# [0-9]* \"/q' -e '/^#pragma GCC diagnostic ignored/p' {header} > {FOLDER}/pragmas.h &&",
        f"wc -c < {header} > {FOLDER}/size &&",
        f"{_shell(_without_output(compiler), dropped)} -x c++-header {header} -o {header}.gch",
        "}",
        f"make > /dev/null 2>&1 || rm -f {header}.gch",
        f": > {_DONE}",
    ]
    return "\n".join(lines) + "\n"


def _the(build: UnitBuild, tool: Tool) -> Edge:
    """The only command of a tool."""
    return next(edge for edge in build.edges if edge.tool == tool)


def _translated(build: UnitBuild) -> str:
    """Cudafe++'s output, which the host compiler reads."""
    return _the(build, "cudafe++").outputs[0]


def _without_input(argv: Sequence[str], source: str) -> tuple[str, ...]:
    """A compile command without its source and language, which may then be given anew."""
    pairs = zip(argv, ("", *argv[:-1]), strict=True)
    return tuple(part for part, before in pairs if part not in {source, "-x"} and before != "-x")


def _without_output(argv: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for part in without_output(argv) if part != "-S")


def _shell(argv: Sequence[str], dropped: Sequence[str]) -> str:
    return shlex.join(part for part in argv if part not in dropped)
