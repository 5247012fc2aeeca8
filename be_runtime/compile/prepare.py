"""Preparation of a build: results of earlier builds, the compiler's phases, and the runner of the commands."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime.cache import Recorded
from be_runtime.cache.publish import build_began
from be_runtime.compile import graph, handler_object
from be_runtime.compile.build import Build
from be_runtime.compile.build_order import BuildOrder
from be_runtime.compile.cuda_compiler import cuda_compiler
from be_runtime.compile.inputs.header_search import include_folders
from be_runtime.compile.inputs.observe import LookedAt, Observer, make_observer
from be_runtime.compile.plan import flags
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import unit_files
from be_runtime.compile.run.execute import Runner
from be_runtime.compile.run.jobs import available_memory_bytes, job_count
from be_runtime.compile.run.programs import fast_linker_flags, resolve_ninja
from be_runtime.generate.codegen import Binding
from be_toolchain.find.record import ObservingSystem

if TYPE_CHECKING:
    from be_runtime.compile.nvcc.keep_preamble import Preamble


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
    handler = handler_object.find(order.tools, order.toolchain, order.toolchain_store)
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
