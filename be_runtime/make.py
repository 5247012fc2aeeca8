"""How a module that is not in the cache is made: entry points, plan, build, and what was read."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from be_toolchain import Toolchain
from be_toolchain.system import System

from . import handler_object
from .bind import bind
from .build import flags, graph
from .build.dependencies import read_from_outside
from .build.execute import Run, Step, execute, render_log
from .build.jobs import available_memory_bytes, job_count
from .build.plan import BuildPlan, Edge, UnitBuild
from .build.programs import fast_linker_flags, resolve_ninja
from .build.progress import Progress
from .built import Built
from .cache import BuildOutput, Store
from .codegen import Binding
from .contents import CONTENTS, Handlers, render_contents
from .errors import BuildError
from .looked_for import HeaderSearch, linked_files
from .module import LIBRARY
from .options import BuildRequest
from .settings import Settings
from .tools import Tools

if TYPE_CHECKING:
    from .preamble import Preamble

LOG = "build.log"


class Maker(NamedTuple):
    """One build.

    Parameters
    ----------
    request : BuildRequest
    tools : Tools
    system : System
    settings : Settings
    store : Store
        Keeps what belongs to the toolchain: the compiled handler, nvcc's dry runs.
    toolchain : Toolchain
    jobs : int or None
        Commands at a time, as the caller asked.
    verbose : bool
        Whether the commands and their output go to standard error.
    objects : Store
        Keeps the objects of a folder's files.
    force : bool
        Whether those that are kept are made again too.
    """

    request: BuildRequest
    tools: Tools
    system: System
    settings: Settings
    store: Store
    toolchain: Toolchain
    jobs: int | None
    verbose: bool
    objects: Store
    force: bool

    def make(self, staging: Path) -> BuildOutput:
        """Make the library in a folder.

        Raises
        ------
        SpecError
            The entry points can't be understood.
        BuildError
            A command failed.
        """
        bindings = bind(self.request)
        launcher = self.settings.compiler_launcher
        preamble = None if launcher else self._find_preamble()
        units = graph.plan_units(self.request, bindings, self.tools, None if launcher else self._split)
        handler = handler_object.find(self.tools, self.toolchain, self.store)
        try:
            built = self._build(units, handler, preamble, staging)
        except BuildError as error:
            raise _explained(error, self.request, bindings) from None
        if handler is None:
            handler_object.keep(self.tools, self.toolchain, self.store, staging)
        shutil.rmtree(staging / "obj")
        (staging / CONTENTS).write_text(_contents(bindings), encoding="utf-8")
        headers = self._headers().of_units(self.request.units, built.read)
        linked = linked_files(self.request.compile.ldflags, self.tools, self.system)
        optional = (*self._write_log(built.steps, staging), *self._write_commands(units, staging))
        kept = (LIBRARY, CONTENTS, *optional, *_generated_sources(units, staging))
        return BuildOutput(
            outputs=kept,
            dependencies=(*built.read, *headers.present, *linked.files),
            absent=(*headers.absent, *linked.absent),
            recorded=built.recorded,
        )

    def _build(
        self, units: Mapping[str, UnitBuild], handler: str | None, preamble: Preamble | None, staging: Path
    ) -> Built:
        """Run the commands."""
        link = self._link_command()

        def plan(units: Mapping[str, UnitBuild]) -> BuildPlan:
            aside = None
            if preamble is not None:
                units = {stem: preamble.use(build) for stem, build in units.items()}
                aside = preamble.making
            whole = graph.plan_build(self.request, units, self.tools, link, handler, aside)
            return graph.with_compiler_launcher(whole, self.settings.compiler_launcher)

        with Progress(self.request.name, plan(units).edges) as progress:
            run = self._runner(staging, progress)
            if len(units) == 1:
                steps = run(plan(units), meanwhile=_import_what_follows)
                (build,) = units.values()
                built = Built(steps, read_from_outside(build.depfiles, staging), None)
            else:
                from .folder import build_folder, separate_names
                from .unit_objects import UnitObjects

                objects = UnitObjects(self.request, self._headers(), self.toolchain, self.objects, self.force)
                separate = partial(separate_names, link=link, staging=staging, tools=self.tools, system=self.system)
                built = build_folder(units, plan, separate, run, objects, staging)
            if preamble is not None:
                preamble.keep(self.store, staging, run)
            progress.conclude({step.edge.description: step.seconds or 0.0 for step in built.steps})
        return built

    def _runner(self, staging: Path, progress: Progress) -> Run:
        """What runs a plan's commands in the build folder; all that it runs share one time limit."""
        ninja, jobs = resolve_ninja(self.system), self._job_count()
        stop_at = time.monotonic() + self.settings.compile_timeout_s

        def run(
            plan: BuildPlan,
            *,
            targets: Sequence[str] = (),
            meanwhile: Callable[[], None] | None = None,
            on_success: Callable[[Edge], None] | None = None,
        ) -> tuple[Step, ...]:
            return execute(
                plan,
                staging,
                ninja=ninja,
                jobs=jobs,
                environ=self.system.environ,
                timeout_s=max(round(stop_at - time.monotonic(), 2), 0.01),
                targets=targets,
                on_finish=progress.finish,
                on_success=on_success,
                meanwhile=meanwhile,
            )

        return run

    def _headers(self) -> HeaderSearch:
        return HeaderSearch.of(self.request.compile, self.tools, self.system)

    def _link_command(self) -> flags.LinkCommand:
        toolkit = self.tools.cuda
        folders = () if toolkit is None else (*toolkit.library_dirs, *self.tools.library_dirs)
        ldflags = (*fast_linker_flags(self.tools.cxx.path, self.system), *self.request.compile.ldflags)
        return flags.link(self.tools.cxx, toolkit, ldflags, folders, self.system.list_dir)

    def _split(self, command: Sequence[str], source: str, target: str) -> UnitBuild | None:
        toolkit = self.tools.cuda
        assert toolkit is not None, "only CUDA sources have phases"
        if toolkit.nvcc is None:
            from .clang_phases import clang_phases

            compiler = self.tools.cxx.path
            return clang_phases(command, source, target, ptxas=toolkit.ptxas, compiler=compiler, system=self.system)
        from .nvcc_phases import phases_for

        stem = Path(source).stem
        return phases_for(command, stem, toolchain=self.toolchain, system=self.system, store=self.store)

    def _find_preamble(self) -> Preamble | None:
        """The precompiled beginning of CUDA sources, for g++ behind nvcc's phases."""
        toolkit, options = self.tools.cuda, self.request.compile
        if toolkit is None or toolkit.nvcc is None or not flags.allows_phases(options.cflags):
            return None
        if self.tools.cxx.family != "gcc":
            return None
        from .preamble import find_preamble

        command = graph.compile_command(self.request, self.tools)
        store, toolchain = self.store, self.toolchain
        return find_preamble(command, self.request, self.tools, toolchain=toolchain, system=self.system, store=store)

    def _job_count(self) -> int:
        memory = None if self.jobs else available_memory_bytes(self.system)
        return job_count(len(os.sched_getaffinity(0)), memory, wanted=self.jobs, limit=self.settings.max_jobs)

    def _write_log(self, steps: Sequence[Step], staging: Path) -> tuple[str, ...]:
        log = render_log(steps)
        if self.verbose:
            sys.stderr.write(log)
        return _write_if_it_fits(staging, LOG, log)

    def _write_commands(self, units: Mapping[str, UnitBuild], staging: Path) -> tuple[str, ...]:
        """Note for editors how the author's files are compiled; an inline source is no file of theirs."""
        commands = {unit.path: units[unit.stem].command for unit in self.request.units if unit.path is not None}
        if not commands:
            return ()
        from . import compile_commands

        return _write_if_it_fits(staging, compile_commands.FILE, compile_commands.render_commands(commands))


