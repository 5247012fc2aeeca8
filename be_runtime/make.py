"""How a module that is not in the cache is made: entry points, plan, build, and what was read."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from be_toolchain import Toolchain
from be_toolchain.system import System

from . import handler_object
from .bind import bind
from .build import flags, graph
from .build.depfile import parse_depfile
from .build.execute import Step, execute, render_log
from .build.plan import BuildPlan, UnitBuild
from .build.progress import Progress
from .cache import BuildOutput, Store, shadowing_paths
from .codegen import Binding
from .contents import CONTENTS, Handlers, render_contents
from .errors import BuildError
from .module import LIBRARY
from .options import BuildRequest
from .settings import Settings
from .tools import Tools

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
    """

    request: BuildRequest
    tools: Tools
    system: System
    settings: Settings
    store: Store
    toolchain: Toolchain
    jobs: int | None
    verbose: bool

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
        link = self._link_command()
        handler = handler_object.find(self.tools, self.toolchain, self.store)
        launcher = self.settings.compiler_launcher
        split = None if launcher else self._split
        plan = graph.plan_build(self.request, bindings, self.tools, link, split, handler)
        plan = graph.with_launcher(plan, launcher)
        try:
            steps = self._run(plan, link, staging)
        except BuildError as error:
            raise _explained(error, self.request, bindings) from None
        if handler is None:
            handler_object.keep(self.tools, self.toolchain, self.store, staging)
        log = render_log(steps)
        if self.verbose:
            sys.stderr.write(log)
        (staging / LOG).write_text(log, encoding="utf-8", errors="surrogateescape")
        (staging / CONTENTS).write_text(_contents(bindings), encoding="utf-8")
        dependencies = (*_dependencies(plan, staging), *_linked_in(self.request.compile.ldflags))
        shutil.rmtree(staging / "obj")
        kept = (LIBRARY, CONTENTS, LOG, *(file.path for file in plan.files if file.path.startswith("src/")))
        return BuildOutput(outputs=kept, dependencies=dependencies, absent=self._absent(dependencies))

    def _absent(self, dependencies: Sequence[Path]) -> tuple[Path, ...]:
        """Files that would be included instead of one that was read, if they existed."""
        own = [unit.path.parent for unit in self.request.units if unit.path is not None]
        return shadowing_paths(dependencies, (*own, *self.request.compile.include_paths))

    def _link_command(self) -> flags.LinkCommand:
        toolkit = self.tools.cuda
        folders = () if toolkit is None else (*toolkit.library_dirs, *self.tools.library_dirs)
        ldflags = (*_fast_linker(self.tools.cxx.path, self.system), *self.request.compile.ldflags)
        return flags.link(self.tools.cxx, toolkit, ldflags, folders, self.system.list_dir)

    def _split(self, command: Sequence[str], source: str, target: str) -> UnitBuild | None:
        from .nvcc_phases import phases_for

        return phases_for(
            command,
            source,
            target,
            toolchain=self.toolchain,
            system=self.system,
            store=self.store,
        )

    def _run(self, plan: BuildPlan, link: flags.LinkCommand, staging: Path) -> tuple[Step, ...]:
        with Progress(self.request.name, plan.edges) as progress:
            run = partial(
                execute,
                ninja=resolve_ninja(self.system),
                jobs=self._job_count(),
                environ=self.system.environ,
                meanwhile=_import_what_follows,
                on_finish=progress.finish,
            )
            limit_s, start = self.settings.compile_timeout_s, time.monotonic()
            if len(self.request.units) == 1:
                return run(plan, staging, timeout_s=limit_s)
            steps = run(plan, staging, targets=plan.edges[-1].inputs, timeout_s=limit_s)
            separated = _separated(plan, link, staging, self.tools, self.system)
            left_s = max(limit_s - (time.monotonic() - start), 0.001)
            return steps + run(separated, staging, timeout_s=left_s)

    def _job_count(self) -> int:
        wanted = self.jobs or len(os.sched_getaffinity(0))
        limit = self.settings.max_jobs
        return wanted if limit is None else min(wanted, limit)


