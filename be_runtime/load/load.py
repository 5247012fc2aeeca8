"""The pipeline of a load, from a request to a module with registered targets, for both CUDA and C++."""

from __future__ import annotations

import contextlib
import faulthandler
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from be_runtime.checks import STATE, Active
from be_runtime.errors import BuildError, CacheError, LoadError, RegistrationError
from be_runtime.jax import port
from be_runtime.load.identity import content_hash, module_key, origin_hash
from be_runtime.load.module import (
    BuiltLibrary,
    CompiledModule,
    Made,
    ModuleInfo,
    Remaker,
    open_library,
    require_handlers,
)
from be_runtime.load.registry import Registry, Session, Target
from be_runtime.own_files import INCLUDE_DIR
from be_runtime.request.options import BuildRequest, Language, LoadOptions
from be_runtime.request.tools import Tools, gather_tools
from be_runtime.settings import require_jit
from be_runtime.store.bundle import CodeImage, Demand, ModuleRecord, reading
from be_runtime.store.cache import BuildOutput, Entry, Store
from be_runtime.store.contents import CONTENTS, LIBRARY, parse_contents
from be_runtime.store.folder import disk_errors, is_passing
from be_runtime.store.images import read_image
from be_runtime.store.keys import CacheKey
from be_runtime.store.lock import THIS_PROCESS, OnWait
from be_toolchain import Toolchain, ToolchainRequest, resolve
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.terminal import printable, printable_line

if TYPE_CHECKING:
    from be_runtime.compile.plan import BuildOrder
    from be_runtime.report import ModuleReport
    from be_runtime.store.images import Bundle
    from be_runtime.store.places import Exchange
    from be_runtime.store.travelling import Shareable


T = TypeVar("T")
Build = Callable[[Path], BuildOutput]

_LONG_S = 10.0
"""Time after which a wait for another thread is reported."""

_TRIES = 5
"""Number of attempts to use an entry that other processes remove."""

_PRUNING_S = 0.02
"""Time that a build may spend on the removal of old entries."""


def find_or_build(
    session: Session,
    store: Store,
    key: CacheKey,
    build: Build,
    share: Callable[[], Shareable],
    *,
    force: bool = False,
    on_wait: OnWait | None = None,
) -> Entry:
    """Return the entry of a key from the cache, from a place that has it, or built now; see `Store.get_or_build`.

    Parameters
    ----------
    share : callable
        Returns the part of the entry that others can use, if there are others.
    """
    opened: list[Exchange] = []

    def obtain(staging: Path) -> BuildOutput | None:
        from be_runtime.store.places import open_exchange

        exchange = open_exchange(
            share,
            key.name,
            lambda: store.get(key) is not None,
            session.settings,
            session.system,
            say,
            session.cache.root,
        )
        if exchange is None:
            return build(staging)
        opened.append(exchange)
        return exchange.obtain(staging, build, force=force)

    patience_s = session.settings.lock_timeout_s
    try:
        entry = store.get_or_build(key, obtain, force=force, lock_timeout_s=patience_s, on_wait=on_wait)
    except BaseException as error:
        for exchange in opened:
            exchange.abandon(f"{type(error).__name__}: {error}".partition("\n")[0])
        raise
    for exchange in opened:
        exchange.offer(entry)
    return entry


def use_entry(
    find: Callable[[], Entry], use: Callable[[Entry], T], session: Session, anew: Callable[[], Entry] | None = None
) -> T:
    """Find or build an entry by `find` and return the result of `use`; try again if it was removed in between.

    Another process may clear the cache at any time, and a network file system may fail. What came from elsewhere and
    can't be used is built by `anew`. A new entry counts towards the cache's limits.

    Raises
    ------
    CacheError
        The entry was removed each time, or can't be read.
    LoadError
        The entry can't be loaded.
    """
    for is_last in (False,) * (_TRIES - 1) + (True,):
        entry = find()
        try:
            with disk_errors(str(entry.path)):
                used = use(entry)
        except Exception as error:
            made = entry.manifest.made
            if made.source and anew and entry.is_there() and not is_passing(error):
                reason = printable_line(f"{type(error).__name__}: {error}")
                say(f"{entry.manifest.name}: the entry from {made.source} can't be used, so it is built here: {reason}")
                find, anew = anew, None
                continue
            if not isinstance(error, CacheError | LoadError) or (is_last if is_passing(error) else entry.is_there()):
                raise
        else:
            if entry.built:
                _prune(session)
            return used
    raise CacheError(
        f"{entry.path} was removed before it was loaded, {_TRIES} times in a row",
        hints=("load again when no other process clears the cache", "or set BE_CACHE_DIR to another folder"),
    )


