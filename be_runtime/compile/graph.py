"""A request, its entry points and a toolchain become the graph of commands that makes the library."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path

from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, GeneratedFile, UnitBuild
from be_runtime.generate.codegen import Binding, render_include, render_inline_source, render_unit
from be_runtime.generate.contents import LIBRARY
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.request.options import BuildRequest, Unit
from be_runtime.request.tools import Tools

SplitIntoPhases = Callable[[Sequence[str], str, str], UnitBuild | None]

HANDLER_OBJECT = "obj/be_handler.o"
HANDLER_DEPFILE = "obj/be_handler.d"
_SUFFIX = {"cuda": ".cu", "cpp": ".cc"}


def file_stem(stem: str) -> str:
    """A unit's stem in the names of its files: a name that make, ninja and a shell take as it is, and none of ours."""
    plain = re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)
    if plain == stem and not stem.startswith("be_"):
        return stem
    return f"{plain}.{sha256(stem.encode(errors='surrogateescape')).hexdigest()[:8]}"


def object_path(stem: str) -> str:
    """Where a unit's object is, relative to the build folder."""
    return f"obj/{file_stem(stem)}.o"


def plan_units(
    request: BuildRequest,
    bindings: Mapping[str, Sequence[Binding]],
    tools: Tools,
    split: SplitIntoPhases | None = None,
) -> dict[str, UnitBuild]:
    """What compiles each of the author's units, by its stem.

    Parameters
    ----------
    request : BuildRequest
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    tools : Tools
    split : callable, optional
        Given the command of nvcc or clang, a source and an object: the compiler's phases, or None to run it as a
        whole.
    """
    planned = {}
    for unit in request.units:
        compiled = _compile_unit(request, unit, tools, split)
        source = _unit_file(request, unit, bindings[unit.stem])
        planned[unit.stem] = compiled._replace(files=(source, *compiled.files))
    return planned


def plan_build(
    request: BuildRequest,
    units: Mapping[str, UnitBuild],
    tools: Tools,
    link: flags.LinkCommand,
    handler: str | None = None,
    aside: UnitBuild | None = None,
) -> BuildPlan:
    """The whole build of a module.

    Parameters
    ----------
    request : BuildRequest
    units : mapping of str to UnitBuild
        From `plan_units`; one without commands has its object in place.
    tools : Tools
    link : LinkCommand
        From `flags.link`.
    handler : str, optional
        The path of the compiled handler; by default it is compiled too, as `HANDLER_OBJECT`.
    aside : UnitBuild, optional
        What else to run, beside the compilers.
    """
    builds = [*units.values(), *((aside,) if aside is not None else ())]
    files = [file for build in builds for file in build.files]
    edges = _in_waves([units[unit.stem] for unit in _longest_first(request.units)])
    edges += aside.edges if aside is not None else ()
    objects = [object_path(stem) for stem in units]
    if handler is None:
        edges.append(handler_edge(tools))
    objects.append(handler or HANDLER_OBJECT)
    device_link = cuda_compiler(tools).device_link(request.compile) if request.language == "cuda" else None
    if device_link is not None:
        edges.append(_device_link_edge(device_link, objects))
        objects += edges[-1].outputs
    edges.append(link_edge(link, objects))
    library_path = next((build.library_path for build in units.values() if build.library_path), "")
    made_aside = tuple(name for edge in aside.edges for name in edge.outputs) if aside is not None else ()
    return BuildPlan(files=tuple(files), edges=tuple(edges), library_path=library_path, aside=made_aside)


def _longest_first(units: Sequence[Unit]) -> list[Unit]:
    """Units by the length of their sources: what takes longest should not be begun last."""
    return sorted(units, key=lambda unit: -sum(len(source.text) for source in unit.sources))


def _in_waves(builds: Sequence[UnitBuild]) -> list[Edge]:
    """The first command of every unit, then the second ones, and so on.

    Where there are more commands than processors, ninja takes those first that have the most after them, and of these
    the first in its file. By units, the last unit would only begin when the others are nearly done.
    """
    waves = zip_longest(*(build.edges for build in builds))
    return [edge for wave in waves for edge in wave if edge is not None]


