"""The graph of a build's commands, the kept objects that replace commands, and the names that objects share."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from be_runtime import errors, inspection, own_files
from be_runtime.compile import codegen, execute, flags, inputs
from be_runtime.compile.codegen_values import Binding, names_torch
from be_runtime.compile.plan import (
    OBJECTS,
    BuildOrder,
    BuildPlan,
    Edge,
    GeneratedFile,
    UnitBuild,
    UnitFiles,
    compile_edge,
    files_named,
    link_edge,
    unit_files,
)
from be_runtime.request.build_tools import BuildTools
from be_runtime.request.options import BuildRequest, CompileOptions
from be_runtime.store import cache, examine, keys, manifest
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple
from be_toolchain.values import ClangCuda, Nvcc

if TYPE_CHECKING:
    from be_runtime.compile.nvcc_preamble import Preamble


class CudaCompiler(Protocol):
    """A compiler of CUDA sources."""

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Return the command that compiles one of the author's units, without files."""

    def device_link(self, options: CompileOptions, /) -> tuple[str, ...] | None:
        """Return the command that links relocatable device code, without files; None if there is no such code."""

    def phases(self, command: Sequence[str], unit: UnitFiles, order: BuildOrder, /) -> UnitBuild | None:
        """Return the steps of `command` for one source as separate commands; None to run it as one command."""

    def preamble(self, command: Sequence[str], order: BuildOrder, /) -> Preamble | None:
        """Return the precompiled beginning of all sources; None if there is none."""

    def phase_inputs(self) -> tuple[Path, ...]:
        """Return the files that determine the phases, apart from the files that the phases read."""


def cuda_compiler(tools: BuildTools) -> CudaCompiler:
    """Return the compiler of the CUDA toolkit in `tools`."""
    toolkit, archs = tools.cuda, tools.archs
    assert toolkit is not None, "a CUDA module has a toolkit"
    match toolkit.compiler:
        case Nvcc() as nvcc:
            from be_runtime.compile.nvcc import NvccCompiler

            return NvccCompiler(nvcc, archs)
        case ClangCuda():
            from be_runtime.compile.clang import ClangCompiler

            return ClangCompiler(toolkit, archs)


_STB_GLOBAL, _STB_WEAK = 1, 2
_KERNEL_HANDLE = b"__device_stub__"
"""Part of the name of a kernel's host-side symbol in clang's objects."""


HANDLER = files_named("be_handler", "cpp")._replace(source=str(own_files.NATIVE_DIR / "handler.cc"))
_DEVICE_LINK = f"{OBJECTS}/be_device_link.o"
_KEPT_HANDLER, _KEPT_UNIT = "handler.o", "unit.o"
"""Names of objects in cache entries."""


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
    defined = {(symbol.binding, symbol.name) for symbol in inspection.symbols(image) if symbol.is_defined}
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