def _prune(session: Session) -> None:
    """Keep the cache and the toolchain's part of it within their limits; an author's own folder is left alone."""
    settings = session.settings
    for store in (session.cache, session.toolchain_store):
        with contextlib.suppress(CacheError):  # the next build tries again
            store.prune(settings.cache_max_size_mib * 2**20, settings.cache_max_age_days, patience_s=_PRUNING_S)


def shareable(key: CacheKey, session: Session, outputs: tuple[str, ...], folders: Iterable[Path] = ()) -> Shareable:
    """Return the part of an entry that other machines can use.

    Parameters
    ----------
    key : CacheKey
    session : Session
    outputs : tuple of str
        Patterns of the names of the outputs that are shared.
    folders : iterable of Path
        Folders of headers, besides those in the key.
    """
    from be_runtime.store.travelling import Shareable, key_roots, movable_key

    roots = key_roots(key, machine_roots(session.system), folders)
    return Shareable(movable_key(key, roots), roots, outputs)


def machine_roots(system: System) -> tuple[tuple[str, str], ...]:
    """Return the folders of this machine that lie elsewhere on another, and their names."""
    folders = [(INCLUDE_DIR.parent, "<be_runtime>")]
    folders += [(folder, "<site>") for folder in system.site_dirs]
    folders += [(folder, "<python>") for folder in system.prefixes]
    return tuple((str(path), name) for folder, name in folders for path in (folder, system.realpath(folder)))


def say(text: str) -> None:
    """Write a line of ours to standard error."""
    sys.stderr.write(printable(f"be_runtime: {text}\n"))


def say_waiting(name: str, seconds: float, builder: str) -> None:
    """Report on standard error whom a load waits for; another thread of this process only after a long wait."""
    if builder != THIS_PROCESS or seconds >= _LONG_S:
        say(f"{name}: waiting for {builder}, which is building it ({seconds:.0f} s)")


def say_output(error: BuildError) -> None:
    """Write the command that failed, and all its output, to standard error."""
    import shlex  # few builds fail

    say(f"{error.message}\n$ {shlex.join(error.command)}\n{error.output.rstrip()}")


def load(request: BuildRequest, options: LoadOptions, session: Session) -> CompiledModule:
    """Find the module of a request in the cache, or build it; load it and register its targets."""
    module = find_module(request, options, session).module
    register_names(module, request, options, session.registry)
    return module


class Found(NamedTuple):
    """A module that was loaded, and the entry that it is of."""

    module: CompiledModule
    entry: Entry
    key: CacheKey


def find_module(request: BuildRequest, options: LoadOptions, session: Session) -> Found:
    """Find the module of a request in the cache, or build it, and load it; no name of it is registered."""
    maker = Remaker(
        partial(build_portable, request, options, session),
        partial(report_module, request, options, session),
        cache(partial(_load_checked, request, options, session)),
    )

    def use(entry: Entry, key: CacheKey) -> Found:
        return Found(_open(request, options, maker, entry, key, registry=session.registry), entry, key)

    return use_module(request, options, session, use)


def _load_checked(request: BuildRequest, options: LoadOptions, session: Session) -> CompiledModule:
    """Load the module of a request with accesses through tensors checked.

    Raises
    ------
    BuildError, LoadError
        It does not compile so, or may not be compiled.
    """
    compiled = request.compile._replace(checked=True, line_info=True)
    plain = options._replace(auto_register=False, force_rebuild=False)
    try:
        return load(request._replace(compile=compiled), plain, session)
    except (BuildError, LoadError) as error:
        error.hints += ("checked mode compiles it anew; leave that out by debug('-bounds'), or BE_DEBUG=-bounds",)
        raise


def use_module(request: BuildRequest, options: LoadOptions, session: Session, use: Callable[[Entry, CacheKey], T]) -> T:
    """Find the module of a request in the cache, or build it, and return the result of `use`; see `use_entry`."""
    ready = _make_ready(request, session)
    make = partial(_make, ready, options, session)
    find = partial(_find, ready, session, make)
    anew = partial(find, options._replace(force_rebuild=True))
    return use_entry(partial(find, options), lambda entry: use(entry, ready.key), session, anew)


class _Ready(NamedTuple):
    """A request with all that its key depends on."""

    request: BuildRequest
    tools: Tools
    toolchain: Toolchain
    key: CacheKey


def _make_ready(request: BuildRequest, session: Session) -> _Ready:
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
    key = module_key(request, tools, toolchain)
    if session.settings.shares and not request.compile.line_info:  # which names the source where it is
        request = _nameable(request, key, session)
        key = module_key(request, tools, toolchain)
    return _Ready(request, tools, toolchain, key)


