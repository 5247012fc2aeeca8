"""The preamble: the common beginning of all CUDA sources, precompiled and cached for the second build with some flags.

A kernel that is built once gains nothing from the preamble, and making it takes as much processor time as a small
kernel. A second build with the same flags is the sign of an edit loop, and a folder of several files will have one.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

from be_runtime.compile.execute import Runner
from be_runtime.compile.inputs import LookedAt, Observer, read_from_outside
from be_runtime.compile.nvcc_headers import (
    FOLDER,
    MESSAGES,
    UNIT,
    KeptHeaders,
    preprocessing,
    probes,
    use_kept_headers,
    without_output,
)
from be_runtime.compile.plan import BuildOrder, Edge, GeneratedFile, Tool, UnitBuild
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR, by_name
from be_runtime.store.cache import BuildOutput, Cache, Entry
from be_runtime.store.examine import proven_records
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.store.manifest import FileRecord

_FILES = ("preamble.h", "preamble.h.gch", "pragmas.h", "size", "read.d")
"""Files of a preamble in `FOLDER`; some of them are missing if a command failed."""
_SCRIPT = f"{FOLDER}.sh"
_DONE = f"{FOLDER}.done"
_DEPFILE = f"{FOLDER}/read.d"

MANY_FILES = 4
"""From this number of sources on, the first build makes the preamble, which costs little in comparison."""


def use_preamble(build: UnitBuild, script: str, folder: str) -> UnitBuild:
    """Return the commands of a build, with a host compiler that takes the beginning precompiled.

    Parameters
    ----------
    build : UnitBuild
        Nvcc's phases of one source.
    script : str
        The path of ``with_preamble.sh``.
    folder : str
        Folder of `_FILES`.
    """
    whole, compilation = _the(build, "cudafe++").outputs[0], _the(build, "compile")
    used = compilation._replace(argv=("/bin/sh", script, folder, whole, *_without_input(compilation.argv, whole)))
    return build._replace(edges=tuple(used if edge is compilation else edge for edge in build.edges))


def make_preamble(phases: UnitBuild, dropped: Sequence[str]) -> UnitBuild:
    """Return the command that makes a preamble. The command never fails, since a build can do without a preamble.

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
    """Return the script that makes a preamble; nothing else decides the preamble, apart from the toolchain."""
    whole = _the(phases, "cudafe++").outputs[0]  # which the host compiler reads
    compiler = [part for part in without_output(_without_input(_the(phases, "compile").argv, whole)) if part != "-S"]
    header, quoted = f"{FOLDER}/preamble.h", shlex.quote(whole)
    depfiles = shlex.join(edge.depfile or "" for edge in preprocessing(phases).values())
    lines = [
        f"mkdir -p {FOLDER} {shlex.quote(str(PurePath(whole).parent))}",
        "make() {",
        *(f"{_shell(argv, dropped)} 2>> {MESSAGES} &&" for argv in probes(phases)),
        f"cat {depfiles} > {_DEPFILE} &&",
        f"{_shell(_the(phases, 'cudafe++').argv, dropped)} &&",
        # Not the first line, which names the source, nor the end, which includes what the device side made.
        f"sed -e 1d -e '/^# 1 \"{UNIT.stem}\\.[a-z0-9_.]*stub\\.c\"$/,$d' {quoted} | sed '$d' > {header} &&",
        f"sed -n -e '/^# [0-9]* \"/q' -e '/^#pragma GCC diagnostic ignored/p' {header} > {FOLDER}/pragmas.h &&",
        f"wc -c < {header} > {FOLDER}/size &&",
        f"{_shell(compiler, dropped)} -x c++-header {header} -o {header}.gch",
        "}",
        f"make > /dev/null 2>&1 || rm -f {header}.gch",
        f": > {_DONE}",
    ]
    return "\n".join(lines) + "\n"


def _the(build: UnitBuild, tool: Tool) -> Edge:
    """Return the only command of a tool."""
    return next(edge for edge in build.edges if edge.tool == tool)


