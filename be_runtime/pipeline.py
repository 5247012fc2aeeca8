"""The way of one call: from a request to a loaded module with its targets registered, the same for CUDA and C++."""

from __future__ import annotations

import hashlib
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from be_toolchain import Toolchain, __version__
from be_toolchain.arch import Arch
from be_toolchain.system import System

from . import jax_port
from .bind import bind
from .build import graph
from .build.depfile import parse_depfile
from .build.plan import LIBRARY, BuildPlan
from .cache import BuildOutput, CacheKey, Entry, Store, make_key
from .codegen import Binding
from .errors import BuildError
from .gather import find_ninja, find_objcopy, gather_tools, resolve_toolchain
from .module import CompiledModule, open_library
from .options import BuildRequest, LoadOptions
from .registry import Registry, Target
from .settings import Settings


LOG = "build.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What a load needs from its process, passed in rather than looked up.

    Parameters
    ----------
    system : System
        The machine.
    settings : Settings
        From the environment.
    store : Store
        The cache.
    record_dir : Path
        Holds the toolchain's record.
    registry : Registry
        The process's targets.
    archs : tuple of Arch
        From ``set_compute_capabilities``; empty when it was not called.
    """

    system: System
    settings: Settings
    store: Store
    record_dir: Path
    registry: Registry
    archs: tuple[Arch, ...] = ()


def load(request: BuildRequest, options: LoadOptions, session: Session) -> CompiledModule:
    """Make, or find in the cache, the module of a request; load it and register its targets."""
    bindings = bind(request)
    toolchain = resolve_toolchain(request, session.system, session.record_dir)
    ffi_include = jax_port.ffi_include_dir()
    tools = gather_tools(
        request,
        toolchain,
        system=session.system,
        settings=session.settings,
        process_wide=session.archs,
        ffi_include=ffi_include,
        record_dir=session.record_dir,
    )
    plan = graph.plan_build(request, bindings, tools)
    key = _key(request, plan, toolchain, jax_port.ffi_api_version(ffi_include))
    job = _Job(request=request, options=options, session=session, bindings=bindings, tools=tools, plan=plan)
    entry = session.store.get_or_build(key, job.build, force=options.force_rebuild, on_wait=partial(_say_waiting, request))
    if options.verbose and not entry.built:
        _say(f"{request.name}: from the cache, {entry.path}")
    module = _open(request, options, entry, key, [binding for found in bindings.values() for binding in found])
    if options.auto_register:
        _register(module, request, options, session.registry)
    return module


def _key(request: BuildRequest, plan: BuildPlan, toolchain: Toolchain, ffi_api_version: str) -> CacheKey:
    """Everything that decides a build before it starts; headers are judged by the entry's manifest."""
    sources = [part for unit in request.units for source in unit.sources for part in (source.name, source.text)]
    return make_key(
        "module",
        ("name", request.name),
        ("be_runtime", __version__),
        ("ffi_api", ffi_api_version),
        ("sources", sources),
        ("generated", [part for file in plan.files for part in (file.path, file.text)]),
        ("commands", [part for edge in plan.edges for part in (str(len(edge.argv)), *edge.argv)]),
        ("toolchain", [part for pair in toolchain.key_fields() for part in pair]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """One build, run by the store when the cache has no valid entry."""

    request: BuildRequest
    options: LoadOptions
    session: Session
    bindings: Mapping[str, Sequence[Binding]]
    tools: graph.Tools
    plan: BuildPlan

    def build(self, staging: Path) -> BuildOutput:
        """Run the plan in a folder and say what it made and what it read."""
        from .build.execute import execute, render_log
        from .build.progress import Progress

        ninja = find_ninja(self.session.system)
        with Progress(self.request.name, self.plan.edges) as progress:
            run = partial(
                execute,
                ninja=ninja,
                jobs=self._jobs(),
                timeout_s=self.session.settings.compile_timeout_s,
                on_step=progress.step,
            )
            try:
                if len(self.request.units) == 1:
                    steps = run(self.plan, staging)
                else:
                    objects = self.plan.edges[-1].inputs
                    steps = run(self.plan, staging, targets=objects)
                    steps += run(self._separated(staging, objects), staging)
            except BuildError as error:
                raise self._explained(error) from None
        log = render_log(steps)
        if self.options.verbose:
            _say(log.rstrip())
        (staging / LOG).write_text(log, encoding="utf-8", errors="surrogateescape")
        dependencies = self._dependencies(staging)
        shutil.rmtree(staging / "obj")
        kept = (LIBRARY, LOG, *(file.path for file in self.plan.files))
        return BuildOutput(outputs=kept, dependencies=dependencies)

    def _jobs(self) -> int:
        import os

        limit = self.session.settings.max_jobs or len(os.sched_getaffinity(0))
        return min(self.options.jobs or limit, limit) if self.session.settings.max_jobs else self.options.jobs or limit

    def _separated(self, staging: Path, objects: Sequence[str]) -> BuildPlan:
        """The plan, with the names that several objects define made private to each."""
        from .build.symbols import defined_globals, repeated_names

        tables = {name: defined_globals((staging / name).read_bytes()) for name in objects}
        repeated = repeated_names(tables.values())
        private = {name: sorted(table & repeated) for name, table in tables.items() if table & repeated}
        if not private:
            return self.plan
        objcopy = find_objcopy(self.tools.cxx.path)
        if objcopy is None:
            raise BuildError(
                f"several sources define {', '.join(sorted(repeated))} and objcopy, which separates them, is missing",
                hints=("install binutils, or give the functions different names or make them static",),
            )
        return graph.with_private_names(self.plan, objcopy, private, self.tools)

    def _dependencies(self, staging: Path) -> tuple[Path, ...]:
        """Every file outside the build folder that a compiler read."""
        read: dict[str, None] = {}
        for depfile in self.plan.depfiles:
            read |= dict.fromkeys(parse_depfile((staging / depfile).read_text(encoding="utf-8", errors="surrogateescape")))
        return tuple(Path(path) for path in read if path.startswith("/") and not path.startswith(f"{staging}/"))

    def _explained(self, error: BuildError) -> BuildError:
        """The same failure with its first real error in front."""
        from .build.diagnose import diagnose

        if not error.output:
            return error
        sources = {source.name: source.text for unit in self.request.units for source in unit.sources}
        calls = [(binding.entry.source, binding.entry.line) for found in self.bindings.values() for binding in found]
        diagnosis = diagnose(error.output, sources, calls)
        return type(error)(
            f"{self.request.name}: {error.message}",
            command=error.command,
            output=error.output,
            first_error=diagnosis.first_error,
            hints=(*error.hints, *diagnosis.hints),
        )


def _open(
    request: BuildRequest, options: LoadOptions, entry: Entry, key: CacheKey, bindings: Sequence[Binding]
) -> CompiledModule:
    graphs = options.allow_cuda_graph and request.language == "cuda"
    path = entry.output(LIBRARY)
    return CompiledModule(
        name=request.name,
        path=path,
        content_hash=_content_hash(key, entry),
        symbols={binding.export: binding.handler(allow_cuda_graph=graphs) for binding in bindings},
        library=open_library(path),
        capsule=jax_port.capsule,
    )


def _content_hash(key: CacheKey, entry: Entry) -> str:
    """Identifies what a library was made from: the key and the content of every file that was read."""
    digest = hashlib.sha256(key.digest.encode())
    for record in entry.manifest.dependencies:
        digest.update(record.sha256.encode())
    return digest.hexdigest()


def _register(module: CompiledModule, request: BuildRequest, options: LoadOptions, registry: Registry) -> None:
    platform = jax_port.PLATFORMS[request.language]
    traits = "graph" if options.allow_cuda_graph and request.language == "cuda" else "plain"
    names = {f"{options.target_prefix}.{function}": function for function in module.function_names}
    targets = [
        Target(name=name, platform=platform, content=f"{module.content_hash}:{function}:{traits}")
        for name, function in names.items()
    ]
    registry.add(targets, {name: partial(module.get_handler, function) for name, function in names.items()})


def _say(text: str) -> None:
    print(f"be_runtime: {text}" if "\n" not in text else text, file=sys.stderr)


def _say_waiting(request: BuildRequest, seconds: float) -> None:
    _say(f"{request.name}: waiting for another process that is building it ({seconds:.0f} s)")