def report_module(
    request: BuildRequest, options: LoadOptions, session: Session, blocks: Sequence[int], *, loops: bool = False
) -> ModuleReport:
    """Report what the compilers made of a module: build it once more, with their reports, or find that in the cache."""
    from be_runtime.compile.make import measure_build, read_measured
    from be_runtime.report import report_build

    ready = _make_ready(request, session)

    def build(staging: Path) -> BuildOutput:
        require_jit(session.settings, request.name)
        return measure_build(_order(ready, options, session), staging, loops=loops)

    key, patience_s = CacheKey("report-loops" if loops else "report", ready.key.fields), session.settings.lock_timeout_s
    sources = {source.name for unit in request.units for source in unit.sources} if loops else set[str]()
    return use_entry(
        lambda: session.module_store.get_or_build(key, build, lock_timeout_s=patience_s),
        lambda entry: report_build(request.name, read_measured(entry), session.system, blocks, sources),
        session,
    )


def build_portable(request: BuildRequest, options: LoadOptions, session: Session, wanted: Demand) -> BuiltLibrary:
    """Build the library of a request for other machines, or find it in the cache; see `portable_request`."""
    from be_runtime.load.identity import portable_request

    def read(entry: Entry, key: CacheKey) -> BuiltLibrary:
        data = read_image(entry.output(LIBRARY))
        functions = parse_contents(entry.output(CONTENTS).read_bytes())
        return BuiltLibrary(library_image(request.language, data, key, wanted.baseline), data, functions)

    return use_module(portable_request(request, wanted), options._replace(force_rebuild=False), session, read)


def library_image(language: Language, data: bytes, key: CacheKey, baseline: str) -> CodeImage:
    """Describe a library that was built."""
    archs = tuple(str(Arch.parse(arch)) for arch in key.texts("archs"))
    return CodeImage("library", port.PLATFORMS[language], len(data), archs, baseline)


def load_prebuilt(
    request: BuildRequest,
    options: LoadOptions,
    *,
    folder: Path,
    wanted: tuple[Arch, ...],
    registry: Registry,
    memory: str = "",
) -> CompiledModule | None:
    """Load a request's module from a folder of prebuilt ones and register its targets; None if there is none."""
    from be_runtime.load import prebuilt

    found = prebuilt.find(folder, prebuilt.wanted_of(request), wanted, memory)
    if found is None:
        return None
    bundle, captures = found.bundle, options.allow_cuda_graph
    module = open_bundled(request.name, found.record, bundle, registry, captures_graphs=captures, mode=options.mode)
    register_names(module, request, options, registry)
    return module


def open_bundled(
    name: str,
    record: ModuleRecord,
    bundle: Bundle,
    registry: Registry,
    *,
    captures_graphs: bool,
    mode: Active | None = None,
) -> CompiledModule:
    """Load a module of a bundle, without registering its targets.

    Raises
    ------
    LoadError
        It is damaged, or not for this machine.
    """
    from be_runtime.store.images import mapped_bytes  # a module that is compiled here is in no bundle

    with reading(bundle.where):
        image = bundle.table.images[record.image]
        made = Made(
            name=name,
            language=record.language,
            path=bundle.path(record.image),
            functions=record.contents(),
            content=record.content or record.image,
            origin=record.origin or record.image,
        )
    library = bundle.library(record.image)

    def build(wanted: Demand) -> BuiltLibrary:
        return BuiltLibrary(image, mapped_bytes(image, library, name, wanted), made.functions)

    maker = Remaker(build, partial(_report_bundled, name, made.path))
    info = ModuleInfo(made, library, registry, maker, captures_graphs=captures_graphs, mode=mode)
    return CompiledModule(info)


def _report_bundled(name: str, library: Path, blocks: Sequence[int], *, loops: bool) -> ModuleReport:
    from be_runtime.report import report_library

    report = report_library(name, library, LocalSystem(), blocks)
    told = "loops are told by the compiler, which is not asked for a library that was built before"
    return report._replace(notes=(*report.notes, told)) if loops else report


def explain_prebuilt(request: BuildRequest, folder: Path, wanted: tuple[Arch, ...]) -> str:
    """Explain in one line why `load_prebuilt` found no module."""
    from be_runtime.load import prebuilt

    return prebuilt.explain(folder, prebuilt.wanted_of(request), wanted)


def _find(ready: _Ready, session: Session, make: Callable[[Path], BuildOutput], options: LoadOptions) -> Entry:
    """Return the entry of a module, from the cache or built now."""
    request, key = ready.request, ready.key
    entry = find_or_build(
        session,
        session.module_store,
        key,
        make,
        partial(_share, ready, session),
        force=options.force_rebuild,
        on_wait=partial(say_waiting, request.name),
    )
    verbose = options.verbose or session.settings.verbose
    if verbose and not entry.built:
        say(f"{request.name}: from the cache, {entry.path}")
    elif verbose and entry.reason:
        differs = "".join(f"\n  {line}" for line in session.module_store.explain(key))
        source = entry.manifest.made.source
        say(f"{request.name}: {f'fetched from {source}' if source else 'built'}, since {entry.reason}{differs}")
    return entry


