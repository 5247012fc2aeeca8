"""Load modules: turn a request into a library in memory, and register its functions as FFI targets."""

from __future__ import annotations

import faulthandler
import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from be_runtime import checks, errors, settings, trace
from be_runtime.jax import port
from be_runtime.load import identity
from be_runtime.load.module import (
    BuiltLibrary,
    CompiledModule,
    ModuleDescription,
    ModuleInfo,
    open_library,
    require_handlers,
)
from be_runtime.load.obtain import Attempts, find_or_build, machine_roots, say, say_output, shareable
from be_runtime.load.registry import Registry, Session, Target
from be_runtime.request.build_tools import BuildTools, gather_tools
from be_runtime.request.options import BuildRequest, LoadOptions
from be_runtime.store import cache, index, keys
from be_runtime.store.artifact import Artifact
from be_toolchain import Toolchain, ToolchainRequest, resolve
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.compile.plan import BuildOrder
    from be_runtime.report import ModuleReport
    from be_runtime.store.sharing import Shareable


class Loaded(NamedTuple):
    """A loaded module, and the entry and the key of its library."""

    module: CompiledModule
    entry: cache.Entry
    key: keys.CacheKey


def load(request: BuildRequest, options: LoadOptions, session: Session) -> Loaded:
    """Load the module of a request and register its targets.

    The key covers everything that affects the library. Its entry is searched in the cache and then in the stores that
    the settings name, and built if none has it.
    """
    with trace.span("resolve the toolchain"):
        toolchain, tools = resolve_tools(request, session)
    with trace.span("make the key"):
        recipe = module_recipe(request, toolchain, tools, options, session)
    attempts = Attempts(session)
    while attempts.should_try():
        force = options.force_rebuild or attempts.must_rebuild
        entry = find_or_build(recipe, session.module_store, session, force=force)
        with attempts.using(entry), trace.span("open"):
            module = open_module(entry, recipe.key, request, options, session)
    with trace.span("register"):
        register_names(module, request, options, session.registry)
    return Loaded(module, entry, recipe.key)


class ModuleRecipe(NamedTuple):
    """A module to build: the request and all other inputs of the build.

    Parameters
    ----------
    request : BuildRequest
    options : LoadOptions
    session : Session
    toolchain : Toolchain
    tools : BuildTools
    key : CacheKey
    """

    request: BuildRequest
    options: LoadOptions
    session: Session
    toolchain: Toolchain
    tools: BuildTools
    key: keys.CacheKey

    def make(self, folder: Path) -> cache.BuildOutput:
        """Compile the module, which imports the compiler modules."""
        settings.require_jit(self.session.settings, self.request.name)
        with trace.span("import the compiler modules"):
            from be_runtime.compile.make import make_module

        order = self.order()
        try:
            return make_module(order, folder)
        except errors.BuildError as error:
            if order.verbose:
                say_output(error)
            raise

    def order(self) -> BuildOrder:
        """Return the values that the compiler modules work with."""
        from be_runtime.compile.plan import BuildOrder

        options, session = self.options, self.session
        return BuildOrder(
            request=self.request,
            tools=self.tools,
            toolchain=self.toolchain,
            system=session.system,
            settings=session.settings,
            toolchain_store=session.toolchain_store,
            module_store=session.module_store,
            jobs=options.jobs,
            verbose=options.verbose or session.settings.verbose,
            force=options.force_rebuild,
            shipped=identity.shipped_folder(),
        )

    def share(self) -> Shareable:
        """Return the part of the module that other machines can use, with the table of the functions of its source.

        Raises
        ------
        SpecError
            An entry point is invalid.
        """
        from be_runtime.compile.codegen import bind, module_contents  # a warm load has no need of it

        functions = module_contents(bind(self.request), self.request.language)
        return shareable(self.key, self.session)._replace(functions=functions)


def resolve_tools(request: BuildRequest, session: Session) -> tuple[Toolchain, BuildTools]:
    """Resolve the toolchain of a request, its architectures and its folders."""
    wanted = ToolchainRequest(need_cuda=request.language == "cuda")
    toolchain = resolve(wanted, system=session.system, record_dir=session.record_dir)
    tools = gather_tools(
        request,
        toolchain,
        system=session.system,
        settings=session.settings,
        process_wide=session.archs,
        ffi_include=port.ffi_include_dir(),
        record_dir=session.record_dir,
    )
    return toolchain, tools


