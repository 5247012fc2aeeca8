"""Build a module for the cache or for a report, and choose the files to keep."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime import trace
from be_runtime.compile import codegen, execute, flags, graph, inputs
from be_runtime.compile.codegen_values import Binding
from be_runtime.compile.plan import (
    FILE,
    LIBRARY,
    LINKING,
    OBJECTS,
    BuildOrder,
    BuildPlan,
    Edge,
    Tool,
    UnitBuild,
    render_commands,
    unit_files,
)
from be_runtime.compile.progress import Progress
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.jax.port import PLATFORMS
from be_runtime.store import artifact, cache, index, publish
from be_toolchain.arch import Arch
from be_toolchain.errors import correct
from be_toolchain.find.record import ObservingSystem
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import printable

if TYPE_CHECKING:
    from be_runtime.compile.nvcc_preamble import Preamble


class ModuleBuild:
    """The build of one module; `run` shows the order of its steps.

    Parameters
    ----------
    order : BuildOrder
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    staging : Path
        The build folder.

    Attributes
    ----------
    units : dict of str to UnitBuild
        The commands that compile each unit, by the unit's stem.
    steps : list of Step
        The commands that ran for the module.
    """

    def __init__(self, order: BuildOrder, bindings: Mapping[str, Sequence[Binding]], staging: Path) -> None:
        request, tools, settings, system = order.request, order.tools, order.settings, order.system
        self.order, self.staging = order, staging
        self.steps: list[execute.Step] = []
        self._incomplete: list[str] = []
        self._reused: dict[str, inputs.LookedAt] = {}
        self._compiled: dict[str, inputs.LookedAt] = {}

        launcher = settings.compiler_launcher
        if launcher and system.which(launcher[0]) is None:
            message = f"BE_COMPILER_LAUNCHER names {launcher[0]!r}, a program that was not found"
            raise ArgumentError(message, hints=(correct("BE_COMPILER_LAUNCHER"),))
        command = graph.compile_command(request, tools)
        self._preamble: Preamble | None = None
        phases: dict[str, UnitBuild | None] = {}
        # A compiler launcher needs the whole command, and some flags of an author change the phases.
        if tools.cuda is not None and not launcher and flags.allows_phases(request.compile.cflags):
            compiler = graph.cuda_compiler(tools)
            self._preamble = compiler.preamble(command, order)
            for unit in request.units:
                phases[unit.stem] = compiler.phases(command, unit_files(unit.stem, request.language), order)
        self.units = graph.plan_units(request, bindings, command, phases)
        self._handler = graph.find_handler(order)
        self._kept = inputs.LookedAt() if self._preamble is None else self._preamble.looked_at

        listing = ObservingSystem(system)
        self._link = _link_command(order, listing)
        self._listed = inputs.LookedAt.of_listings(listing)
        self._observer = inputs.Observer(order, staging)
        memory = None if order.jobs else execute.available_memory_bytes(system)
        self._runner = execute.Runner(
            staging,
            ninja=execute.resolve_ninja(system),
            jobs=execute.job_count(len(os.sched_getaffinity(0)), memory, wanted=order.jobs, limit=settings.max_jobs),
            environ=system.environ,
            timeout_s=settings.compile_timeout_s,
        )
        self._recorded = cache.Recorded(
            began_ns=publish.build_began(str(staging), time.time_ns()),
            taken_ns=time.time_ns(),
            records={
                **(self._handler.records if self._handler is not None else {}),
                **(self._preamble.records if self._preamble is not None else {}),
            },
        )

    def run(self) -> None:
        """Make the library; hash the inputs of a command while other commands run.

        Raises
        ------
        BuildError
            A command failed. The cache keeps the objects that were made.
        """
        for name, data in self.order.request.files:
            (self.staging / name).write_bytes(data)
        if len(self.units) > 1:
            self._reused = graph.reuse_objects(self.order, self.units, self.staging)
        try:
            self._run_commands()
        except (BuildError, FileNotFoundError):
            if self._has_all_kept():
                raise
            self._handler, self._preamble, self._kept, self.steps = None, None, inputs.LookedAt(), []
            self._run_commands()

    def output(self, kept: Sequence[str]) -> cache.BuildOutput:
        """Return the result of the build: the files to keep, and the files and absent paths that they depend on."""
        tools, system = self.order.tools, self.order.system
        deciding = () if tools.cuda is None else graph.cuda_compiler(tools).phase_inputs()
        parts = (
            *self._compiled.values(),
            *self._reused.values(),
            self._linking_looked_at(),
            self._listed,
            inputs.LookedAt(others=tuple(str(path) for path in deciding if system.is_file(path))),
        )
        # An entry whose records are incomplete is kept for nobody else.
        return cache.BuildOutput(
            tuple(kept), *inputs.LookedAt.merged(parts), recorded=self._recorded, unknown=tuple(self._incomplete)
        )

    def _has_all_kept(self) -> bool:
        """Return whether all files of earlier builds still exist, since another process may remove them."""
        entry = self._preamble.entry if self._preamble is not None else None
        return (self._handler is None or Path(self._handler.path).is_file()) and (entry is None or entry.is_there())

    def _run_commands(self) -> None:
        order, plan = self.order, self._plan()
        with Progress(order.request.name, plan.commands) as progress:
            if len(self.units) > 1:
                made = {name for edge in plan.edges for name in edge.outputs}
                targets = (*(name for name in plan.objects if name in made), *plan.aside)
                if targets:
                    self._run(plan, progress, targets)
                plan = graph.separate_names(plan, self._link, self.staging, order.tools.cxx.path, order.system)
            self._run(plan, progress)
            if self._preamble is not None and not self._incomplete:
                self._preamble.keep(order.toolchain_store, self._runner, self._observer)
            progress.conclude({step.edge.description: step.seconds or 0.0 for step in self.steps})
        if (self._handler is None or not self._handler.is_kept) and not self._incomplete:
            # A link with the author's flags reads files that other links don't need.
            linked = () if order.request.compile.ldflags else self._linking_looked_at().others
            graph.keep_handler(order, self.staging, self._observer, linked)

    def _plan(self) -> BuildPlan:
        """Plan the remaining commands."""
        units, aside = dict(self.units), None
        for stem in self._reused:
            units[stem] = units[stem]._replace(edges=(), files=())
        if self._preamble is not None:
            units = {stem: self._preamble.use(build) for stem, build in units.items()}
            aside = self._preamble.making
        handler = self._handler.path if self._handler is not None else None
        plan = graph.plan_build(self.order.request, units, self.order.tools, self._link, handler, aside)
        return graph.with_compiler_launcher(plan, self.order.settings.compiler_launcher)

    def _run(self, plan: BuildPlan, progress: Progress, targets: tuple[str, ...] = ()) -> None:
        """Run commands, and record the inputs of each unit as soon as it is compiled."""
        watched = self._observer.watch(plan)
        with trace.span("ninja"), self._runner.started(watched, targets=targets, progress=progress) as steps:
            # A file may have changed since it was hashed, and another unit may have been compiled with the new file.
            self._record(inputs.LookedAt.merged(self._compiled.values()))
            for step in steps:
                self.steps.append(step)
                if inputs.is_incomplete(step.output):
                    self._incomplete.append(f"a file that was not recorded while {step.edge.description}")
                if not step.failed:
                    self._record_unit(step.edge)

    def _record_unit(self, edge: Edge) -> None:
        """Hash the inputs of a unit if this was its last command, and keep its object if the module is a folder's."""
        stem = next((stem for stem, build in self.units.items() if build.unit.object in edge.outputs), None)
        if stem is None:
            return
        build = self.units[stem]
        looked_at = inputs.LookedAt.merged((self._observer.looked_at(build.edges), self._kept))
        self._compiled[stem] = looked_at
        self._record(looked_at)
        if len(self.units) > 1 and not self._incomplete:
            graph.publish_object(self.order, build, self.staging, looked_at, self._recorded)

    def _record(self, looked_at: inputs.LookedAt) -> None:
        with trace.span("hash inputs", files=len(looked_at.files)):
            self._recorded = publish.record_files(looked_at.files, self._recorded)

    def _linking_looked_at(self) -> inputs.LookedAt:
        return self._observer.looked_at(step.edge for step in self.steps if step.edge.tool in LINKING)


