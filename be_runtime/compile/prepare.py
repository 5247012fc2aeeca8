"""Preparation of a build: results of earlier builds, the compiler's phases, and the runner of the commands."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.compile import flags, graph
from be_runtime.compile.codegen import Binding
from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.execute import Runner, Step, available_memory_bytes, fast_linker_flags, job_count, resolve_ninja
from be_runtime.compile.flags import LinkCommand
from be_runtime.compile.inputs import LookedAt, Observer, include_folders, is_incomplete, make_observer
from be_runtime.compile.plan import LINKING, BuildOrder, BuildPlan, Edge, UnitBuild, unit_files
from be_runtime.compile.progress import Progress
from be_runtime.errors import BuildError
from be_runtime.store.cache import Recorded
from be_runtime.store.publish import build_began, record_files
from be_toolchain.find.record import ObservingSystem

if TYPE_CHECKING:
    from be_runtime.compile.graph import Handler, UnitObjects
    from be_runtime.compile.nvcc_preamble import Preamble


class Build:
    """The build of one module in its folder; `run` shows the order of its steps.

    Parameters
    ----------
    order : BuildOrder
    units : dict of str to UnitBuild
        The commands that compile each unit, by its stem.
    link : LinkCommand
    preamble : Preamble or None
    handler : Handler or None
        None if it has to be compiled.
    observer : Observer
        Watches the commands.
    runner : Runner
        Runs them in the build folder.
    listed : LookedAt
        Folders that were listed to write the commands.
    recorded : Recorded
        Known hashes of files.

    Attributes
    ----------
    steps : list of Step
        The commands that ran for the module.
    unknown : list of str
        Commands whose records are not complete, in words. What such a build makes is kept for nobody else.
    """

    def __init__(
        self,
        order: BuildOrder,
        units: dict[str, UnitBuild],
        link: LinkCommand,
        preamble: Preamble | None,
        handler: Handler | None,
        *,
        observer: Observer,
        runner: Runner,
        listed: LookedAt,
        recorded: Recorded,
    ) -> None:
        self.order, self.units, self.recorded = order, units, recorded
        self.steps: list[Step] = []
        self.unknown: list[str] = []
        self._link, self._preamble, self._handler = link, preamble, handler
        self._observer, self._runner, self._listed = observer, runner, listed
        self._objects = self._kept_objects() if len(units) > 1 else None
        self._kept = LookedAt() if preamble is None else preamble.looked_at
        self._reused: dict[str, LookedAt] = {}
        self._compiled: dict[str, LookedAt] = {}

    @property
    def staging(self) -> Path:
        """The build folder."""
        return self._runner.folder

    def run(self) -> None:
        """Make the library. The files that a compiler looked at are hashed while other commands run.

        Raises
        ------
        BuildError
            A command failed. The objects that were made are kept in the cache nevertheless.
        """
        if self._objects is not None:
            self._reused = self._objects.reuse(self.units, self.staging)
        try:
            self._run_commands()
        except (BuildError, FileNotFoundError):
            if self._has_all_kept():
                raise
            self._handler, self._preamble, self._kept, self.steps = None, None, LookedAt(), []
            self._run_commands()

    def _has_all_kept(self) -> bool:
        """Return whether all files of earlier builds are still there: another process may remove them at any time."""
        entry = self._preamble.entry if self._preamble is not None else None
        return (self._handler is None or Path(self._handler.path).is_file()) and (entry is None or entry.is_there())

    def _run_commands(self) -> None:
        plan = self._plan()
        with Progress(self.order.request.name, plan.commands) as progress:
            if self._objects is not None:
                self._make_objects(plan, progress)
                plan = self._with_private_names(plan)
            self._run(plan, progress)
            if self._preamble is not None and not self.unknown:
                self._preamble.keep(self.order.toolchain_store, self._runner, self._observer)
            progress.conclude({step.edge.description: step.seconds or 0.0 for step in self.steps})
        if self._handler is None and not self.unknown:
            self._keep_handler()

    def looked_at(self) -> LookedAt:
        """Return the files and absent paths that the library depends on."""
        parts = (*self._compiled.values(), *self._reused.values(), self._linking_looked_at())
        return LookedAt.merged((*parts, self._listed, self._asked()))

    def _plan(self) -> BuildPlan:
        """Plan the commands that are left to run."""
        units = {
            stem: build._replace(edges=(), files=()) if stem in self._reused else build
            for stem, build in self.units.items()
        }
        aside, preamble, request = None, self._preamble, self.order.request
        if preamble is not None:
            units = {stem: preamble.use(build) for stem, build in units.items()}
            aside = preamble.making
        handler = self._handler.path if self._handler is not None else None
        plan = graph.plan_build(request, units, self.order.tools, self._link, handler, aside)
        return graph.with_compiler_launcher(plan, self.order.settings.compiler_launcher)

    def _make_objects(self, plan: BuildPlan, progress: Progress) -> None:
        """Run the commands before the link."""
        made = {name for edge in plan.edges for name in edge.outputs}
        targets = (*(name for name in plan.objects if name in made), *plan.aside)
        if targets:
            self._run(plan, progress, targets)

    def _run(self, plan: BuildPlan, progress: Progress, targets: tuple[str, ...] = ()) -> None:
        """Run commands, and record each unit as soon as it is compiled."""
        with self._runner.started(self._observer.watch(plan), targets=targets, progress=progress) as steps:
            # A file may have changed since it was hashed, and another unit may have been compiled with the new one.
            self._record(LookedAt.merged(self._compiled.values()))
            for step in steps:
                self.steps.append(step)
                if is_incomplete(step.output):
                    self.unknown.append(f"a file that was not recorded while {step.edge.description}")
                if not step.failed:
                    self._take_note(step.edge)

    def _take_note(self, edge: Edge) -> None:
        """Hash the inputs of a unit once its last command is done, and keep its object if the module is a folder's."""
        stem = next((stem for stem, build in self.units.items() if build.unit.object in edge.outputs), None)
        if stem is None:
            return
        build = self.units[stem]
        looked_at = LookedAt.merged((self._observer.looked_at(build.edges), self._kept))
        self._compiled[stem] = looked_at
        self._record(looked_at)
        if self._objects is not None and not self.unknown:
            self._objects.publish(build, self.staging, looked_at, self.recorded)

    def _record(self, looked_at: LookedAt) -> None:
        self.recorded = record_files(looked_at.files, self.recorded)

    def _with_private_names(self, plan: BuildPlan) -> BuildPlan:
        """Return the plan with each name that several of its objects define made private to its object."""
        from be_runtime.compile.graph import separate_names

        return separate_names(plan, self._link, self.staging, self.order.tools.cxx.path, self.order.system)

    def _kept_objects(self) -> UnitObjects:
        """Return the cached objects of a folder's files; a module of one file has no use for them."""
        from be_runtime.compile.graph import UnitObjects

        order = self.order
        return UnitObjects(order.request, order.toolchain, order.tools.programs, order.module_store, order.force)

    def _keep_handler(self) -> None:
        """Keep the handler, and the files that the link looked at if the author adds no linker flags."""
        order = self.order
        linked = () if order.request.compile.ldflags else self._linking_looked_at().others
        store, folder = order.toolchain_store, self.staging
        graph.keep(order.tools, order.toolchain, store, folder, self._observer, linked)

    def _linking_looked_at(self) -> LookedAt:
        return self._observer.looked_at(step.edge for step in self.steps if step.edge.tool in LINKING)

    def _asked(self) -> LookedAt:
        """Return the files that decide the CUDA compiler's phases, which no command of the build reads."""
        tools, system = self.order.tools, self.order.system
        files = () if tools.cuda is None else cuda_compiler(tools).asked()
        return LookedAt(others=tuple(str(path) for path in files if system.is_file(path)))


