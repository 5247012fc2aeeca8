"""The graph of commands that makes a library, from a request, its entry points and a toolchain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, GeneratedFile, UnitBuild
from be_runtime.compile.plan.edges import compile_edge, link_edge
from be_runtime.compile.plan.unit_files import OBJECTS, files_named, unit_files
from be_runtime.generate.codegen import (
    CHECKED,
    Binding,
    render_include,
    render_inline_source,
    render_named_types,
    render_unit,
)
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_runtime.request.options import BuildRequest, Unit
from be_runtime.request.tools import Tools

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