def module_recipe(
    request: BuildRequest, toolchain: Toolchain, tools: BuildTools, options: LoadOptions, session: Session
) -> ModuleRecipe:
    """Make the key of a module, and return it with everything that the build needs.

    If the process shares its modules, flags keep the folders of this machine out of the library. A module with line
    information contains the folder of its source, so it is not shared.
    """
    key = identity.module_key(request, tools, toolchain)
    if session.settings.shares and not request.compile.line_info:
        from be_runtime.store.sharing import key_roots, naming_flags

        flags = naming_flags(key_roots(key, machine_roots(session.system)), is_cuda=request.language == "cuda")
        request = request._replace(compile=request.compile._replace(cflags=(*flags, *request.compile.cflags)))
        key = identity.module_key(request, tools, toolchain)
    return ModuleRecipe(request, options, session, toolchain, tools, key)


def open_module(
    entry: cache.Entry, key: keys.CacheKey, request: BuildRequest, options: LoadOptions, session: Session
) -> CompiledModule:
    """Load the library of an entry."""
    if options.verbose or session.settings.verbose:
        _say_origin(entry, key, session)
    artifact = entry.artifact()
    record = index.ModuleRecord.read(artifact.table.modules.get(request.name, {}), artifact.where)
    record = record._replace(content=identity.content_hash(key, entry), origin=identity.origin_hash(key, entry))
    made = describe_module(request.name, record, artifact)
    opened = open_library(made.path)
    if entry.manifest.made.source:
        require_handlers(opened, made.functions)
    remaker = SourceRebuilder(request, options, session)
    captures = options.allow_cuda_graph
    return CompiledModule(
        ModuleInfo(made, opened, session.registry, remaker, captures_graphs=captures, mode=options.mode)
    )


def _say_origin(entry: cache.Entry, key: keys.CacheKey, session: Session) -> None:
    """Report whether the module was in the cache, or the reason for its build."""
    if not entry.built:
        say(f"{key.name}: from the cache, {entry.path}")
    elif entry.reason:
        differs = "".join(f"\n  {line}" for line in session.module_store.explain(key))
        source = entry.manifest.made.source
        say(f"{key.name}: {f'fetched from {source}' if source else 'built'}, since {entry.reason}{differs}")


class SourceRebuilder:
    """Builds a module anew from its sources, see `be_runtime.load.module.Rebuilder`."""

    def __init__(self, request: BuildRequest, options: LoadOptions, session: Session) -> None:
        self._request, self._options, self._session = request, options, session
        self._checked: CompiledModule | None = None

    def build(self, wanted: index.Demand) -> BuiltLibrary:
        """Return the library for the requested machines, see `portable_request`."""
        from be_runtime.load.identity import portable_request

        options = self._options._replace(force_rebuild=False)
        return build_library(portable_request(self._request, wanted), options, self._session, wanted.baseline)[0]

    def report(self, blocks: Sequence[int], *, loops: bool) -> ModuleReport:
        """Return the compilers' report on the module."""
        return report_module(self._request, self._options, self._session, blocks, loops=loops)

    def checked(self) -> CompiledModule:
        """Return the module compiled with checks of accesses through tensors, built on first use.

        Raises
        ------
        BuildError, LoadError
            The module can't be compiled with checks, or must not be compiled.
        """
        if self._checked is None:
            compiled = self._request.compile._replace(checked=True, line_info=True)
            plain = self._options._replace(auto_register=False, force_rebuild=False)
            try:
                self._checked = load(self._request._replace(compile=compiled), plain, self._session).module
            except (errors.BuildError, errors.LoadError) as error:
                error.hints += (
                    "checked mode compiles it anew; leave that out by debug('-bounds'), or BE_DEBUG=-bounds",
                )
                raise
        return self._checked


