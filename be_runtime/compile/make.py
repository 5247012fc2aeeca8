"""Creation of a module that is not in the cache: its entry points, the build, and the files that are kept."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.codegen import Binding, bind, module_contents
from be_runtime.compile.execute import render_log
from be_runtime.compile.plan import OBJECTS, BuildOrder, Edge, Tool, UnitBuild
from be_runtime.compile.prepare import Build, prepare_build
from be_runtime.errors import BuildError
from be_runtime.store.cache import BuildOutput, Entry, Store
from be_runtime.store.contents import CONTENTS, LIBRARY
from be_toolchain.arch import Arch
from be_toolchain.terminal import printable

_LIST = "measured.json"
_LOOPS = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"),
}
"""Flags by which a compiler tells of the loops that it vectorizes, and of those that it can't."""

_ARCH = re.compile(r"(?:-arch=|--gpu-name=)?(sm_\w+)")


class MeasuredStep(NamedTuple):
    """A command of a build: its role, all its output, and its seconds."""

    tool: Tool
    output: str
    seconds: float


class Measured(NamedTuple):
    """A build that was made for a report.

    Parameters
    ----------
    steps : tuple of MeasuredStep
    cubins : tuple of (Arch, Path)
        The device code of each unit and architecture; none where the CUDA compiler ran as a whole.
    library : Path
    """

    steps: tuple[MeasuredStep, ...]
    cubins: tuple[tuple[Arch, Path], ...]
    library: Path


def measure_build(order: BuildOrder, staging: Path, *, loops: bool = False) -> BuildOutput:
    """Build the library of an order in a folder, all of it, with ptxas's own report, and the host compiler's of loops.

    Raises
    ------
    SpecError, BuildError
        As for `make_module`.
    """
    alone = order._replace(force=True, module_store=Store(staging / OBJECTS))  # whose objects go with the folder
    build = prepare_build(alone, bind(order.request), staging)
    asked = _LOOPS[order.tools.cxx.family] if loops and order.request.language == "cpp" else ()
    build.units = {stem: _talkative(unit, asked) for stem, unit in build.units.items()}
    build.run()
    cubins: list[tuple[str, str]] = []
    for edge in (step.edge for step in build.steps if step.edge.tool == "ptxas"):
        cubin = next((name for name in edge.outputs if name.endswith(".cubin")), None)
        arch = next((match[1] for part in edge.argv if (match := _ARCH.fullmatch(part))), None)
        if cubin is not None and arch is not None:
            cubins.append((arch, f"{len(cubins)}.cubin"))
            shutil.move(staging / cubin, staging / cubins[-1][1])
    shutil.rmtree(staging / OBJECTS)
    steps = [(step.edge.tool, step.output, step.seconds or 0.0) for step in build.steps]
    (staging / _LIST).write_text(json.dumps({"steps": steps, "cubins": cubins}), encoding="utf-8")
    kept = (_LIST, LIBRARY, *(name for _, name in cubins))
    return BuildOutput(kept, *build.looked_at(), recorded=build.recorded, unknown=tuple(build.unknown))


def read_measured(entry: Entry) -> Measured:
    """Read what `measure_build` wrote."""
    listed = json.loads(entry.output(_LIST).read_bytes())
    cubins = ((Arch.parse(arch), entry.output(name)) for arch, name in listed["cubins"])
    return Measured(tuple(MeasuredStep(*step) for step in listed["steps"]), tuple(cubins), entry.output(LIBRARY))


def _talkative(unit: UnitBuild, more: Sequence[str]) -> UnitBuild:
    """Let ptxas say what it used, by itself or within nvcc or clang, and compilers more of what they do."""
    edges = (
        edge._replace(argv=(*edge.argv, *_asking(edge), *(more if edge.tool == "compile" else ())))
        for edge in unit.edges
    )
    return unit._replace(edges=tuple(edges))


def _asking(edge: Edge) -> Sequence[str]:
    if edge.tool == "ptxas":
        return ("-v",)
    program = Path(edge.argv[0]).name
    is_device = edge.tool == "compile" and any(part.endswith(".cu") for part in edge.argv)
    if is_device and program == "nvcc":
        return ("-Xptxas", "-v")
    is_whole = "cuda" in edge.argv and not any(part.startswith("--cuda-host-only") for part in edge.argv)
    if is_device and "-S" not in edge.argv and "clang" in program and is_whole:
        return ("-Xcuda-ptxas", "-v")
    return ()


LOG = "build.log"


def make_module(order: BuildOrder, staging: Path) -> BuildOutput:
    """Build the library of an order in a folder.

    Raises
    ------
    SpecError
        The entry points can't be understood.
    BuildError
        A command failed.
    """
    bindings = bind(order.request)
    build = prepare_build(order, bindings, staging)
    try:
        build.run()
    except BuildError as error:
        raise _explained(error, order, bindings) from None
    shutil.rmtree(staging / OBJECTS)
    (staging / CONTENTS).write_text(module_contents(bindings, order.request.language), encoding="utf-8")
    kept = (LIBRARY, CONTENTS, *_write_log(build), *_write_commands(build), *_generated_sources(build))
    return BuildOutput(kept, *build.looked_at(), recorded=build.recorded, unknown=tuple(build.unknown))


def _explained(error: BuildError, order: BuildOrder, bindings: Mapping[str, Sequence[Binding]]) -> BuildError:
    """Return the failure with the module's name, its first real error, and a hint at a similar header."""
    from be_runtime.compile.hints import missing_header
    from be_runtime.compile.messages import explained, near_header

    request = order.request
    sources = {source.name: source.text for unit in request.units for source in unit.sources}
    calls = [(binding.entry.source, binding.entry.line) for found in bindings.values() for binding in found]
    where = "" if request.name in error.message else f" (module {request.name})"
    shown = explained(error, sources, calls, is_cuda=request.language == "cuda", where=where)
    header = missing_header(shown.first_error)
    if header and (near := near_header(header, request, order.tools, order.system)):
        shown.hints = (f"did you mean {near}?",)
    return shown


def _write_log(build: Build) -> tuple[str, ...]:
    """Write the log into the build folder; all of it, or the compilers' warnings, to standard error."""
    log = render_log(build.steps)
    if build.order.verbose:
        sys.stderr.write(printable(log))
    elif any(step.output for step in build.steps):  # most builds say nothing
        from be_runtime.compile.messages import find_warnings, warnings_text

        if warned := find_warnings(step.output for step in build.steps):
            sys.stderr.write(printable(f"{warnings_text(build.order.request.name, warned)}\n"))
    return _write_if_it_fits(build.staging, LOG, log)


def _write_commands(build: Build) -> tuple[str, ...]:
    """Write the compile commands of the author's files for editors; an inline source has no file."""
    units = build.order.request.units
    commands = {unit.path: build.units[unit.stem].command for unit in units if unit.path is not None}
    if not commands:
        return ()
    from be_runtime.compile import plan

    return _write_if_it_fits(build.staging, plan.FILE, plan.render_commands(commands))


def _write_if_it_fits(folder: Path, name: str, text: str) -> tuple[str, ...]:
    """Write a file that a build can do without. Return its name, or nothing if it can't be written."""
    try:
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return (name,)


def _generated_sources(build: Build) -> tuple[str, ...]:
    """Return the generated sources in the build folder, which are kept for readers of compiler messages."""
    return tuple(unit.unit.source for unit in build.units.values() if (build.staging / unit.unit.source).is_file())