def handler_edge(tools: Tools) -> Edge:
    """The command that compiles the part of a module that is the same for all."""
    command = flags.handler_compile(tools.cxx, [INCLUDE_DIR, tools.ffi_include])
    return Edge(
        argv=(*command, "-MD", "-MF", HANDLER_DEPFILE, "-c", str(NATIVE_DIR / "handler.cc"), "-o", HANDLER_OBJECT),
        inputs=(),
        outputs=(HANDLER_OBJECT,),
        description="compiling the XLA handler",
        depfile=HANDLER_DEPFILE,
    )


def link_edge(link: flags.LinkCommand, objects: Sequence[str]) -> Edge:
    """The command that makes the library from its objects."""
    return Edge(
        argv=(*link.head, *objects, "-o", LIBRARY, *link.tail),
        inputs=tuple(objects),
        outputs=(LIBRARY,),
        description="linking",
    )


def with_compiler_launcher(plan: BuildPlan, launcher: Sequence[str]) -> BuildPlan:
    """The same build, with a program such as ccache put before every command that compiles."""
    edges = (edge._replace(argv=(*launcher, *edge.argv)) if edge.depfile else edge for edge in plan.edges)
    return plan._replace(edges=tuple(edges))


def with_private_names(
    plan: BuildPlan, objcopy: str, private: Mapping[str, Sequence[str]], link: flags.LinkCommand
) -> BuildPlan:
    """The same build, with each object edited before it is linked.

    Parameters
    ----------
    objcopy : str
        The program that edits objects.
    private : mapping of str to sequence of str
        For an object, objcopy's options.
    """
    *edges, last = plan.edges
    objects = list(last.inputs)
    for source, options in private.items():
        target = source.removesuffix(".o") + ".private.o"
        edges.append(
            Edge(
                argv=(objcopy, *options, source, target),
                inputs=(source,),
                outputs=(target,),
                description=f"separating the names of {Path(source).stem}",
            )
        )
        objects[objects.index(source)] = target
    return plan._replace(edges=(*edges, link_edge(link, objects)))


def _unit_file(request: BuildRequest, unit: Unit, bindings: Sequence[Binding]) -> GeneratedFile:
    body = render_inline_source(unit.sources) if unit.path is None else render_include(str(unit.path))
    text = render_unit(body, request.name, bindings, language=request.language)
    return GeneratedFile(path=_unit_source(request, unit), text=text)


def _unit_source(request: BuildRequest, unit: Unit) -> str:
    return f"src/{file_stem(unit.stem)}{_SUFFIX[request.language]}"


def compile_command(request: BuildRequest, tools: Tools) -> tuple[str, ...]:
    """The compiler of the author's units and its flags, without files."""
    options = request.compile
    includes = flags.include_flags(
        first=[*options.include_paths, INCLUDE_DIR], last=[tools.ffi_include, *tools.library_includes]
    )
    if request.language == "cpp":
        texts = [source.text for unit in request.units for source in unit.sources]
        closed = flags.whole_program(tools.cxx, options.ldflags, texts) if len(request.units) == 1 else ()
        return flags.host_compile(tools.cxx, options, includes) + closed
    return cuda_compiler(tools).command(options, includes)


def _compile_unit(request: BuildRequest, unit: Unit, tools: Tools, split: SplitIntoPhases | None) -> UnitBuild:
    """The commands that compile one of the author's units."""
    options, command = request.compile, compile_command(request, tools)
    source, target = _unit_source(request, unit), object_path(unit.stem)
    if split is not None and request.language == "cuda" and flags.allows_phases(options.cflags):
        phases = split(command, source, target)
        if phases is not None:
            return phases._replace(command=command)
    shown = " ".join(unit.path.name.split()) if unit.path is not None else request.name
    return UnitBuild(edges=(_compile_edge(command, source, unit.stem, f"compiling {shown}"),), command=command)


def _compile_edge(command: Sequence[str], source: str, stem: str, description: str) -> Edge:
    target, depfile = object_path(stem), f"obj/{file_stem(stem)}.d"
    return Edge(
        argv=(*command, "-MD", "-MF", depfile, "-c", source, "-o", target),
        inputs=(source,),
        outputs=(target,),
        description=description,
        depfile=depfile,
    )


def _device_link_edge(command: Sequence[str], objects: Sequence[str]) -> Edge:
    target = "obj/be_device_link.o"
    return Edge(
        argv=(*command, *objects, "-o", target),
        inputs=tuple(objects),
        outputs=(target,),
        description="linking device code",
    )
