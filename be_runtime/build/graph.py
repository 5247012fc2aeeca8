"""A request, its entry points and a toolchain become the graph of commands that makes the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from be_toolchain.arch import Arch
from be_toolchain.model import CudaToolkit, HostCompiler

from ..codegen import Binding, render_author_unit, render_handler_unit, render_include, render_inline_source
from ..options import BuildRequest, Unit
from . import flags
from .plan import LIBRARY, BuildPlan, Edge, GeneratedFile

HANDLER_STEM = "be_handlers"
_SUFFIX = {"cuda": ".cu", "cpp": ".cc"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What a build runs and reads apart from the author's sources.

    Parameters
    ----------
    cxx : HostCompiler
    cuda : CudaToolkit or None
        None for a C++ module.
    archs : tuple of Arch
        What the device code is compiled for; empty for a C++ module.
    include_paths : tuple of Path
        Our headers.
    system_include_paths : tuple of Path
        Headers of CUDA's libraries that the toolkit may lack, searched last.
    ffi_include : Path
        XLA's headers.
    link_head, link_tail : tuple of str
        From `flags.link`.
    """

    cxx: HostCompiler
    cuda: CudaToolkit | None
    archs: tuple[Arch, ...]
    include_paths: tuple[Path, ...]
    system_include_paths: tuple[Path, ...]
    ffi_include: Path
    link_head: tuple[str, ...]
    link_tail: tuple[str, ...]


def object_path(stem: str) -> str:
    """Where a unit's object is, relative to the build folder."""
    return f"obj/{stem}.o"


def plan_build(request: BuildRequest, bindings: Mapping[str, Sequence[Binding]], tools: Tools) -> BuildPlan:
    """The whole build of a module.

    Parameters
    ----------
    request : BuildRequest
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    tools : Tools
    """
    every_binding = [binding for unit in request.units for binding in bindings[unit.stem]]
    handler_source = f"src/{HANDLER_STEM}.cc"
    files = [_author_file(request, unit, bindings[unit.stem]) for unit in request.units]
    files.append(GeneratedFile(path=handler_source, text=render_handler_unit(request.name, every_binding)))
    edges = [_author_edge(request, unit, tools) for unit in request.units]
    command = flags.handler_compile(tools.cxx, [*tools.include_paths, tools.ffi_include])
    edges.append(_compile_edge(command, handler_source, HANDLER_STEM, "compile the XLA handlers"))
    objects = [edge.outputs[0] for edge in edges]
    if request.language == "cuda" and flags.is_relocatable(request.compile.cflags):
        edges.append(_device_link_edge(request, tools, objects))
        objects += edges[-1].outputs
    edges.append(link_edge(tools, objects))
    return BuildPlan(files=tuple(files), edges=tuple(edges))


def link_edge(tools: Tools, objects: Sequence[str]) -> Edge:
    """The command that makes the library from its objects."""
    return Edge(
        argv=(*tools.link_head, *objects, "-o", LIBRARY, *tools.link_tail),
        inputs=tuple(objects),
        outputs=(LIBRARY,),
        description="link",
    )


def with_private_names(plan: BuildPlan, objcopy: str, private: Mapping[str, Sequence[str]], tools: Tools) -> BuildPlan:
    """The same build, with names made private to the objects that share them.

    Parameters
    ----------
    objcopy : str
        The program that edits objects.
    private : mapping of str to sequence of str
        For an object, the names that others define too.
    """
    *edges, link = plan.edges
    objects = list(link.inputs)
    for source, names in private.items():
        target = source.removesuffix(".o") + ".private.o"
        options = [f"--localize-symbol={name}" for name in names]
        edges.append(
            Edge(
                argv=(objcopy, *options, source, target),
                inputs=(source,),
                outputs=(target,),
                description=f"separate the names of {Path(source).stem}",
            )
        )
        objects[objects.index(source)] = target
    return BuildPlan(files=plan.files, edges=(*edges, link_edge(tools, objects)))


def _author_file(request: BuildRequest, unit: Unit, bindings: Sequence[Binding]) -> GeneratedFile:
    body = render_inline_source(unit.sources) if unit.path is None else render_include(str(unit.path))
    return GeneratedFile(
        path=_author_source(request, unit),
        text=render_author_unit(body, bindings, check_launch=request.language == "cuda"),
    )


def _author_source(request: BuildRequest, unit: Unit) -> str:
    return f"src/{unit.stem}{_SUFFIX[request.language]}"


def _author_edge(request: BuildRequest, unit: Unit, tools: Tools) -> Edge:
    options = request.compile
    includes = flags.include_flags(
        first=[*options.include_paths, *tools.include_paths], last=[tools.ffi_include, *tools.system_include_paths]
    )
    if request.language == "cpp":
        command = flags.host_compile(tools.cxx, options, includes)
    else:
        assert tools.cuda is not None
        command = flags.nvcc_compile(tools.cuda, tools.cxx, options, tools.archs, includes)
    shown = unit.path.name if unit.path is not None else request.name
    return _compile_edge(command, _author_source(request, unit), unit.stem, f"compile {shown}")


def _compile_edge(command: Sequence[str], source: str, stem: str, description: str) -> Edge:
    target, depfile = object_path(stem), f"obj/{stem}.d"
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
        argv=(*command, *objects, "-o", target), inputs=tuple(objects), outputs=(target,), description="device link"
    )
