"""Builds of a module that the cache lacks, and of one that a report measures, and the files that are kept."""

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
from be_runtime.compile.plan import FILE, LIBRARY, OBJECTS, BuildOrder, Edge, Tool, render_commands
from be_runtime.compile.prepare import Build
from be_runtime.errors import BuildError
from be_runtime.jax.port import PLATFORMS
from be_runtime.store.artifact import keep_library
from be_runtime.store.cache import BuildOutput, Cache, Entry
from be_runtime.store.index import IMAGES, CodeImage, ModuleRecord
from be_toolchain.arch import Arch
from be_toolchain.terminal import printable

_LIST = "measured.json"
_LOOPS = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"),
}
"""Flags with which a compiler lists the loops that it vectorizes, and the loops that it can't."""

_ARCH = re.compile(r"(?:-arch=|--gpu-name=)?(sm_\w+)")
LOG = f"{IMAGES}/build.log"


class MeasuredStep(NamedTuple):
    """A command of a build: its role, all its output, and its seconds."""

    tool: Tool
    output: str
    seconds: float


class Measured(NamedTuple):
    """A build for a report.

    Parameters
    ----------
    steps : tuple of MeasuredStep
    cubins : tuple of (Arch, Path)
        The device code of each unit and architecture; empty if the CUDA compiler ran as a whole.
    library : Path
    """

    steps: tuple[MeasuredStep, ...]
    cubins: tuple[tuple[Arch, Path], ...]
    library: Path


def measure_build(order: BuildOrder, staging: Path, *, loops: bool = False) -> BuildOutput:
    """Build the whole library of an order in a folder, with ptxas's report and the host compiler's report of loops.

    Raises
    ------
    SpecError, BuildError
        As for `make_module`.
    """
    alone = order._replace(force=True, module_store=Cache(staging / OBJECTS))  # these objects are deleted below
    build = Build(alone, bind(order.request), staging)
    asked = _LOOPS[order.tools.cxx.family] if loops and order.request.language == "cpp" else ()
    for stem, unit in build.units.items():
        build.units[stem] = unit._replace(edges=tuple(_verbose(edge, asked) for edge in unit.edges))
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
    return build.output((_LIST, LIBRARY, *(name for _, name in cubins)))


def read_measured(entry: Entry) -> Measured:
    """Read the files that `measure_build` wrote."""
    listed = json.loads(entry.output(_LIST).read_bytes())
    cubins = ((Arch.parse(arch), entry.output(name)) for arch, name in listed["cubins"])
    return Measured(tuple(MeasuredStep(*step) for step in listed["steps"]), tuple(cubins), entry.output(LIBRARY))


def _verbose(edge: Edge, asked: Sequence[str]) -> Edge:
    """Return a command with which ptxas, by itself or within nvcc or clang, prints resources; compilers get `asked`."""
    flags: tuple[str, ...] = ()
    if edge.tool == "ptxas":
        flags = ("-v",)
    elif edge.tool == "compile":
        program = Path(edge.argv[0]).name
        is_device = any(part.endswith(".cu") for part in edge.argv)
        is_whole = "cuda" in edge.argv and not any(part.startswith("--cuda-host-only") for part in edge.argv)
        if is_device and program == "nvcc":
            flags = ("-Xptxas", "-v")
        elif is_device and "clang" in program and is_whole and "-S" not in edge.argv:
            flags = ("-Xcuda-ptxas", "-v")
        flags += tuple(asked)
    return edge._replace(argv=(*edge.argv, *flags))


def make_module(order: BuildOrder, staging: Path) -> BuildOutput:
    """Build the library of an order in a folder.

    Raises
    ------
    SpecError
        An entry point's declaration is wrong.
    BuildError
        A command failed.
    """
    bindings = bind(order.request)
    build = Build(order, bindings, staging)
    try:
        build.run()
    except BuildError as error:
        raise _explained(error, order, bindings) from None
    shutil.rmtree(staging / OBJECTS)
    language = order.request.language
    archs = tuple(map(str, order.tools.archs)) if language == "cuda" else ()
    record = ModuleRecord(language, "", module_contents(bindings, language), {})
    names = keep_library(
        staging, LIBRARY, CodeImage("library", PLATFORMS[language], 0, archs), {order.request.name: record}
    )
    # Readers of compiler messages need the generated sources.
    paths = [unit.unit.source for unit in build.units.values()]
    sources = (path for path in paths if (staging / path).is_file())
    return build.output((*names, *_write_log(build), *_write_commands(build), *sources))


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
    """Write the log into the build folder, and the log or the compilers' warnings to standard error."""
    log = render_log(build.steps)
    if build.order.verbose:
        sys.stderr.write(printable(log))
    elif any(step.output for step in build.steps):  # most builds print nothing
        from be_runtime.compile.messages import find_warnings, warnings_text

        if warned := find_warnings(step.output for step in build.steps):
            sys.stderr.write(printable(f"{warnings_text(build.order.request.name, warned)}\n"))
    return _write_if_it_fits(build.staging, LOG, log)


def _write_commands(build: Build) -> tuple[str, ...]:
    """Write the compile commands of the author's files for editors."""
    units = build.order.request.units
    commands = {unit.path: build.units[unit.stem].command for unit in units if unit.path is not None}
    return _write_if_it_fits(build.staging, FILE, render_commands(commands)) if commands else ()


def _write_if_it_fits(folder: Path, name: str, text: str) -> tuple[str, ...]:
    """Write an optional file, and return its name; empty if the file can't be written."""
    try:
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return (name,)