def prepare_build(order: BuildOrder, bindings: Mapping[str, Sequence[Binding]], staging: Path) -> Build:
    """Prepare the build of an order, ready to run.

    Parameters
    ----------
    order : BuildOrder
    bindings : mapping of str to sequence of Binding
        The entry points of each unit, by the unit's stem.
    staging : Path
        The build folder.
    """
    command = graph.compile_command(order.request, order.tools)
    preamble = _find_preamble(order, command)
    units = graph.plan_units(order.request, bindings, command, _find_phases(order, command))
    handler = graph.find(order.tools, order.toolchain, order.toolchain_store)
    system = ObservingSystem(order.system)
    return Build(
        order,
        units,
        _link_command(order._replace(system=system)),
        preamble,
        handler,
        observer=_observer(order, staging),
        runner=_runner(order, staging),
        listed=LookedAt.of_listings(system),
        recorded=Recorded(
            began_ns=build_began(str(staging), time.time_ns()),
            taken_ns=time.time_ns(),
            records={
                **(handler.records if handler is not None else {}),
                **(preamble.records if preamble is not None else {}),
            },
        ),
    )


def _has_phases(order: BuildOrder) -> bool:
    """Return whether the CUDA compiler's phases run one by one; a launcher such as ccache needs the whole command."""
    return not order.settings.compiler_launcher and flags.allows_phases(order.request.compile.cflags)


def _find_phases(order: BuildOrder, command: Sequence[str]) -> dict[str, UnitBuild]:
    """Find the phases of each unit, by its stem; empty if the compiler is run as a whole."""
    if order.tools.cuda is None or not _has_phases(order):
        return {}
    files = {unit.stem: unit_files(unit.stem, order.request.language) for unit in order.request.units}
    compiler = cuda_compiler(order.tools)
    found = {stem: compiler.phases(command, unit, order) for stem, unit in files.items()}
    return {stem: phases for stem, phases in found.items() if phases is not None}


def _find_preamble(order: BuildOrder, command: Sequence[str]) -> Preamble | None:
    """Find the precompiled beginning of CUDA sources."""
    if order.tools.cuda is None or not _has_phases(order):
        return None
    return cuda_compiler(order.tools).preamble(command, order)


def _link_command(order: BuildOrder) -> flags.LinkCommand:
    tools = order.tools
    folders = () if tools.cuda is None else (*tools.cuda.library_dirs, *tools.library_dirs)
    options = order.request.compile
    ldflags = (*fast_linker_flags(tools.cxx.path, order.system), *flags.sanitizer_flags(options)[:1], *options.ldflags)
    return flags.link(tools.cxx, tools.cuda, ldflags, folders, order.system.list_dir)


def _observer(order: BuildOrder, staging: Path) -> Observer:
    """Make the observer of this build's commands."""
    options = order.request.compile
    sources = [unit.path.parent for unit in order.request.units if unit.path is not None]
    return make_observer(
        order.tools.cxx,
        order.toolchain,
        order.system,
        (order.toolchain_store, order.module_store),
        staging,
        launcher=order.settings.compiler_launcher,
        folders=(*sources, *options.include_paths, *map(Path, include_folders(options.cflags))),
    )


def _runner(order: BuildOrder, staging: Path) -> Runner:
    system, settings = order.system, order.settings
    memory = None if order.jobs else available_memory_bytes(system)
    return Runner(
        staging,
        ninja=resolve_ninja(system),
        jobs=job_count(len(os.sched_getaffinity(0)), memory, wanted=order.jobs, limit=settings.max_jobs),
        environ=system.environ,
        timeout_s=settings.compile_timeout_s,
    )