def _link_command(order: BuildOrder, system: ObservingSystem) -> flags.LinkCommand:
    """Make the linker's command; `system` records the folders that are listed for it."""
    tools, options = order.tools, order.request.compile
    folders = () if tools.cuda is None else (*tools.cuda.library_dirs, *tools.library_dirs)
    ldflags = (
        *execute.fast_linker_flags(tools.cxx.path, system),
        *flags.sanitizer_flags(options)[:1],
        *flags.stream_wraps(options),
        *options.ldflags,
    )
    return flags.link(tools.cxx, tools.cuda, ldflags, folders, system.list_dir)


_LIST = "measured.json"
_LOOPS = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"),
}
"""Flags with which a compiler lists the loops that it vectorizes, and the loops that it can't."""

_ARCH = r"(?:-arch=|--gpu-name=)?(sm_\w+)"
LOG = f"{index.IMAGES}/build.log"


class MeasuredStep(NamedTuple):
    """A command of a build: its role, its whole output, and its seconds."""

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


def measure_build(order: BuildOrder, staging: Path, *, loops: bool = False) -> cache.BuildOutput:
    """Build the whole library of an order in a folder, with ptxas's report and the host compiler's report of loops.

    Raises
    ------
    SpecError, BuildError
        As for `make_module`.
    """
    alone = order._replace(force=True, module_store=cache.Cache(staging / OBJECTS))  # these objects are deleted below
    build = ModuleBuild(alone, codegen.bind(order.request), staging)
    asked = _LOOPS[order.tools.cxx.family] if loops and order.request.language == "cpp" else ()
    for stem, unit in build.units.items():
        build.units[stem] = unit._replace(edges=tuple(_verbose(edge, asked) for edge in unit.edges))
    build.run()
    cubins: list[tuple[str, str]] = []
    for edge in (step.edge for step in build.steps if step.edge.tool == "ptxas"):
        cubin = next((name for name in edge.outputs if name.endswith(".cubin")), None)
        arch = next((match[1] for part in edge.argv if (match := re.fullmatch(_ARCH, part))), None)
        if cubin is not None and arch is not None:
            cubins.append((arch, f"{len(cubins)}.cubin"))
            shutil.move(staging / cubin, staging / cubins[-1][1])
    shutil.rmtree(staging / OBJECTS)
    steps = [(step.edge.tool, step.output, step.seconds or 0.0) for step in build.steps]
    (staging / _LIST).write_text(json.dumps({"steps": steps, "cubins": cubins}), encoding="utf-8")
    return build.output((_LIST, LIBRARY, *(name for _, name in cubins)))