def plan_units(
    request: BuildRequest,
    bindings: Mapping[str, Sequence[Binding]],
    command: Sequence[str],
    phases: Mapping[str, UnitBuild | None] | None = None,
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
        The phases of the compiler, by the unit's stem. One command compiles a unit without phases.

    Returns
    -------
    dict of str to UnitBuild
        By the unit's stem.
    """
    planned = {}
    for unit in request.units:
        compiled = (phases or {}).get(unit.stem)
        if compiled is None:
            files = unit_files(unit.stem, request.language)
            shown = " ".join(unit.path.name.split()) if unit.path is not None else request.name
            compiled = UnitBuild(unit=files, edges=(compile_edge(command, files, f"compiling {shown}"),))
        source = GeneratedFile(compiled.unit.source, codegen.unit_text(request, unit, bindings[unit.stem]))
        planned[unit.stem] = compiled._replace(files=(source, *compiled.files), command=tuple(command))
    return planned


def plan_build(
    request: BuildRequest,
    units: Mapping[str, UnitBuild],
    tools: BuildTools,
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
    tools : BuildTools
    link : LinkCommand
        From `flags.link`.
    handler : str, optional
        The path of the compiled handler; by default, the build compiles `HANDLER`.
    aside : UnitBuild, optional
        Further commands, which run beside the compilers.
    """
    builds = [*units.values(), *((aside,) if aside is not None else ())]
    files = [file for build in builds for file in build.files]
    # The unit that takes longest must not start last.
    longest_first = sorted(request.units, key=lambda unit: -sum(len(source.text) for source in unit.sources))
    # If there are more commands than processors, ninja prefers commands that most other commands wait for, and among
    # those the first in its file. In the order of units, the last unit would start when the others are nearly done. So
    # the first command of every unit comes first, then the second commands, and so on.
    waves = zip_longest(*(units[unit.stem].edges for unit in longest_first))
    edges = [edge for wave in waves for edge in wave if edge is not None]
    edges += aside.edges if aside is not None else ()
    objects = [build.unit.object for build in units.values()]
    if handler is None:
        edges.append(handler_edge(request, tools))
    objects.append(handler or HANDLER.object)
    device_link = cuda_compiler(tools).device_link(request.compile) if request.language == "cuda" else None
    if device_link is not None:
        argv = (*device_link, *objects, "-o", _DEVICE_LINK)
        edges.append(Edge(argv, tuple(objects), (_DEVICE_LINK,), "linking device code", "device link"))
        objects.append(_DEVICE_LINK)
    library_path = next((build.library_path for build in units.values() if build.library_path), "")
    made_aside = tuple(name for edge in aside.edges for name in edge.outputs) if aside is not None else ()
    return BuildPlan(tuple(files), tuple(edges), link_edge(link, objects), library_path, made_aside)


def handler_edge(request: BuildRequest, tools: BuildTools) -> Edge:
    """Return the command that compiles the handler, which is the same in all modules with one C++ library."""
    return compile_edge(
        flags.handler_compile(tools.cxx, [own_files.INCLUDE_DIR, tools.ffi_include], request.compile.cflags),
        HANDLER,
        "compiling the XLA handler",
    )


def with_compiler_launcher(plan: BuildPlan, launcher: Sequence[str]) -> BuildPlan:
    """Put a compiler launcher, such as ccache, before every command that compiles."""
    edges = (edge._replace(argv=(*launcher, *edge.argv)) if edge.tool == "compile" else edge for edge in plan.edges)
    return plan._replace(edges=tuple(edges))


def with_private_names(
    plan: BuildPlan, objcopy: str, private: Mapping[str, Sequence[str]], link: flags.LinkCommand
) -> BuildPlan:
    """Add commands that edit objects before the link.

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


def compile_command(request: BuildRequest, tools: BuildTools) -> tuple[str, ...]:
    """Return the command that compiles the author's units, without files."""
    options = request.compile
    torch = [own_files.TORCH_DIR] if any(names_torch(unit.sources) for unit in request.units) else []
    includes = flags.include_flags(
        first=[*options.include_paths, own_files.INCLUDE_DIR], last=[tools.ffi_include, *tools.library_includes, *torch]
    )
    if request.language == "cpp":
        texts = [source.text for unit in request.units for source in unit.sources]
        closed = flags.whole_program(tools.cxx, options.ldflags, texts) if len(request.units) == 1 else ()
        return flags.host_compile(tools.cxx, options, includes) + closed
    return cuda_compiler(tools).command(options, includes)


class Handler(NamedTuple):
    """A compiled handler.

    Parameters
    ----------
    path : str
    records : mapping of str to FileRecord
        Records of the files of its toolchain, by path.
    is_kept : bool
        Whether it is in the cache; otherwise it came with the package.
    """

    path: str
    records: Mapping[str, manifest.FileRecord]
    is_kept: bool


def find_handler(order: BuildOrder) -> Handler | None:
    """Find the compiled handler of a toolchain in the cache, or else in the package."""
    entry, shipped = order.toolchain_store.get(_handler_key(order)), _shipped_handler(order)
    if entry is not None:
        path = str(shipped or entry.output(_KEPT_HANDLER))
        return Handler(path, examine.proven_records(entry.manifest), is_kept=True)
    return None if shipped is None else Handler(str(shipped), {}, is_kept=False)


def keep_handler(order: BuildOrder, folder: Path, observer: inputs.Observer, linked: tuple[str, ...]) -> None:
    """Keep the handler that a build compiled in its folder, with the files that every link reads.

    Later builds take the records of these files from the entry instead of hashing the files. For a handler from the
    package, the entry has only the records, since optional files must not take the room that a module needs.
    """
    shipped = _shipped_handler(order)

    def copy(staging: Path) -> cache.BuildOutput:
        if shipped is not None:
            (staging / _KEPT_HANDLER).touch()
        else:
            shutil.copyfile(folder / HANDLER.object, staging / _KEPT_HANDLER)
        compiled = () if shipped is not None else (observer.looked_at((handler_edge(order.request, order.tools),)),)
        return cache.BuildOutput((_KEPT_HANDLER,), *inputs.LookedAt.merged((*compiled, inputs.LookedAt(others=linked))))

    order.toolchain_store.keep(_handler_key(order), copy)


def _shipped_handler(order: BuildOrder) -> Path | None:
    """Return the handler in the package, if it is for the compiler's C++ library."""
    is_usable = order.shipped is not None and flags.uses_libstdcxx(order.tools.cxx, order.request.compile.cflags)
    return order.shipped / _KEPT_HANDLER if order.shipped is not None and is_usable else None


def _handler_key(order: BuildOrder) -> keys.CacheKey:
    argv = [*map(own_files.by_name, handler_edge(order.request, order.tools).argv)]
    shipped = _shipped_handler(order)
    return keys.make_key(
        "handler",
        ("name", "handler"),
        ("argv", argv),
        ("toolchain", order.toolchain.fingerprint),
        ("shipped", "" if shipped is None else shipped.parent.name),
    )


def reuse_objects(order: BuildOrder, units: Mapping[str, UnitBuild], folder: Path) -> dict[str, inputs.LookedAt]:
    """Copy the objects that earlier builds kept to their places in the build folder.

    Returns
    -------
    dict of str to LookedAt
        For the stem of each such unit, the files that its compiler looked at.
    """
    found: dict[str, inputs.LookedAt] = {}
    for stem, build in units.items():
        entry = None if order.force else order.module_store.get(_object_key(order, build))
        if entry is None:
            continue
        target = folder / build.unit.object
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it
            shutil.copyfile(entry.output(_KEPT_UNIT), target)
            found[stem] = inputs.LookedAt.of(entry.manifest)
    return found


def publish_object(
    order: BuildOrder, build: UnitBuild, folder: Path, looked_at: inputs.LookedAt, recorded: cache.Recorded
) -> None:
    """Keep one unit's object for later builds.

    Parameters
    ----------
    order : BuildOrder
    build : UnitBuild
        The unit.
    folder : Path
        The build folder, with the object.
    looked_at : LookedAt
        The files that the unit's commands looked at.
    recorded : Recorded
        Hashes of these files.
    """

    def copy(staging: Path) -> cache.BuildOutput:
        shutil.copyfile(folder / build.unit.object, staging / _KEPT_UNIT)
        return cache.BuildOutput((_KEPT_UNIT,), *looked_at, recorded=recorded)

    order.module_store.keep(_object_key(order, build), copy, force=order.force)


def _object_key(order: BuildOrder, build: UnitBuild) -> keys.CacheKey:
    return keys.make_key(
        "object",
        ("name", order.request.name),
        ("commands", [own_files.by_name(part) for edge in build.edges for part in (*edge.argv, "")]),
        ("files", [part for file in build.files for part in file]),
        ("library_path", build.library_path),
        ("toolchain", order.toolchain.fingerprint),
        ("programs", order.tools.programs),
    )


def separate_names(
    plan: BuildPlan, link: flags.LinkCommand, staging: Path, compiler: Path, system: System
) -> BuildPlan:
    """Return the plan in which each name that several objects define becomes private to its object.

    Raises
    ------
    BuildError
        Names repeat and objcopy is missing.
    """
    options = separating_options({name: definitions((staging / name).read_bytes()) for name in plan.objects})
    if not options:
        return plan
    objcopy = execute.find_objcopy(compiler, system)
    if objcopy is None:
        names = sorted({option.split("=")[1] for each in options.values() for option in each})
        raise errors.BuildError(
            f"several sources define {', '.join(names)} and objcopy, which separates them, is missing",
            hints=("install binutils, or give the functions different names, or make them static",),
        )
    return with_private_names(plan, objcopy, options, link)
