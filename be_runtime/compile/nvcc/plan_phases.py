"""Nvcc's own phases as commands of the build graph, so that its host side and its device side run at once. Pure.

``nvcc -c`` runs one after the other: preprocess and cudafe++ (host), then preprocess, cicc and ptxas for each
architecture (device), fatbinary, and the host compiler over what they made. Three things tie the sides together:

- the module id, which cudafe++ would invent and which is given here instead;
- cicc's stub, which the host compiler includes, so that it waits for the first cicc;
- the device code, which nvcc has it include as text. Here the host compiler leaves the place open, and the assembler
  fills it in from the file that fatbinary makes: ptxas runs beside the host compiler.

Every command is nvcc's, with nvcc's arguments, but for the host compiler's stop before the assembler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple

from be_runtime.compile.nvcc.device_images import device_images
from be_runtime.compile.nvcc.dry_run import NvccSteps
from be_runtime.compile.plan.build_plan import Edge, GeneratedFile, Tool, UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles

_OUTPUT_OPTIONS: dict[str, tuple[Tool, tuple[str, ...]]] = {
    "cudafe++": ("cudafe++", ("--gen_c_file_name",)),
    "cicc": ("cicc", ("-o", "--stub_file_name", "--gen_c_file_name", "--gen_device_file_name")),
    "ptxas": ("ptxas", ("-o",)),
    "fatbinary": ("fatbinary", ("--create", "--embedded-fatbin")),
}
_FORBIDDEN = ("nvlink", "nvprune", "ccache", "sccache")


class _Step(NamedTuple):
    tool: Tool
    argv: tuple[str, ...]
    outputs: tuple[str, ...]


def split_phases(dry: NvccSteps, tools: Mapping[str, str], unit: UnitFiles, module_id: str) -> UnitBuild | None:
    """The graph of a dry run, or None when it holds a step that is not understood.

    Parameters
    ----------
    dry : NvccSteps
        Of ``nvcc --keep --keep-dir … -c source -o object``.
    tools : mapping of str to str
        The absolute paths of cudafe++, cicc, ptxas and fatbinary.
    unit : UnitFiles
        Its files, as the dry run spells them.
    module_id : str
        A C identifier that no other object of the library has.
    """
    commands = [argv for argv in dry.commands if argv[0] != "rm"]
    steps = [_step(argv, tools) for argv in commands]
    known = [step for step in steps if step is not None]
    kinds = {step.tool for step in known}
    if len(known) != len(steps) or not {"preprocess", "cudafe++", "cicc", "ptxas", "fatbinary", "compile"} <= kinds:
        return None
    *_, last = known
    id_file = _option(next(step.argv for step in known if step.tool == "cudafe++"), "--module_id_file_name")
    if last.tool != "compile" or last.outputs != (unit.object,) or id_file is None:
        return None
    fatbinary = next(step.argv for step in known if step.tool == "fatbinary")
    images = device_images(_option(fatbinary, "--create"), _option(fatbinary, "--embedded-fatbin"))
    if images is None:
        return None
    made = {output for step in known for output in step.outputs}
    name = PurePath(unit.source).name
    edges = [_edge(step, index, name, made) for index, step in enumerate(known)]
    edges = [*map(images.apart, edges[:-1]), *images.assembled(edges[-1])]
    return UnitBuild(
        unit=unit,
        edges=tuple(edges),
        files=(GeneratedFile(path=id_file, text=module_id), images.stand_in()),
        library_path=dry.environ.get("LD_LIBRARY_PATH", ""),
    )


def _step(argv: tuple[str, ...], tools: Mapping[str, str]) -> _Step | None:
    name = PurePath(argv[0]).name
    if name in _OUTPUT_OPTIONS:
        tool, options = _OUTPUT_OPTIONS[name]
        outputs = _outputs(argv, options)
        arguments = tuple(argument for argument in argv[1:] if argument != "--gen_module_id_file")
        return _Step(tool, (tools[name], *arguments), outputs) if outputs else None
    output = _option(argv, "-o")
    if name in _FORBIDDEN or output is None or ("-E" in argv) == ("-c" in argv):
        return None
    return _Step("preprocess" if "-E" in argv else "compile", argv, (output,))


def _outputs(argv: Sequence[str], options: Sequence[str]) -> tuple[str, ...]:
    found = [_option(argv, option) for option in options]
    # ``--stub_file_name`` of cicc and the name that cudafe++ includes are the same file below the folder.
    return tuple(dict.fromkeys(name for name in found if name))


def _option(argv: Sequence[str], option: str) -> str | None:
    """The value of an option given as ``--option value`` or ``--option=value``."""
    for index, argument in enumerate(argv):
        if argument == option and index + 1 < len(argv):
            return argv[index + 1]
        if argument.startswith(f"{option}="):
            return argument.removeprefix(f"{option}=")
    return None


def _edge(step: _Step, index: int, source_name: str, made: set[str]) -> Edge:
    """A step with what it reads: the files that other steps make and that it names, or includes by name."""
    named = {_file_of(argument) for argument in step.argv} & made
    if step.tool == "compile":
        named |= {name for name in made if name.endswith(".stub.c")}  # included, and not named here
    depfile = f"{step.outputs[0]}.d" if step.tool == "preprocess" else None
    argv = (*step.argv, "-MD", "-MF", depfile) if depfile is not None else step.argv
    return Edge(
        argv=argv,
        inputs=tuple(sorted(named - set(step.outputs))),
        outputs=step.outputs,
        description=f"compiling {source_name} ({index + 1}: {step.tool})",
        tool=step.tool,
        depfile=depfile,
    )


def _file_of(argument: str) -> str:
    """The file that an argument names, also in ``--image3=kind=elf,sm=90,file=a.cubin``."""
    return argument.rpartition("file=")[2] if "file=" in argument else argument


def rename(phases: UnitBuild, old: str, new: str) -> UnitBuild:
    """The same phases for another source, from a dry run that was made with a placeholder for its name."""

    def renamed(texts: Iterable[str]) -> tuple[str, ...]:
        return tuple(text.replace(old, new) for text in texts)

    edges = tuple(
        edge._replace(
            argv=renamed(edge.argv),
            inputs=renamed(edge.inputs),
            outputs=renamed(edge.outputs),
            description=edge.description.replace(old, new),
            depfile=edge.depfile.replace(old, new) if edge.depfile is not None else None,
        )
        for edge in phases.edges
    )
    files = tuple(GeneratedFile(*renamed(file)) for file in phases.files)
    return phases._replace(unit=UnitFiles(*renamed(phases.unit)), edges=edges, files=files)