def _share(ready: _Ready, session: Session) -> Shareable:
    """Return the part of a module that other machines can use; what it says of its functions is what its source says.

    Raises
    ------
    SpecError
        The entry points can't be understood.
    """
    from be_runtime.compile.codegen import bind, module_contents  # a warm load has no need of it

    contents = module_contents(bind(ready.request), ready.request.language)
    return shareable(ready.key, session, (LIBRARY, CONTENTS))._replace(known=((CONTENTS, contents.encode()),))


def _nameable(request: BuildRequest, key: CacheKey, session: Session) -> BuildRequest:
    """Return the request with flags by which its library names no folder of this machine."""
    from be_runtime.store.travelling import key_roots, naming_flags

    flags = naming_flags(key_roots(key, machine_roots(session.system)), is_cuda=request.language == "cuda")
    return request._replace(compile=request.compile._replace(cflags=(*flags, *request.compile.cflags)))


def _make(ready: _Ready, options: LoadOptions, session: Session, staging: Path) -> BuildOutput:
    """Build the module, if the cache has none; this imports the compiler modules."""
    require_jit(session.settings, ready.request.name)
    from be_runtime.compile.make import make_module

    order = _order(ready, options, session)
    try:
        return make_module(order, staging)
    except BuildError as error:
        if order.verbose:
            say_output(error)
        raise


def _order(ready: _Ready, options: LoadOptions, session: Session) -> BuildOrder:
    from be_runtime.compile.plan import BuildOrder

    return BuildOrder(
        request=ready.request,
        tools=ready.tools,
        toolchain=ready.toolchain,
        system=session.system,
        settings=session.settings,
        toolchain_store=session.toolchain_store,
        module_store=session.module_store,
        jobs=options.jobs,
        verbose=options.verbose or session.settings.verbose,
        force=options.force_rebuild,
    )


def _open(
    request: BuildRequest,
    options: LoadOptions,
    maker: Remaker,
    entry: Entry,
    key: CacheKey,
    *,
    registry: Registry,
) -> CompiledModule:
    library = entry.output(LIBRARY)
    made = Made(
        name=request.name,
        language=request.language,
        path=library,
        functions=parse_contents(entry.output(CONTENTS).read_bytes()),
        content=content_hash(key, entry),
        origin=origin_hash(key, entry),
    )
    opened = open_library(library)
    if entry.manifest.made.source:
        require_handlers(opened, made.functions)
    info = ModuleInfo(
        made,
        opened,
        registry,
        maker,
        captures_graphs=options.allow_cuda_graph,
        mode=options.mode,
    )
    return CompiledModule(info)


def register_names(module: CompiledModule, request: BuildRequest, options: LoadOptions, registry: Registry) -> None:
    """Register the functions of a module under the names that its load asks for; see `register_module`."""
    if options.auto_register:
        register_module(module, options.target_prefix, registry, _other_prefix(request))


def register_module(module: CompiledModule, prefix: str, registry: Registry, hints: tuple[str, ...] = ()) -> None:
    """Register the functions of a module as ``<prefix>.<function>``.

    Raises
    ------
    RegistrationError
        A target of that name is live with other content; the error has the hints too.
    """
    info = ModuleInfo.of(module)
    names = {f"{prefix}.{function}": function for function in info.function_names}
    targets = [
        Target(name, info.platform, info.identity(function), partial(info.carry, function))
        for name, function in names.items()
    ]
    handlers: dict[str, Callable[[], object]] = {
        name: partial(info.get_handler, function) for name, function in names.items()
    }
    if (mode := info.mode or STATE.everywhere) is not None:
        handlers = {name: partial(mode.front, name, info.platform, make) for name, make in handlers.items()}
    try:
        registry.add(targets, handlers, by_name=True)
    except RegistrationError as error:
        error.hints += hints
        raise
    if faulthandler.is_enabled():
        for function in names.values():
            info.name_code(function)


def _other_prefix(request: BuildRequest) -> tuple[str, ...]:
    """Suggest another prefix for the targets of a file or folder, for the case that another one has its name."""
    path = request.units[0].path
    above = next((folder.name for folder in path.parents if folder.name != request.name), "") if path else ""
    if not above:
        return ()
    prefix = re.sub(r"[^A-Za-z0-9_]", "_", f"{above}_{request.name}")
    return (f"if the name is that of two files or folders, load this one with target_prefix={prefix!r}",)
