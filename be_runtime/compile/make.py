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

from be_runtime.cache import BuildOutput, Recorded, Store
from be_runtime.cache.publish import build_began
from be_runtime.compile import graph, handler_object
from be_runtime.compile.built import Built, UnitNotes
from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.graph import HANDLER_OBJECT
from be_runtime.compile.inputs.header_search import include_folders
from be_runtime.compile.inputs.observe import LookedAt, Observer, make_observer
from be_runtime.compile.machine import Machine
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import BuildPlan, Edge, UnitBuild
from be_runtime.compile.run.execute import Run, Step, execute, render_log
from be_runtime.compile.run.jobs import available_memory_bytes, job_count
from be_runtime.compile.run.programs import fast_linker_flags, resolve_ninja
from be_runtime.compile.run.progress import Progress
from be_runtime.errors import BuildError
from be_runtime.generate.bind import bind
from be_runtime.generate.codegen import Binding
from be_runtime.generate.contents import CONTENTS, LIBRARY, Handlers, render_contents
from be_runtime.request.options import BuildRequest, Language
from be_runtime.request.tools import Tools
from be_runtime.settings import Settings
from be_runtime.spec.model import EntryPoint, Role
from be_toolchain import Toolchain
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable

if TYPE_CHECKING:
    from be_runtime.compile.handler_object import Handler
    from be_runtime.compile.nvcc.keep_preamble import Preamble

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
        observer = self._observer(staging)
        try:
            built = self._build(units, handler, preamble, observer)
        except BuildError as error:
            raise self._explained(error, bindings) from None
        if handler is None:
            linked = () if self.request.compile.ldflags else built.linked
            handler_object.keep(self.tools, self.toolchain, self.store, staging, observer, linked)
        shutil.rmtree(staging / "obj")
        (staging / CONTENTS).write_text(_contents(bindings, self.request.language), encoding="utf-8")
        optional = (*self._write_log(built.steps, staging), *self._write_commands(units, staging))
        kept = (LIBRARY, CONTENTS, *optional, *_generated_sources(units, staging))
        return BuildOutput(kept, *built.looked_at, recorded=built.recorded)

    def _build(
        self, units: Mapping[str, UnitBuild], handler: Handler | None, preamble: Preamble | None, observer: Observer
    ) -> Built:
        """Run the commands."""
        staging, link = observer.staging, self._link_command()
        recorded = Recorded(
            began_ns=build_began(str(staging), time.time_ns()),
            taken_ns=time.time_ns(),
            records={
                **(handler.records if handler is not None else {}),
                **(preamble.records if preamble is not None else {}),
            },
        )
        kept = preamble.looked_at if preamble is not None else LookedAt()

        def plan(units: Mapping[str, UnitBuild]) -> BuildPlan:
            aside = None
            if preamble is not None:
                units = {stem: preamble.use(build) for stem, build in units.items()}
                aside = preamble.making
            compiled = handler.path if handler is not None else None
            whole = graph.plan_build(self.request, units, self.tools, link, compiled, aside)
            return graph.with_compiler_launcher(whole, self.settings.compiler_launcher)

        with Progress(self.request.name, plan(units).edges) as progress:
            run = self._runner(observer, progress)
            if len(units) == 1:
                (build,) = units.values()
                notes = UnitNotes(build, observer, kept, recorded)
                steps = run(plan(units), meanwhile=_import_what_follows, on_success=notes.take)
                built = notes.built(steps)
            else:
                from be_runtime.compile.folder_build import build_folder, separate_names
                from be_runtime.compile.unit_objects import UnitObjects

                objects = UnitObjects(
                    request=self.request,
                    observer=observer,
                    kept=kept,
                    toolchain=self.toolchain,
                    programs=self.tools.programs,
                    store=self.objects,
                    force=self.force,
                )
                separate = partial(separate_names, link=link, staging=staging, tools=self.tools, system=self.system)
                built = build_folder(units, plan, separate, run, objects, staging, recorded)
            if preamble is not None:
                preamble.keep(self.store, staging, run, observer)
            progress.conclude({step.edge.description: step.seconds or 0.0 for step in built.steps})
        apart = [*units.values(), *((preamble.making,) if preamble is not None and preamble.making is not None else ())]
        others = {HANDLER_OBJECT, *(name for build in apart for edge in build.edges for name in edge.outputs)}
        linking = observer.looked_at(step.edge for step in built.steps if others.isdisjoint(step.edge.outputs))
        whole = LookedAt.merged((built.looked_at, linking, self._asked()))
        return built._replace(looked_at=whole, linked=linking.others)

    def _observer(self, staging: Path) -> Observer:
        """What watches the commands of this build."""
        options = self.request.compile
        sources = [unit.path.parent for unit in self.request.units if unit.path is not None]
        return make_observer(
            self.tools.cxx,
            self.toolchain,
            self.system,
            (self.store, self.objects),
            staging,
            launcher=self.settings.compiler_launcher,
            folders=(*sources, *options.include_paths, *map(Path, include_folders(options.cflags))),
        )

    def _asked(self) -> LookedAt:
        """What the CUDA compiler was asked beforehand, for the phases that run without it."""
        files = () if self.tools.cuda is None else cuda_compiler(self.tools).asked()
        return LookedAt(others=tuple(str(path) for path in files if self.system.is_file(path)))

    def _runner(self, observer: Observer, progress: Progress) -> Run:
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
                observer.watch(plan),
                observer.staging,
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

    def _link_command(self) -> flags.LinkCommand:
        toolkit = self.tools.cuda
        folders = () if toolkit is None else (*toolkit.library_dirs, *self.tools.library_dirs)
        ldflags = (*fast_linker_flags(self.tools.cxx.path, self.system), *self.request.compile.ldflags)
        return flags.link(self.tools.cxx, toolkit, ldflags, folders, self.system.list_dir)

    def _split(self, command: Sequence[str], source: str, target: str) -> UnitBuild | None:
        return cuda_compiler(self.tools).phases(command, source, target, self._machine())

    def _find_preamble(self) -> Preamble | None:
        """The precompiled beginning of CUDA sources."""
        if self.tools.cuda is None or not flags.allows_phases(self.request.compile.cflags):
            return None
        command = graph.compile_command(self.request, self.tools)
        return cuda_compiler(self.tools).preamble(command, self.request, self.tools, self._machine())

    def _machine(self) -> Machine:
        return Machine(self.toolchain, self.system, self.store)

    def _explained(self, error: BuildError, bindings: Mapping[str, Sequence[Binding]]) -> BuildError:
        """The same failure with the module's name, its first real error and what may have been meant."""
        from be_runtime.compile.messages.diagnose import explained
        from be_runtime.compile.messages.hints import missing_header
        from be_runtime.compile.messages.near_header import near_header

        request = self.request
        sources = {source.name: source.text for unit in request.units for source in unit.sources}
        calls = [(binding.entry.source, binding.entry.line) for found in bindings.values() for binding in found]
        where = "" if request.name in error.message else f" (module {request.name})"
        shown = explained(error, sources, calls, where=where)
        header = missing_header(shown.first_error)
        if header and (near := near_header(header, request, self.tools, self.system)):
            shown.hints = (f"did you mean {near}?",)
        return shown

    def _job_count(self) -> int:
        memory = None if self.jobs else available_memory_bytes(self.system)
        return job_count(len(os.sched_getaffinity(0)), memory, wanted=self.jobs, limit=self.settings.max_jobs)

    def _write_log(self, steps: Sequence[Step], staging: Path) -> tuple[str, ...]:
        log = render_log(steps)
        if self.verbose:
            sys.stderr.write(printable(log))
        return _write_if_it_fits(staging, LOG, log)

    def _write_commands(self, units: Mapping[str, UnitBuild], staging: Path) -> tuple[str, ...]:
        """Note for editors how the author's files are compiled; an inline source is no file of theirs."""
        commands = {unit.path: units[unit.stem].command for unit in self.request.units if unit.path is not None}
        if not commands:
            return ()
        from be_runtime.compile.plan import compile_commands

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
    from be_runtime.cache import publish  # noqa: F401


def _contents(bindings: Mapping[str, Sequence[Binding]], language: Language) -> str:
    return render_contents(
        {
            binding.export: Handlers(
                plain=binding.handler(allow_cuda_graph=False),
                graph=binding.handler(allow_cuda_graph=True),
                warning=_race(binding.entry) if language == "cuda" else "",
            )
            for found in bindings.values()
            for binding in found
        }
    )


def _race(entry: EntryPoint) -> str:
    """What to say of launches that XLA knows nothing of; empty where none is seen."""
    if not entry.launches_out_of_order:
        return ""
    fault = "does not use its stream" if entry.with_role(Role.STREAM) else "has no stream"
    return (
        f"launches a kernel, but {fault}: XLA and the kernel do not wait for each other, so the kernel may read "
        "arguments before they are written, and its results may be read too early; take `int64_t stream` as a "
        "parameter and launch with <<<blocks, threads, 0, (cudaStream_t)stream>>>"
    )


def _generated_sources(units: Mapping[str, UnitBuild], staging: Path) -> tuple[str, ...]:
    """The generated sources that are in the build folder, for whoever reads a compiler's message."""
    paths = (file.path for build in units.values() for file in build.files)
    return tuple(path for path in paths if path.startswith("src/") and (staging / path).is_file())