def build_library(
    request: BuildRequest, options: LoadOptions, session: Session, baseline: str
) -> tuple[BuiltLibrary, str, cache.Entry]:
    """Return the bytes of a request's library, from the cache or built now, its table of functions, and its entry."""
    from be_runtime.store.images import read_image

    recipe = module_recipe(request, *resolve_tools(request, session), options, session)
    attempts = Attempts(session)
    while attempts.should_try():
        force = options.force_rebuild or attempts.must_rebuild
        entry = find_or_build(recipe, session.module_store, session, force=force)
        with attempts.using(entry):
            artifact = entry.artifact()
            data = read_image(artifact.path(artifact.table.image))
            record = index.ModuleRecord.read(artifact.table.modules[request.name], artifact.where)
    image = artifact.table.images[record.image]._replace(size=len(data), baseline=baseline)
    return BuiltLibrary(image, data, record.contents()), record.functions, entry


def report_module(
    request: BuildRequest, options: LoadOptions, session: Session, blocks: Sequence[int], *, loops: bool = False
) -> ModuleReport:
    """Return the compilers' report of a module, from the cache or from one more build."""
    from be_runtime.compile.make import measure_build, read_measured
    from be_runtime.report import report_build

    recipe = module_recipe(request, *resolve_tools(request, session), options, session)
    key = keys.CacheKey("report-loops" if loops else "report", recipe.key.fields)
    sources = {source.name for unit in request.units for source in unit.sources} if loops else set[str]()
    attempts = Attempts(session)
    while attempts.should_try():
        entry = session.module_store.get(key)
        if entry is None:
            with session.module_store.building(key, lock_timeout_s=session.settings.lock_timeout_s) as building:
                if building.entry is None:
                    settings.require_jit(session.settings, request.name)
                    building.publish(measure_build(recipe.order(), building.folder, loops=loops))
            entry = building.entry
            assert entry is not None, "a build publishes its entry"
        with attempts.using(entry):
            report = report_build(request.name, read_measured(entry), session.system, blocks, sources)
    return report


def describe_module(name: str, record: index.ModuleRecord, artifact: Artifact) -> ModuleDescription:
    """Return the description of a module of an artifact.

    Raises
    ------
    LoadError
        The artifact is damaged.
    """
    with index.reading(artifact.where):
        return ModuleDescription(
            name=name,
            language=record.language,
            path=artifact.path(record.image),
            functions=record.contents(),
            content=record.content or record.image,
            origin=record.origin or record.image,
        )


def register_names(module: CompiledModule, request: BuildRequest, options: LoadOptions, registry: Registry) -> None:
    """Register the functions of a module under the names of its load; see `register_module`."""
    if options.auto_register:
        hints = ("replace=True does not change this",) if options.replace else ()
        register_module(module, options.target_prefix, registry, (*hints, *_other_prefix(request)))


def register_module(module: CompiledModule, prefix: str, registry: Registry, hints: tuple[str, ...] = ()) -> None:
    """Register the functions of a module as ``<prefix>.<function>``.

    If PyTorch is imported and JAX is not, the registration waits for a call that needs JAX.

    Raises
    ------
    RegistrationError
        A target of that name is registered with other content. The error has hints.
    """
    if "torch" in sys.modules and "jax" not in sys.modules:
        registry.add_later(partial(register_module, module, prefix, registry, hints))
        return
    info = ModuleInfo.of(module)
    names = {f"{prefix}.{function}": function for function in info.function_names}
    targets = [
        Target(name, info.platform, info.identity(function), partial(info.carry, function))
        for name, function in names.items()
    ]
    handlers: dict[str, Callable[[], object]] = {
        name: partial(info.get_handler, function) for name, function in names.items()
    }
    if (mode := info.mode or checks.STATE.everywhere) is not None:
        handlers = {name: partial(mode.front, name, info.platform, make) for name, make in handlers.items()}
    try:
        registry.add(targets, handlers, by_name=True)
    except errors.RegistrationError as error:
        error.hints += hints
        raise
    if faulthandler.is_enabled():
        for function in names.values():
            info.name_code(function)


def _other_prefix(request: BuildRequest) -> tuple[str, ...]:
    """Suggest another prefix for the targets, in case another file or folder has the same name."""
    path = request.units[0].path
    above = next((folder.name for folder in path.parents if folder.name != request.name), "") if path else ""
    if not above:
        return ()
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", f"{above}_{request.name}")
    return (f"if two files or folders have this name, load this one with target_prefix={prefix!r}",)