def _without_input(argv: Sequence[str], source: str) -> tuple[str, ...]:
    """Return a compile command without its source and language, for others in their place."""
    pairs = zip(argv, ("", *argv[:-1]), strict=True)
    return tuple(part for part, before in pairs if part not in {source, "-x"} and before != "-x")


def _shell(argv: Sequence[str], dropped: Sequence[str]) -> str:
    return shlex.join(part for part in argv if part not in dropped)


class Preamble(NamedTuple):
    """The preamble for a build: its cache entry, or the commands that make one.

    Parameters
    ----------
    key : CacheKey
    entry : Entry or None
        None if the cache has none.
    phases : tuple of str
        The phases for which the entry has the text and macros of the headers.
    making : UnitBuild or None
        The commands that make the preamble beside the module; None if it exists or is not worth it.
    headers : KeptHeaders
        Writer of the text and macros.
    """

    key: CacheKey
    entry: Entry | None
    phases: tuple[str, ...]
    making: UnitBuild | None
    headers: KeptHeaders

    def use(self, build: UnitBuild) -> UnitBuild:
        """Return a unit's commands with the preamble, if there is one."""
        if self.entry is None or not build.edges:
            return build
        folder = str(self.entry.path)
        precompiled = use_preamble(build, str(NATIVE_DIR / "with_preamble.sh"), folder)
        return use_kept_headers(precompiled, str(NATIVE_DIR / "with_kept_headers.sh"), folder, self.phases)

    @property
    def looked_at(self) -> LookedAt:
        """Return the inputs that the preamble adds to a source: headers, and paths at which others would come first.

        Only the author's folders are searched before ours, so the absent paths in ours have every name to look for.
        """
        if self.entry is None:
            return LookedAt()
        made_from, own = LookedAt.of(self.entry.manifest), f"{INCLUDE_DIR}/"
        names = [path.removeprefix(own) for path in made_from.absent if path.startswith(own)]
        authors = (f"{folder}/{name}" for folder in self.headers.authors for name in names)
        return made_from._replace(absent=(*made_from.absent, *authors))

    @property
    def records(self) -> Mapping[str, FileRecord]:
        """Return the records of the preamble's inputs, by path."""
        return {} if self.entry is None else proven_records(self.entry.manifest)

    def keep(self, toolchain_store: Cache, runner: Runner, observer: Observer) -> None:
        """Keep the files that the commands made, after further commands in the runner's folder."""
        staging = runner.folder
        if self.making is None or not all((staging / FOLDER / name).is_file() for name in _FILES):
            return
        read, making = read_from_outside((_DEPFILE,), staging), observer.looked_at(self.making.edges)

        def collect(target: Path) -> BuildOutput:
            written, nowhere = self.headers.write(runner, read)
            listed = LookedAt(read=tuple(map(str, read)), absent=tuple(map(str, nowhere)))
            looked_at = LookedAt.merged((listed, making))
            for name in (*_FILES, *written):
                shutil.move(staging / FOLDER / name, target / name)
            return BuildOutput((*_FILES, *written), *looked_at)

        toolchain_store.keep(self.key, collect)


def find_preamble(phases: UnitBuild, order: BuildOrder, *, is_worth_it: bool) -> Preamble:
    """Find the preamble for nvcc's flags, or plan the making of one if that is worth it.

    Parameters
    ----------
    phases : UnitBuild
        Nvcc's phases of `UNIT`.
    order : BuildOrder
        An order whose toolkit has an nvcc.
    is_worth_it : bool
    """
    headers = KeptHeaders.of(preprocessing(phases), order)
    dropped = [f"-I{path}" for path in order.request.compile.include_paths]
    key = make_key(
        "preamble",
        ("name", UNIT.stem),
        ("commands", [*map(by_name, shlex.split(preamble_text(phases, dropped)))]),
        ("library_path", phases.library_path),
        ("toolchain", order.toolchain.fingerprint),
    )
    entry = order.toolchain_store.get(key)
    return Preamble(
        key=key,
        entry=entry,
        phases=() if entry is None else headers.usable(entry),
        making=make_preamble(phases, dropped) if entry is None and is_worth_it else None,
        headers=headers,
    )
