"""The process's watcher: loads under it follow their files, and a thread compiles what was saved."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from be_runtime.call.attributes import Options
from be_runtime.call.compiled_function import Program
from be_runtime.call.derivatives import Derivative, Rule
from be_runtime.call.function import KernelFunction, kernel_rule
from be_runtime.call.resolve import CallSignature
from be_runtime.errors import BeRuntimeError, BuildError, RegistrationError, warn_caller
from be_runtime.frames import public
from be_runtime.jax import port
from be_runtime.load import load
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.native_library import native_library
from be_runtime.load.obtain import machine_roots, say
from be_runtime.load.process import PROCESS, Process
from be_runtime.load.registry import Target, capsule_address
from be_runtime.request.arguments import Reread, dir_again
from be_runtime.request.options import BuildRequest, LoadOptions
from be_runtime.store.cache import Entry
from be_runtime.store.keys import CacheKey
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.system import System

_PLACE = re.compile(r"(/[^\s:\"'`(),][^:(\n\"'`]*)[:(]\d+")
"""A file and a line, as compilers write them."""


def author_files(entry: Entry, key: CacheKey, system: System) -> tuple[str, ...]:
    """Return the sources and headers that a module was made of, without those of compilers and Python packages."""
    texts = key.texts("toolchain")
    toolchain = dict(zip(texts[::2], texts[1::2], strict=True))
    hosts = (toolchain.get(f"{label}.path", "") for label in ("cxx", "cuda.host"))
    folders = [folder for folder, _ in machine_roots(system)]
    folders += [toolchain.get("cuda.root", ""), *(path[: path.rfind("/bin/")] for path in hosts if "/bin/" in path)]
    return edited(entry.manifest.dependencies.paths, folders)


def edited(paths: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lie neither below these folders nor below ``/usr``.

    Examples
    --------
    >>> edited(["/usr/include/math.h", "/env/lib/x.h", "/home/me/k.cuh"], ["/env"])
    ('/home/me/k.cuh',)
    """
    below = tuple(f"{folder}/" for folder in {"/usr", *folders} if folder)
    return tuple(path for path in paths if not path.startswith(below))


def named_files(output: str) -> tuple[str, ...]:
    """Return the files that a compiler's output names with a line.

    Examples
    --------
    >>> named_files("In file included from /a/k.cu:3: /a/k.cuh:7:1: error: no, /a/l.cuh(3): error: no")
    ('/a/k.cu', '/a/k.cuh', '/a/l.cuh')
    """
    return tuple(dict.fromkeys(match[1] for match in _PLACE.finditer(output)))


_LIBRARY = "exchanged"


class ExchangedNames:
    """Names that are registered with handlers of ours, which lead to the code.

    They are the `be_runtime.load.registry.NameExchange` of the process.

    The code of a function with state is never exchanged, since XLA knows the state's type by the first code; nor that
    of a name that was registered before `be_runtime.watch`, or for code with other traits.

    Parameters
    ----------
    library : callable
        Function that loads our library of such handlers; it is called once, when there is a name.
    """

    def __init__(self, library: Callable[[str], ctypes.CDLL]) -> None:
        self._library = library
        self._opened: ctypes.CDLL | None = None
        self._handlers: dict[tuple[str, str], int] = {}

    def wrap(self, target: Target, handler: object) -> object:
        """Return the handler to register; the given one, if its code can't be exchanged."""
        if isinstance(handler, dict) or len(self._handlers) == self._open().be_exchanged_count():
            return handler
        index = self._handlers[target.name, target.platform] = len(self._handlers)
        return port.capsule(self._lead(index, handler))

    def refusal(self, target: Target) -> RegistrationError | None:
        """Return the error of a program that calls a target by its name, if there is one."""
        if not port.is_called(target.name):
            return None
        prefix, _, function = target.name.rpartition(".")
        return RegistrationError(
            f"the FFI target {target.name!r} was given to jax.ffi.ffi_call, and a program that XLA compiled calls it; "
            "XLA can't lead it to other code",
            hints=(
                f"call module.{function}(...), which follows the source, instead of jax.ffi.ffi_call",
                "drop the programs that call it by name, with jax.clear_caches()",
                f"or load the changed source with target_prefix='{prefix}_2'",
            ),
        )

    def point(self, target: Target, handler: object) -> bool:
        """Lead a live target to other code; False, with a warning, if its first code stays."""
        index = self._handlers.get((target.name, target.platform))
        if index is not None and not isinstance(handler, dict) and self._lead(index, handler):
            return True
        warn_caller(
            f"{target.name} has changed: module.{target.name.rpartition('.')[2]}(...) calls the new code, "
            "jax.ffi.ffi_call by this name the first"
        )
        return False

    def _lead(self, index: int, handler: object) -> int | None:
        """Lead a handler of ours to some code, and return its address; None if its traits are others."""
        address: int | None = self._open().be_exchange(index, capsule_address(handler))
        return address

    def _open(self) -> ctypes.CDLL:
        if self._opened is None:
            self._opened = self._library(_LIBRARY)
            self._opened.be_exchange.argtypes = [ctypes.c_int, ctypes.c_void_p]
            self._opened.be_exchange.restype = ctypes.c_void_p
        return self._opened