def _write_if_it_fits(folder: Path, name: str, text: str) -> tuple[str, ...]:
    """Write a file that a build can do without; its name, or none where the disk is full."""
    try:
        (folder / name).write_text(text, encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ()
    return (name,)


def _import_what_follows() -> None:
    """Import, while the compilers run, what is needed when they are done."""
    from .cache import pruning, publish  # noqa: F401


def _contents(bindings: Mapping[str, Sequence[Binding]]) -> str:
    return render_contents(
        {
            binding.export: Handlers(binding.handler(allow_cuda_graph=False), binding.handler(allow_cuda_graph=True))
            for found in bindings.values()
            for binding in found
        }
    )


def _generated_sources(units: Mapping[str, UnitBuild], staging: Path) -> tuple[str, ...]:
    """The generated sources that are in the build folder, for whoever reads a compiler's message."""
    paths = (file.path for build in units.values() for file in build.files)
    return tuple(path for path in paths if path.startswith("src/") and (staging / path).is_file())


def _explained(error: BuildError, request: BuildRequest, bindings: Mapping[str, Sequence[Binding]]) -> BuildError:
    """The same failure with the module's name and its first real error."""
    from .build.diagnose import explained

    sources = {source.name: source.text for unit in request.units for source in unit.sources}
    calls = [(binding.entry.source, binding.entry.line) for found in bindings.values() for binding in found]
    where = "" if request.name in error.message else f" (module {request.name})"
    return explained(error, sources, calls, where=where)
