"""The objects of a folder's files, told apart before they are linked: `symbols` says how."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile import flags
from be_runtime.compile.codegen import (
    CHECKED,
    Binding,
    render_include,
    render_inline_source,
    render_named_types,
    render_unit,
)
from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.execute import find_objcopy
from be_runtime.compile.flags import LinkCommand
from be_runtime.compile.inputs import LookedAt, Observer
from be_runtime.compile.plan import (
    OBJECTS,
    BuildPlan,
    Edge,
    GeneratedFile,
    UnitBuild,
    compile_edge,
    files_named,
    link_edge,
    unit_files,
)
from be_runtime.errors import BuildError
from be_runtime.inspection import symbols
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR, by_name
from be_runtime.request.options import BuildRequest, Unit
from be_runtime.request.tools import Tools
from be_runtime.store.cache import BuildOutput, Recorded, Store
from be_runtime.store.examine import proven_records
from be_runtime.store.keys import CacheKey, make_key
from be_runtime.store.manifest import FileRecord
from be_toolchain import Toolchain
from be_toolchain.machine.system import System

_STB_GLOBAL, _STB_WEAK = 1, 2
_KERNEL_HANDLE = b"__device_stub__"
"""Part of the name of a kernel's host-side symbol in clang's objects."""


class Definitions(NamedTuple):
    """Names that an object defines.

    Parameters
    ----------
    strong : frozenset of str
        Names with global binding: a second definition is a linker error.
    kernels : frozenset of str
        Weak names that stand for a kernel of this object.
    """

    strong: frozenset[str] = frozenset()
    kernels: frozenset[str] = frozenset()


def definitions(image: bytes) -> Definitions:
    """Return the names that no two objects may share; other weak and unique names may repeat.

    Parameters
    ----------
    image : bytes
        A relocatable ELF-64 little-endian file. Any other file, such as LLVM bitcode, has no such names.
    """
    defined = {(symbol.binding, symbol.name) for symbol in symbols(image) if symbol.is_defined}
    return Definitions(
        strong=frozenset(os.fsdecode(name) for binding, name in defined if binding == _STB_GLOBAL),
        kernels=frozenset(
            os.fsdecode(name) for binding, name in defined if binding == _STB_WEAK and _KERNEL_HANDLE in name
        ),
    )


def separating_options(objects: Mapping[str, Definitions]) -> dict[str, list[str]]:
    """Return objcopy's options that make shared names private, for each object that has some.

    Examples
    --------
    >>> one, two = Definitions(strong=frozenset({"f", "g"})), Definitions(strong=frozenset({"f"}))
    >>> separating_options({"a.o": one, "b.o": two})
    {'a.o': ['--localize-symbol=f'], 'b.o': ['--localize-symbol=f']}
    """
    strong = _repeated(found.strong for found in objects.values())
    kernels = _repeated(found.kernels for found in objects.values())
    options = {
        path: [
            *(f"--localize-symbol={name}" for name in sorted(found.strong & strong)),
            *(f"--redefine-sym={name}={name}.{number}" for name in sorted(found.kernels & kernels)),
        ]
        for number, (path, found) in enumerate(objects.items())
    }
    return {path: each for path, each in options.items() if each}


def _repeated(tables: Iterable[frozenset[str]]) -> frozenset[str]:
    """Return the names that more than one object defines."""
    counts = Counter(name for table in tables for name in table)
    return frozenset(name for name, count in counts.items() if count > 1)


HANDLER = files_named("be_handler", "cpp")._replace(source=str(NATIVE_DIR / "handler.cc"))
_DEVICE_LINK = f"{OBJECTS}/be_device_link.o"


def plan_units(
    request: BuildRequest,
    bindings: Mapping[str, Sequence[Binding]],
    command: Sequence[str],
    phases: Mapping[str, UnitBuild] | None = None,
) -> dict[str, UnitBuild]:
    """Plan the commands that compile each of the author's units.

    Parameters
    ----------
    request : BuildRequest
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    command : sequence of str
        From `compile_command`.
    phases : mapping of str to UnitBuild, optional
        The phases of the compiler, by the unit's stem; a unit without phases is compiled by one command.

    Returns
    -------
    dict of str to UnitBuild
        By the unit's stem.
    """
    planned = {}
    for unit in request.units:
        compiled = (phases or {}).get(unit.stem) or _compile_unit(request, unit, command)
        source = GeneratedFile(compiled.unit.source, _source_text(request, unit, bindings[unit.stem]))
        planned[unit.stem] = compiled._replace(files=(source, *compiled.files), command=tuple(command))
    return planned


def plan_build(
    request: BuildRequest,
    units: Mapping[str, UnitBuild],
    tools: Tools,
    link: flags.LinkCommand,
    handler: str | None = None,
    aside: UnitBuild | None = None,
) -> BuildPlan:
    """Plan the whole build of a module.

    Parameters
    ----------
    request : BuildRequest
    units : mapping of str to UnitBuild
        From `plan_units`; the object of a unit without commands is already in place.
    tools : Tools
    link : LinkCommand
        From `flags.link`.
    handler : str, optional
        The path of the compiled handler; by default, the build compiles `HANDLER`.
    aside : UnitBuild, optional
        Further commands, to run beside the compilers.
    """
    builds = [*units.values(), *((aside,) if aside is not None else ())]
    files = [file for build in builds for file in build.files]
    edges = _in_waves([units[unit.stem] for unit in _longest_first(request.units)])
    edges += aside.edges if aside is not None else ()
    objects = [build.unit.object for build in units.values()]
    if handler is None:
        edges.append(handler_edge(tools))
    objects.append(handler or HANDLER.object)
    device_link = cuda_compiler(tools).device_link(request.compile) if request.language == "cuda" else None
    if device_link is not None:
        edges.append(_device_link_edge(device_link, objects))
        objects.append(_DEVICE_LINK)
    library_path = next((build.library_path for build in units.values() if build.library_path), "")
    made_aside = tuple(name for edge in aside.edges for name in edge.outputs) if aside is not None else ()
    return BuildPlan(tuple(files), tuple(edges), link_edge(link, objects), library_path, made_aside)


def _longest_first(units: Sequence[Unit]) -> list[Unit]:
    """Sort units by the length of their sources: the unit that takes longest should not start last."""
    return sorted(units, key=lambda unit: -sum(len(source.text) for source in unit.sources))


def _in_waves(builds: Sequence[UnitBuild]) -> list[Edge]:
    """Order commands in waves: the first command of every unit, then the second ones, and so on.

    If there are more commands than processors, ninja prefers commands with the most commands after them, and among
    those the first in its file. In the order of units, the last unit would only start when the others are nearly done.
    """
    waves = zip_longest(*(build.edges for build in builds))
    return [edge for wave in waves for edge in wave if edge is not None]


def handler_edge(tools: Tools) -> Edge:
    """Return the command that compiles the handler, which is the same in all modules."""
    return compile_edge(
        flags.handler_compile(tools.cxx, [INCLUDE_DIR, tools.ffi_include]), HANDLER, "compiling the XLA handler"
    )


def with_compiler_launcher(plan: BuildPlan, launcher: Sequence[str]) -> BuildPlan:
    """Put a program such as ccache before every command that compiles."""
    edges = (edge._replace(argv=(*launcher, *edge.argv)) if edge.tool == "compile" else edge for edge in plan.edges)
    return plan._replace(edges=tuple(edges))


def with_private_names(
    plan: BuildPlan, objcopy: str, private: Mapping[str, Sequence[str]], link: flags.LinkCommand
) -> BuildPlan:
    """Add commands that edit objects before they are linked.

    Parameters
    ----------
    objcopy : str
        The program that edits objects.
    private : mapping of str to sequence of str
        Options of objcopy for each object.
    """
    edges, objects = list(plan.edges), list(plan.objects)
    for source, options in private.items():
        target = source.removesuffix(".o") + ".private.o"
        edges.append(
            Edge(
                argv=(objcopy, *options, source, target),
                inputs=(source,),
                outputs=(target,),
                description=f"separating the names of {Path(source).stem}",
                tool="separate",
            )
        )
        objects[objects.index(source)] = target
    return plan._replace(edges=tuple(edges), link=link_edge(link, objects))


def _source_text(request: BuildRequest, unit: Unit, bindings: Sequence[Binding]) -> str:
    body = render_inline_source(unit.sources) if unit.path is None else render_include(str(unit.path))
    checked = request.compile.checked
    types = render_named_types(unit.sources) + (CHECKED if checked else "")
    return types + render_unit(body, request.name, bindings, language=request.language, checked=checked)


def compile_command(request: BuildRequest, tools: Tools) -> tuple[str, ...]:
    """Return the command that compiles the author's units, without files."""
    options = request.compile
    includes = flags.include_flags(
        first=[*options.include_paths, INCLUDE_DIR], last=[tools.ffi_include, *tools.library_includes]
    )
    if request.language == "cpp":
        texts = [source.text for unit in request.units for source in unit.sources]
        closed = flags.whole_program(tools.cxx, options.ldflags, texts) if len(request.units) == 1 else ()
        return flags.host_compile(tools.cxx, options, includes) + closed
    return cuda_compiler(tools).command(options, includes)