def read_measured(entry: cache.Entry) -> Measured:
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


def make_module(order: BuildOrder, staging: Path) -> cache.BuildOutput:
    """Build the library of an order in a folder.

    Raises
    ------
    SpecError
        An entry point's declaration is wrong.
    BuildError
        A command failed.
    """
    with trace.span("generate"):
        bindings = codegen.bind(order.request)
    with trace.span("plan"):
        build = ModuleBuild(order, bindings, staging)
    try:
        build.run()
    except BuildError as error:
        raise _explained(error, order, bindings) from None
    shutil.rmtree(staging / OBJECTS)
    language = order.request.language
    archs = tuple(map(str, order.tools.archs)) if language == "cuda" else ()
    warnings: tuple[str, ...] = ()
    if language == "cuda" and any("warning #" in step.output for step in build.steps):
        from be_runtime.compile.messages import device_code_warnings

        warnings = device_code_warnings(step.output for step in build.steps)
    record = index.ModuleRecord(language, "", codegen.module_contents(bindings, language, warnings), {})
    names = artifact.keep_library(
        staging, LIBRARY, index.CodeImage("library", PLATFORMS[language], 0, archs), {order.request.name: record}
    )
    # Compilers' messages refer to the generated sources.
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


def _write_log(build: ModuleBuild) -> tuple[str, ...]:
    """Write the log into the build folder, and the log or the compilers' warnings to standard error."""
    log = execute.render_log(build.steps)
    if build.order.verbose:
        sys.stderr.write(printable(log))
    elif any(step.output for step in build.steps):  # most builds have no output
        from be_runtime.compile.messages import find_warnings, is_about_device_code, warnings_text

        found = find_warnings(step.output for step in build.steps)
        if warned := tuple(line for line in found if not is_about_device_code(line)):  # a load warns of the others
            sys.stderr.write(printable(f"{warnings_text(build.order.request.name, warned)}\n"))
    return _write_if_it_fits(build.staging, LOG, log)


def _write_commands(build: ModuleBuild) -> tuple[str, ...]:
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
