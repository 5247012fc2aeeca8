"""The process's watcher: loads under it follow their files, and a thread compiles what was saved."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable
from typing import NamedTuple, Self

from be_runtime.live.author_files import author_files
from be_runtime.live.exchanged_names import ExchangedNames
from be_runtime.live.followed import FollowedModule, MadeModule
from be_runtime.live.live_module import LiveModule
from be_runtime.load import pipeline
from be_runtime.load.find_or_build import say
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS, Process
from be_runtime.request.arguments import Reread
from be_runtime.request.options import BuildRequest, LoadOptions
from be_toolchain.machine.forks import ThreadLock

_LONGEST_END_S = 1.0
"""Time that the end of a watch may wait for its thread, which may be compiling."""


class _Wish(NamedTuple):
    """The options of one call of `be_runtime.watch`."""

    owner: object
    retrace: bool
    interval_s: float


class Watcher:
    """Followed modules, and who wants them to be followed; the last one's options hold.

    Parameters
    ----------
    process : Process
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lock = ThreadLock()
        self._wishes: tuple[_Wish, ...] = ()
        self._followed: weakref.WeakSet[FollowedModule] = weakref.WeakSet()
        self._named: weakref.WeakValueDictionary[tuple[str, str], FollowedModule] = weakref.WeakValueDictionary()
        self._contents: dict[tuple[str, str], str] = {}
        self._names = ExchangedNames(lambda name: native_library(name, process.session()))
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.show: Callable[[str, Exception], None] = _say

    def is_on(self) -> bool:
        """Return whether files are followed now."""
        return bool(self._wishes)

    def begin(self, owner: object, *, retrace: bool, interval_s: float) -> None:
        """Follow files with these options until `end` is called for the owner."""
        with self._lock:
            self._wishes = (*self._wishes, _Wish(owner, retrace, interval_s))
            self._process.follow, self._process.registry.exchange = self._load, self._names
            if self._thread is None or not self._thread.is_alive():  # also in a child of a process that watched
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="be_runtime.watch", daemon=True
                )
                self._thread.start()
                atexit.register(self._end_thread)

    def end(self, owner: object | None = None) -> None:
        """End what `begin` began for an owner, or for all."""
        with self._lock:
            self._wishes = tuple(wish for wish in self._wishes if owner is not None and wish.owner is not owner)
            if self._wishes:
                return
            self._process.follow = self._process.registry.exchange = None
            thread = self._let_thread_end()
            atexit.unregister(self._end_thread)
        _join(thread)

    def _end_thread(self) -> None:
        _join(self._let_thread_end())

    def _let_thread_end(self) -> threading.Thread | None:
        thread, self._thread = self._thread, None
        self._stop.set()
        return thread

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s()):
            self.follow_all()

    def _interval_s(self) -> float:
        wishes = self._wishes  # read once: another thread may end them
        return wishes[-1].interval_s if wishes else 0.0

    def follow_all(self) -> None:
        """Make each module anew whose files changed."""
        with self._lock:
            followed = tuple(self._followed)
        for each in followed:
            each.follow()

    def _load(self, request: BuildRequest, options: LoadOptions, reread: Reread) -> CompiledModule:
        """Load a module that follows its files, if it has any."""
        followed = FollowedModule(request, options, reread, self)
        self.changed(followed.module)
        if not followed.has_files:
            return followed.module
        with self._lock:
            self._followed.add(followed)
        return LiveModule(followed)

    def make(self, request: BuildRequest, options: LoadOptions, followed: FollowedModule) -> MadeModule:
        """Make the module of a request; its names are those of the last load that asks for them."""
        session = self._process.session(options.build_directory)
        found = pipeline.find_module(request, options, session)
        name = options.target_prefix, request.language
        if followed.is_made and self._named.get(name) is not followed:
            options = options._replace(auto_register=False)
        pipeline.register_names(found.module, request, options, session.registry)
        self._named[name] = followed
        return MadeModule(found.module, author_files(found.entry, found.key, session.system))

    def changed(self, module: CompiledModule) -> None:
        """Have programs traced anew, if that is wished and the name had other code before."""
        info = ModuleInfo.of(module)
        name = info.name, info.platform
        before, self._contents[name] = self._contents.get(name), info.content_hash
        wishes = self._wishes  # read once: another thread may end them
        if before != info.content_hash and wishes and wishes[-1].retrace:
            from be_runtime.xla import jax_primitive

            jax_primitive.forget_programs()

    def failed(self, name: str, error: Exception) -> None:
        """Show why the files of a module can't be used as they are."""
        self.show(name, error)


def _join(thread: threading.Thread | None) -> None:
    """Wait for a thread to end, but not for long: it may be compiling."""
    if thread is not None and thread.is_alive():
        thread.join(_LONGEST_END_S)


def _say(name: str, error: Exception) -> None:
    say(f"{name} was saved, but the code before it stays: {error}")


def watcher() -> Watcher:
    """Return the process's watcher."""
    return PROCESS.only(Watcher, lambda: Watcher(PROCESS))


class Watching:
    """A call of `be_runtime.watch`, which ends with its context, if it is used as one."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        watcher().end(self)