def _compile_unit(request: BuildRequest, unit: Unit, command: Sequence[str]) -> UnitBuild:
    """Plan one command that compiles one of the author's units as a whole."""
    files = unit_files(unit.stem, request.language)
    shown = " ".join(unit.path.name.split()) if unit.path is not None else request.name
    return UnitBuild(unit=files, edges=(compile_edge(command, files, f"compiling {shown}"),))


def _device_link_edge(command: Sequence[str], objects: Sequence[str]) -> Edge:
    return Edge(
        argv=(*command, *objects, "-o", _DEVICE_LINK),
        inputs=tuple(objects),
        outputs=(_DEVICE_LINK,),
        description="linking device code",
        tool="device link",
    )


_OBJECT = "handler.o"


class Handler(NamedTuple):
    """A compiled handler.

    Parameters
    ----------
    path : str
    records : mapping of str to FileRecord
        What is known of the files of its toolchain, by path.
    """

    path: str
    records: Mapping[str, FileRecord]


def find(tools: Tools, toolchain: Toolchain, toolchain_store: Store) -> Handler | None:
    """The handler of a toolchain, or None when it has to be compiled."""
    entry = toolchain_store.get(_key(tools, toolchain))
    return None if entry is None else Handler(str(entry.output(_OBJECT)), proven_records(entry.manifest))