_QUIET_S = 0.05
"""Time for which files must stay as they are: an editor may write a file in several steps."""

_PATIENCE = 40
"""Number of such times after which files are taken as they are, also if one is missing or empty."""

Stamp = tuple[int, int, int, int] | None
"""Of a file's stat, what changes with its content; None if there is none."""


class MadeModule(NamedTuple):
    """A module, and the author's files that it was made of."""

    module: CompiledModule
    files: tuple[str, ...]


class Maker(Protocol):
    """The maker of a followed module, which is told of its changes too; see `be_runtime.debugging.watch`."""

    def is_on(self) -> bool:
        """Return whether files are followed now."""

    def make(self, request: BuildRequest, options: LoadOptions, followed: FollowedModule) -> MadeModule:
        """Make the module of a request, and register its names."""

    def changed(self, module: CompiledModule) -> None:
        """Take note of new code."""

    def failed(self, name: str, error: Exception) -> None:
        """Show why the files can't be used as they are."""


class FollowedModule:
    """A module, and what its files were like when it was made.

    Parameters
    ----------
    request : BuildRequest
    options : LoadOptions
    reread : callable
        Function that reads the request's sources anew.
    maker : Maker
    stamp : callable
        Function that returns the `Stamp` of a path.
    pause : callable
        Function that waits for some seconds.
    """

    def __init__(
        self,
        request: BuildRequest,
        options: LoadOptions,
        reread: Reread,
        maker: Maker,
        *,
        stamp: Callable[[str], Stamp] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._request, self._options, self._reread, self._maker = request, options, reread, maker
        self._stamp, self._pause = stamp or stamp_of, pause
        self._lock = ThreadLock()
        self._problem: BeRuntimeError | ToolchainError | None = None
        self._is_folder = reread is dir_again
        self.is_made = False
        self._stamps: dict[str, Stamp] = dict.fromkeys(self._own_paths(request))
        self.module, self._stamps = self._remake(self._now())
        self.is_made = True

    @property
    def has_files(self) -> bool:
        """True if there is anything to follow."""
        return bool(self._stamps)

    def current(self) -> CompiledModule:
        """Return the module of the files as they are, made now if they changed; the one before, if that fails."""
        self.follow()
        problem = self._problem
        if problem is not None and self._maker.is_on():
            warn_caller(
                f"{self._request.name} can't be used as it is saved, so the code before runs: {problem.message}"
            )
        return self.module

    def follow(self) -> None:
        """Make the module anew if a file changed."""
        if not self._maker.is_on() or not self._is_changed():
            return
        with self._lock:
            before = self.module
            if self._is_changed():
                self._try()
            after = self.module
        if after is not before:
            self._maker.changed(after)

    def _try(self) -> None:
        seen = self._settled()
        try:
            made, stamps = self._remake(seen)
        except (BeRuntimeError, ToolchainError) as error:
            output = error.output if isinstance(error, BuildError) else ""
            folders = [os.path.dirname(path) for path in self._own_paths(self._request)]  # noqa: PTH120 - as stamp_of
            also = {path: self._stamp(path) for path in (*folders, *named_files(output)) if path not in seen}
            self._problem = error
            self._maker.failed(self._request.name, error)
            self._stamps = {**seen, **also}
        else:
            if ModuleInfo.of(made).content_hash != ModuleInfo.of(self.module).content_hash:
                self.module = made
            self._problem = None
            self._stamps = stamps  # last: another thread that finds nothing changed takes the module

    def _remake(self, seen: dict[str, Stamp]) -> tuple[CompiledModule, dict[str, Stamp]]:
        """Make the module of the files, which were like this before they are read; with the stamps that it is for."""
        began_ns = time.time_ns()
        request = self._request._replace(units=self._reread(self._request))
        made = self._maker.make(request, self._options, self)
        self._request, self._options = request, self._options._replace(force_rebuild=False)
        stamps = {path: seen.get(path) for path in self._own_paths(request)}
        for path in made.files:
            stamps[path] = seen[path] if path in seen else self._stamp_before(path, began_ns - int(_QUIET_S * 1e9))
        return made.module, stamps

    def _stamp_before(self, path: str, time_ns: int) -> Stamp:
        """Return the stamp of a file; None if it may have changed since, so that it counts as changed."""
        now = self._stamp(path)
        return None if now is not None and now[1] >= time_ns else now

    def _own_paths(self, request: BuildRequest) -> list[str]:
        """Return the files of a request and, for a folder of them, the folder, in which there may soon be others."""
        paths = [str(unit.path) for unit in request.units if unit.path is not None]
        return [*paths, *map(os.path.dirname, paths[: self._is_folder])]

    def _settled(self) -> dict[str, Stamp]:
        """Wait until the files stay as they are, and return their stamps."""
        stamps = self._now()
        for _ in range(_PATIENCE):
            self._pause(_QUIET_S)
            before, stamps = stamps, self._now()
            if stamps == before and all(stamp is not None and stamp[2] > 0 for stamp in stamps.values()):
                break
        return stamps

    def _now(self) -> dict[str, Stamp]:
        return {path: self._stamp(path) for path in self._stamps}

    def _is_changed(self) -> bool:
        return any(self._stamp(path) != stamp for path, stamp in self._stamps.items())


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file or folder; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - each call of a function asks
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class LiveModule(CompiledModule):
    """A module that is at any time what its files are; it takes over the state of the module that was made of them.

    Parameters
    ----------
    followed : FollowedModule
    """

    def __init__(self, followed: FollowedModule) -> None:
        self.__dict__.update(__followed__=followed, __live__={})

    @property
    def __info__(self) -> ModuleInfo:
        """The module's own, of the files as they are."""
        return ModuleInfo.of(self.__dict__["__followed__"].current())

    @public
    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function, which follows the files too.

        Raises
        ------
        KeyError
            The module never had such a function.
        AttributeError
            It has it no more.
        """
        live: dict[str, LiveFunction] = self.__dict__["__live__"]
        if name not in live:
            live[name] = LiveFunction(self, name)
        live[name].latest()
        return live[name]


class LiveFunction(KernelFunction[..., Any]):
    """A function of a module that follows its files: each call is one of the module as it is then.

    Its options and its rules stay when the code changes.

    Parameters
    ----------
    module : LiveModule
    name : str
    options : Options
    derivative : Derivative

    Raises
    ------
    KeyError
        The module has no such function.
    """

    def __init__(
        self, module: LiveModule, name: str, options: Options | None = None, derivative: Derivative | None = None
    ) -> None:
        self.module, self.entry = module, name
        self._chosen, self._rules = options or Options(), derivative or Derivative()
        self._made: tuple[ModuleInfo, KernelFunction[..., Any]] | None = None
        self.latest()

    def latest(self) -> KernelFunction[..., Any]:
        """Return the function of the module as it is now.

        Raises
        ------
        AttributeError
            The module has it no more.
        """
        version = ModuleInfo.of(self.module)
        if self._made is None or self._made[0] is not version:
            try:
                signature, targets = version.entry_point(self.entry)
                self._rules = self._rules.map(partial(self._renewed, version, signature))
            except KeyError as error:
                if self._made is None:
                    raise
                raise AttributeError(f"{self.__qualname__} can't be called any more: {error.args[0]}") from None
            own = signature, targets, self.module.__getitem__, self._chosen, self._rules
            super().__init__(*own)
            self.__dict__.pop("__signature__", None)
            self._made = version, KernelFunction(*own).checked_by(version.mode)
        return self._made[1]

    def _renewed(self, version: ModuleInfo, signature: CallSignature, rule: Rule) -> Rule:
        """Return a rule as it is for a version of the module."""
        function = rule.function
        if isinstance(function, LiveFunction) and function.module is self.module:
            return kernel_rule(function, version.entry_point(function.entry)[0])
        return rule if rule.is_kernel else rule._replace(attributes=signature.attribute_names)

    @public
    def __call__(self, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
        """Call the kernel as it is now, see `CompiledFunction`."""
        return self.latest()(*arrays, outs=outs, **attributes)

    def clear(self) -> None:
        """Forget the compiled programs, see `CompiledFunction.clear`."""
        if self._made is not None:
            self._made[1].clear()

    def _program(self, outs: Any, attributes: Mapping[str, Any]) -> Program:
        return partial(self.latest(), outs=outs, **attributes)

    def _with(self, options: Options) -> LiveFunction:
        return LiveFunction(self.module, self.entry, options, self._rules)

    def _derive(self, derivative: Derivative) -> None:
        self.clear()
        self._rules, self._made = derivative, None
        self.latest()


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
        name = options.target_prefix, request.language
        if followed.is_made and self._named.get(name) is not followed:
            options = options._replace(auto_register=False)
        loaded = load.load(request, options, session)
        self._named[name] = followed
        return MadeModule(loaded.module, author_files(loaded.entry, loaded.key, session.system))

    def changed(self, module: CompiledModule) -> None:
        """Have programs traced anew, if that is wished and the name had other code before."""
        info = ModuleInfo.of(module)
        name = info.name, info.platform
        before, self._contents[name] = self._contents.get(name), info.content_hash
        wishes = self._wishes  # read once: another thread may end them
        if before != info.content_hash and wishes and wishes[-1].retrace:
            from be_runtime.jax import transforms

            transforms.forget_programs()

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
