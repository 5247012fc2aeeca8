"""A request, its entry points and a toolchain become the graph of commands that makes the library."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from ..codegen import Binding, render_include, render_inline_source, render_unit
from ..module import LIBRARY
from ..options import BuildRequest, Unit
from ..tools import HANDLER_SOURCE, INCLUDE_DIR, Tools
from . import flags
from .plan import BuildPlan, Edge, GeneratedFile, UnitBuild

SplitNvcc = Callable[[Sequence[str], str, str], UnitBuild | None]

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


def plan_build(
    request: BuildRequest,
    bindings: Mapping[str, Sequence[Binding]],
    tools: Tools,
    link: flags.LinkCommand,
    split: SplitNvcc | None = None,
    handler: str | None = None,
) -> BuildPlan:
    """The whole build of a module.

    Parameters
    ----------
    request : BuildRequest
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    tools : Tools
    link : LinkCommand
        From `flags.link`.
    split : callable, optional
        Given nvcc's command, a source and an object: nvcc's phases, or None to run nvcc as a whole.
    handler : str, optional
        The path of the compiled handler; by default it is compiled too, as `HANDLER_OBJECT`.
    """
    compiled = [_compile_unit(request, unit, tools, split) for unit in request.units]
    files = [_unit_file(request, unit, bindings[unit.stem]) for unit in request.units]
    files += [file for phases in compiled for file in phases.files]
    edges = [edge for phases in compiled for edge in phases.edges]
    objects = [object_path(unit.stem) for unit in request.units]
    if handler is None:
        edges.append(handler_edge(tools))
    objects.append(handler or HANDLER_OBJECT)
    if request.language == "cuda" and flags.is_relocatable(request.compile.cflags):
        edges.append(_device_link_edge(request, tools, objects))
        objects += edges[-1].outputs
    edges.append(link_edge(link, objects))
    library_path = next((phases.library_path for phases in compiled), "")
    return BuildPlan(files=tuple(files), edges=tuple(edges), library_path=library_path)


def handler_edge(tools: Tools) -> Edge:
    """The command that compiles the part of a module that is the same for all."""
    command = flags.handler_compile(tools.cxx, [INCLUDE_DIR, tools.ffi_include])
    return Edge(
        argv=(*command, "-MD", "-MF", HANDLER_DEPFILE, "-c", str(HANDLER_SOURCE), "-o", HANDLER_OBJECT),
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


def with_launcher(plan: BuildPlan, launcher: Sequence[str]) -> BuildPlan:
    """The same build, with a program such as ccache put before every command that compiles."""
    edges = (edge._replace(argv=(*launcher, *edge.argv)) if edge.depfile else edge for edge in plan.edges)
    return plan._replace(edges=tuple(edges))


def with_private_names(
    plan: BuildPlan, objcopy: str, private: Mapping[str, Sequence[str]], link: flags.LinkCommand
) -> BuildPlan:
    """The same build, with names made private to the objects that share them.

    Parameters
    ----------
    objcopy : str
        The program that edits objects.
    private : mapping of str to sequence of str
        For an object, the names that others define too.
    """
    *edges, last = plan.edges
    objects = list(last.inputs)
    for source, names in private.items():
        target = source.removesuffix(".o") + ".private.o"
        options = [f"--localize-symbol={name}" for name in names]
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


def _compile_unit(request: BuildRequest, unit: Unit, tools: Tools, split: SplitNvcc | None) -> UnitBuild:
    """The commands that compile one of the author's units."""
    options = request.compile
    includes = flags.include_flags(
        first=[*options.include_paths, INCLUDE_DIR], last=[tools.ffi_include, *tools.library_includes]
    )
    if request.language == "cpp":
        command = flags.host_compile(tools.cxx, options, includes)
        if len(request.units) == 1:
            command += flags.whole_program(tools.cxx, options.ldflags, [source.text for source in unit.sources])
    else:
        assert tools.cuda is not None
        command = flags.nvcc_compile(tools.cuda, tools.cxx, options, tools.archs, includes)
    source, target = _unit_source(request, unit), object_path(unit.stem)
    if split is not None and request.language == "cuda" and flags.allows_phases(options.cflags):
        phases = split(command, source, target)
        if phases is not None:
            return phases
    shown = " ".join(unit.path.name.split()) if unit.path is not None else request.name
    return UnitBuild(edges=(_compile_edge(command, source, unit.stem, f"compiling {shown}"),))


def _compile_edge(command: Sequence[str], source: str, stem: str, description: str) -> Edge:
    target, depfile = object_path(stem), f"obj/{file_stem(stem)}.d"
    return Edge(
        argv=(*command, "-MD", "-MF", depfile, "-c", source, "-o", target),
        inputs=(source,),
        outputs=(target,),
        description=description,
        depfile=depfile,
    )


def _device_link_edge(request: BuildRequest, tools: Tools, objects: Sequence[str]) -> Edge:
    assert tools.cuda is not None
    target = "obj/be_device_link.o"
    command = flags.nvcc_device_link(tools.cuda, tools.cxx, request.compile, tools.archs)
    return Edge(
        argv=(*command, *objects, "-o", target),
        inputs=tuple(objects),
        outputs=(target,),
        description="linking device code",
    )