def keep(
    tools: Tools,
    toolchain: Toolchain,
    toolchain_store: Store,
    folder: Path,
    observer: Observer,
    linked: tuple[str, ...],
) -> None:
    """Keep the handler that a build compiled in its folder, and what is known of the files that every link reads."""

    def copy(staging: Path) -> BuildOutput:
        shutil.copyfile(folder / HANDLER.object, staging / _OBJECT)
        looked_at = LookedAt.merged((observer.looked_at((handler_edge(tools),)), LookedAt(others=linked)))
        return BuildOutput((_OBJECT,), *looked_at)

    toolchain_store.keep(_key(tools, toolchain), copy)


def _key(tools: Tools, toolchain: Toolchain) -> CacheKey:
    argv = [*map(by_name, handler_edge(tools).argv)]
    return make_key("handler", ("name", "handler"), ("argv", argv), ("toolchain", toolchain.fingerprint))


_OBJECT_unit_objects = "unit.o"


class UnitObjects(NamedTuple):
    """The kept objects of one request's units.

    Parameters
    ----------
    request : BuildRequest
    toolchain : Toolchain
    programs : tuple of str
        The assembler and linkers that PATH finds.
    module_store : Store
        Holds them, as it holds the module.
    force : bool
        Whether everything is compiled again.
    """

    request: BuildRequest
    toolchain: Toolchain
    programs: tuple[str, ...]
    module_store: Store
    force: bool

    def reuse(self, units: Mapping[str, UnitBuild], staging: Path) -> dict[str, LookedAt]:
        """Put the objects that need not be compiled where the linker expects them.

        Returns
        -------
        dict of str to LookedAt
            For the stem of each such unit, what its compiler looked at.
        """
        if self.force:
            return {}
        found = ((stem, self._place(build, staging / build.unit.object)) for stem, build in units.items())
        return {stem: looked_at for stem, looked_at in found if looked_at is not None}

    def _place(self, build: UnitBuild, target: Path) -> LookedAt | None:
        entry = self.module_store.get(self._key(build))
        if entry is None:
            return None
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            shutil.copyfile(entry.output(_OBJECT_unit_objects), target)
        except FileNotFoundError:  # cleared away since it was found
            return None
        return LookedAt.of(entry.manifest)

    def publish(self, build: UnitBuild, folder: Path, looked_at: LookedAt, recorded: Recorded) -> None:
        """Keep one unit's object.

        Parameters
        ----------
        build : UnitBuild
            The unit.
        folder : Path
            The build folder, with its object.
        looked_at : LookedAt
            What its commands looked at.
        recorded : Recorded
            What was hashed of it.
        """

        def copy(staging: Path) -> BuildOutput:
            shutil.copyfile(folder / build.unit.object, staging / _OBJECT_unit_objects)
            return BuildOutput((_OBJECT_unit_objects,), *looked_at, recorded=recorded)

        self.module_store.keep(self._key(build), copy, force=self.force)

    def _key(self, build: UnitBuild) -> CacheKey:
        return make_key(
            "object",
            ("name", self.request.name),
            ("commands", [by_name(part) for edge in build.edges for part in (*edge.argv, "")]),
            ("files", [part for file in build.files for part in file]),
            ("library_path", build.library_path),
            ("toolchain", self.toolchain.fingerprint),
            ("programs", self.programs),
        )


def separate_names(plan: BuildPlan, link: LinkCommand, staging: Path, compiler: Path, system: System) -> BuildPlan:
    """The plan, with the names that several of its compiled objects define made private to each.

    Raises
    ------
    BuildError
        Names repeat and objcopy is missing.
    """
    options = separating_options({name: definitions((staging / name).read_bytes()) for name in plan.objects})
    if not options:
        return plan
    objcopy = find_objcopy(compiler, system)
    if objcopy is None:
        names = sorted({option.split("=")[1] for each in options.values() for option in each})
        raise BuildError(
            f"several sources define {', '.join(names)} and objcopy, which separates them, is missing",
            hints=("install binutils, or give the functions different names, or make them static",),
        )
    return with_private_names(plan, objcopy, options, link)
