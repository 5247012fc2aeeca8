"""State of the whole process: settings, cache folder, registered targets. Each is made on first use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from be_runtime import trace
from be_runtime.checks import Checks, parse_checks
from be_runtime.errors import CacheError, LoadError
from be_runtime.jax import port
from be_runtime.load import load as load_module
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.obtain import say
from be_runtime.load.registry import Registry, Session
from be_runtime.request.arguments import Reread
from be_runtime.request.build_tools import wanted_archs
from be_runtime.request.options import BuildRequest, LoadOptions, for_sanitizers, note, with_active
from be_runtime.settings import Settings
from be_runtime.store.cache import Cache
from be_runtime.store.folder import own_folder, usable_cache_dir
from be_toolchain.arch import Arch
from be_toolchain.errors import ToolchainError
from be_toolchain.find.record import device_archs
from be_toolchain.machine.files import usual_cache
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.local_system import LocalSystem

if TYPE_CHECKING:
    from be_runtime.load.checked_mode import CheckedTargets, Debugging


T = TypeVar("T")

Follow = Callable[[BuildRequest, LoadOptions, Reread], CompiledModule]
"""Function that loads a module that follows its sources."""

_ALSO: ContextVar[tuple[Arch, ...]] = ContextVar("architectures of an export", default=())


class Process:
    """The state of the process. The public functions use the instance in this file; tests make their own."""

    def __init__(self) -> None:
        self.registry = Registry(port.register)
        self.backends: Mapping[str, str] = {}  # what operations prefer on each platform
        self._lock = ThreadLock()
        self._archs: tuple[Arch, ...] = ()
        self._is_checked = False
        self._chosen_cache: Path | None = None
        self._located: tuple[Path | None, Path] | None = None
        self._objects: dict[type, object] = {}
        self._making = ThreadLock()
        self.follow: Follow | None = None  # set by `be_runtime.watch`

    def only(self, kind: type[T], make: Callable[[], T]) -> T:
        """Return the process's only object of a kind, made on first use."""
        with self._making:
            if kind not in self._objects:
                self._objects[kind] = make()
            return cast("T", self._objects[kind])

    def choose_cache(self, folder: Path | None) -> None:
        """Set the cache folder; None restores the folder of the environment, or the default."""
        with self._lock:
            self._chosen_cache = folder

    def choose_archs(self, archs: tuple[Arch, ...]) -> None:
        """Set the architectures of device code; an empty tuple restores the environment and the devices."""
        with self._lock:
            self._archs = archs

    @contextlib.contextmanager
    def also_for(self, archs: tuple[Arch, ...]) -> Iterator[None]:
        """Compile device code for further architectures while this thread traces."""
        session = self.session()
        system = session.system
        usual = wanted_archs(None, session.archs, session.settings, lambda: device_archs(system)) if archs else ()
        token = _ALSO.set(tuple(sorted({*archs, *usual})))
        try:
            yield
        finally:
            _ALSO.reset(token)

    def settings(self) -> Settings:
        """Read the settings from the current environment; start checked mode if they ask for it."""
        settings = Settings.from_environ(os.environ)
        if settings.debug and not self._is_checked:
            with self._making:  # a load of another thread waits until calls are checked
                if not self._is_checked:
                    self.debug(parse_checks(settings.debug))
                    self._is_checked = True
        return settings

    def debug(self, chosen: Checks | None) -> Debugging:
        """Check all calls from now on, see `be_runtime.debug`; None stops checking."""
        return self.guards().start(chosen)

    def guards(self) -> CheckedTargets:
        """Return the checked targets of the process, made on first use."""
        from be_runtime.load.checked_mode import CheckedTargets

        return self.only(CheckedTargets, lambda: CheckedTargets(self.session, self.registry))

    def cache_dir(self, settings: Settings) -> Path:
        """Return the cache folder: the chosen one, else the configured one, else the default, searched once."""
        with self._lock:
            if self._chosen_cache is not None:
                return self._chosen_cache
            if self._located is None or self._located[0] != settings.cache_dir:
                self._located = (settings.cache_dir, usable_cache_dir(settings, LocalSystem()))
            return self._located[1]

    def image_memory(self, settings: Settings) -> str:
        """Return the folder that records which files of code are whole; empty if the usual cache is not trusted."""
        with self._lock:
            cache = self._chosen_cache or settings.cache_dir or usual_cache(os.environ)
        try:
            return f"{own_folder(str(cache))}/images" if cache.is_absolute() else ""
        except CacheError:
            return ""

    def session(self, build_directory: Path | None = None) -> Session:
        """Make the session for one load, whose module is kept in the cache, or in the folder that the caller named."""
        settings = self.settings()
        cache = self.cache_dir(settings)
        return Session(
            system=LocalSystem(),
            settings=settings,
            cache=Cache(cache),
            module_store=Cache(build_directory or cache),
            record_dir=Path(own_folder(str(cache)), "toolchain"),
            registry=self.registry,
            archs=_ALSO.get() or self._archs,
        )

    def load(self, request: BuildRequest, options: LoadOptions, reread: Reread | None = None) -> CompiledModule:
        """Load a module: a prebuilt one if it exists and no rebuild is requested, else one from the cache.

        With `reread`, which reads the request's sources again, it follows the sources while `be_runtime.watch` is on.
        """
        settings = self.settings()
        with trace.loading(settings.trace, request.name):
            module = self._load(request, options, settings, reread)
        note(ModuleInfo.of(module).content_hash)
        return module

    def _load(
        self, request: BuildRequest, options: LoadOptions, settings: Settings, reread: Reread | None
    ) -> CompiledModule:
        request = with_active(for_sanitizers(request, settings.sanitize), settings.active)
        if options.debug is not None:
            options = options._replace(mode=self.guards().always(options.debug))
        if self.follow is not None and reread is not None and settings.jit != "never":
            return self.follow(request, options, reread)
        is_asked = options.force_rebuild or options.build_directory is not None
        folder = None if is_asked or settings.jit == "always" else settings.prebuilt_dir
        if folder is None:
            return load_module.load(request, options, self.session(options.build_directory)).module
        from be_runtime.load.prebuilt import PrebuiltFolder, load_prebuilt, prebuilt_query

        store = PrebuiltFolder(folder, self._wanted(request, settings), self.image_memory(settings))
        with trace.span("load prebuilt"):
            found = load_prebuilt(request, options, store, self.registry)
        if found is not None:
            return found
        if options.verbose or settings.verbose:
            say(store.explain(prebuilt_query(request)))
        try:
            return load_module.load(request, options, self.session(options.build_directory)).module
        except (ToolchainError, CacheError, LoadError) as error:
            error.hints = (store.explain(prebuilt_query(request)), *error.hints)
            raise

    def _wanted(self, request: BuildRequest, settings: Settings) -> tuple[Arch, ...]:
        """Return the architectures that a module's device code must run on; none if they are unknown."""
        if request.language == "cpp":
            return ()
        return wanted_archs(
            request.compute_capability, _ALSO.get() or self._archs, settings, lambda: device_archs(LocalSystem())
        )


PROCESS = Process()