def _fast_linker(compiler: Path, system: System) -> tuple[str, ...]:
    """The flag for a linker that is faster than the compiler's own, if its folder has one; an author's comes later."""
    folder = system.realpath(compiler.parent)
    found = (name for name in ("lld", "gold") if system.is_program(folder / f"ld.{name}"))
    return tuple(f"-fuse-ld={name}" for name in found)[:1]


def _import_what_follows() -> None:
    """Import, while the compilers run, what is needed when they are done."""
    from .cache import publish, upkeep  # noqa: F401


def resolve_ninja(system: System) -> Path:
    """The ninja program: the one of this Python environment, else PATH's.

    Raises
    ------
    BuildError
        There is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "ninja"
    found = beside if system.is_program(beside) else system.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed", hints=("pip install ninja, or conda install ninja",))
    return found


def _contents(bindings: Mapping[str, Sequence[Binding]]) -> str:
    return render_contents(
        {
            binding.export: Handlers(binding.handler(allow_cuda_graph=False), binding.handler(allow_cuda_graph=True))
            for found in bindings.values()
            for binding in found
        }
    )


def _separated(plan: BuildPlan, link: flags.LinkCommand, staging: Path, tools: Tools, system: System) -> BuildPlan:
    """The plan, with the names that several objects define made private to each."""
    from .build.symbols import defined_globals, repeated_names

    tables = {name: defined_globals((staging / name).read_bytes()) for name in plan.edges[-1].inputs}
    repeated = repeated_names(tables.values())
    private = {name: sorted(table & repeated) for name, table in tables.items() if table & repeated}
    if not private:
        return plan
    objcopy = _find_objcopy(tools.cxx.path, system)
    if objcopy is None:
        raise BuildError(
            f"several sources define {', '.join(sorted(repeated))} and objcopy, which separates them, is missing",
            hints=("install binutils, or give the functions different names, or make them static",),
        )
    return graph.with_private_names(plan, objcopy, private, link)


def _find_objcopy(compiler: Path, system: System) -> str | None:
    """The program that edits objects, best the one that belongs to the compiler."""
    triple = re.sub(r"(clang\+\+|g\+\+|c\+\+)(-\d+)?$", "", compiler.name)
    names = (str(compiler.parent / f"{triple}objcopy"), f"{triple}objcopy", "objcopy", "llvm-objcopy")
    return next((str(found) for name in names if (found := system.which(name))), None)


def _dependencies(plan: BuildPlan, staging: Path) -> tuple[Path, ...]:
    """Every file outside the build folder that a compiler read for this module.

    What the handler was made from is judged where it is kept: a module must not depend on who compiled it.
    """
    read: dict[str, None] = {}
    for depfile in plan.depfiles:
        if depfile == graph.HANDLER_DEPFILE:
            continue
        text = (staging / depfile).read_text(encoding="utf-8", errors="surrogateescape")
        read |= dict.fromkeys(parse_depfile(text))
    return tuple(Path(path) for path in read if path.startswith("/") and not path.startswith(f"{staging}/"))


def _linked_in(ldflags: Sequence[str]) -> tuple[Path, ...]:
    """Objects and archives that the linker copies from; a shared library stays a file of its own."""
    return tuple(Path(flag) for flag in ldflags if flag.startswith("/") and flag.endswith((".o", ".a")))


def _explained(error: BuildError, request: BuildRequest, bindings: Mapping[str, Sequence[Binding]]) -> BuildError:
    """The same failure with the module's name and its first real error."""
    from .build.diagnose import diagnose

    sources = {source.name: source.text for unit in request.units for source in unit.sources}
    calls = [(binding.entry.source, binding.entry.line) for found in bindings.values() for binding in found]
    diagnosis = diagnose(error.output, sources, calls)
    module = "" if request.name in error.message else f" (module {request.name})"
    return type(error)(
        error.message + module,
        command=error.command,
        output=error.output,
        first_error=diagnosis.first_error,
        hints=(*error.hints, *diagnosis.hints),
    )
