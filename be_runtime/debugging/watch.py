"""Modules that are reloaded while `be_runtime.watch` is on: a thread, or a call, compiles the saved sources."""

from __future__ import annotations

import atexit
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, Self

from be_runtime import errors, frames
from be_runtime.call import compiled_function, resolve
from be_runtime.call.attributes import Options
from be_runtime.call.function import KernelFunction, kernel_rule
from be_runtime.jax.rules import Derivative, Rule
from be_runtime.load import load, obtain
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.process import PROCESS, Process
from be_runtime.request.arguments import Reread, dir_again
from be_runtime.request.options import BuildRequest, LoadOptions
from be_runtime.store import cache, keys
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.system import System

_FILE_AND_LINE = re.compile(r"(/[^\s:\"'`(),][^:(\n\"'`]*)[:(]\d+")
"""A file and a line, as compilers write them."""

_QUIET_S = 0.05
"""Seconds for which files must stay unchanged, since an editor may write a file in several steps."""

_MOST_PAUSES = 40
"""The number of such periods after which files are read, even if one is missing or empty."""

_LONGEST_END_S = 1.0
"""Longest time, in seconds, that the end of a watch waits for its thread, which may be compiling."""

Stamp = tuple[int, int, int, int] | None
"""The fields of a file's stat that change with its content; None for a missing file."""


def stamp_of(path: str) -> Stamp:
    """Return the stamp of a file or folder; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - each call of a function stats its files
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def author_files(entry: cache.Entry, key: keys.CacheKey, system: System) -> tuple[str, ...]:
    """Return the sources and headers of a module's author, without files of compilers and Python packages."""
    texts = key.texts("toolchain")
    toolchain = dict(zip(texts[::2], texts[1::2], strict=True))
    hosts = (toolchain.get(f"{label}.path", "") for label in ("cxx", "cuda.host"))
    folders = [folder for folder, _ in obtain.machine_roots(system)]
    folders += [toolchain.get("cuda.root", ""), *(path[: path.rfind("/bin/")] for path in hosts if "/bin/" in path)]
    return outside(entry.manifest.dependencies.paths, folders)


def outside(paths: Iterable[str], folders: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lie neither below these folders nor below ``/usr``.

    Examples
    --------
    >>> outside(["/usr/include/math.h", "/env/lib/x.h", "/home/me/k.cuh"], ["/env"])
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
    return tuple(dict.fromkeys(match[1] for match in _FILE_AND_LINE.finditer(output)))


class MadeModule(NamedTuple):
    """A module, and the author's files that it was made of."""

    module: CompiledModule
    files: tuple[str, ...]


class Maker(Protocol):
    """The interface of a `Watcher` for a followed module."""

    def is_on(self) -> bool:
        """Return whether files are followed now."""

    def make(self, request: BuildRequest, options: LoadOptions) -> MadeModule:
        """Make the module of a request, and register its names."""

    def changed(self, module: CompiledModule) -> None:
        """Handle a module's new code."""

    def failed(self, name: str, error: Exception) -> None:
        """Show why the files of a module can't be used."""


class FollowedModule:
    """A module, and the stamps of its files when it was made.

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
        stamp: Callable[[str], Stamp] = stamp_of,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._request, self._options, self._reread, self._maker = request, options, reread, maker
        self._stamp, self._pause = stamp, pause
        self._lock = ThreadLock()
        self._problem: errors.BeRuntimeError | ToolchainError | None = None
        self._stamps: dict[str, Stamp] = dict.fromkeys(self._own_paths(request))
        self.module, self._stamps = self._make(self._current_stamps())

    @property
    def has_files(self) -> bool:
        """True if there is a file to follow."""
        return bool(self._stamps)

    def current(self) -> CompiledModule:
        """Return the module of the current files, made now if they changed; if that fails, the previous module."""
        self.follow()
        problem = self._problem
        if problem is not None and self._maker.is_on():
            errors.warn_caller(
                f"{self._request.name} was saved, but fails to load, so the previous code runs: {problem.message}"
            )
        return self.module

    def follow(self) -> None:
        """Make the module again if a file changed."""
        if not self._maker.is_on() or not self._is_changed():
            return
        with self._lock:
            before = self.module
            if self._is_changed():
                self._update()
            after = self.module
        if after is not before:
            self._maker.changed(after)

    def _update(self) -> None:
        """Replace the module with the module of the current files; if that fails, keep it and show the error."""
        seen = self._settled_stamps()
        try:
            made, stamps = self._make(seen)
        except (errors.BeRuntimeError, ToolchainError) as error:
            output = error.output if isinstance(error, errors.BuildError) else ""
            folders = [os.path.dirname(path) for path in self._own_paths(self._request)]  # noqa: PTH120 - as stamp_of
            also = {path: self._stamp(path) for path in (*folders, *named_files(output)) if path not in seen}
            self._problem = error
            self._maker.failed(self._request.name, error)
            self._stamps = {**seen, **also}
        else:
            if ModuleInfo.of(made).content_hash != ModuleInfo.of(self.module).content_hash:
                self.module = made
            self._problem = None
            self._stamps = stamps  # last, since a thread that finds equal stamps takes the module

    def _make(self, seen: dict[str, Stamp]) -> tuple[CompiledModule, dict[str, Stamp]]:
        """Return the module of the current files and their stamps; `seen` has the stamps that were taken before."""
        began_ns = time.time_ns()
        request = self._request._replace(units=self._reread(self._request))
        made = self._maker.make(request, self._options)
        self._request, self._options = request, self._options._replace(force_rebuild=False)
        stamps = {path: seen.get(path) for path in self._own_paths(request)}
        for path in made.files:
            stamps[path] = seen[path] if path in seen else self._stamp_before(path, began_ns - int(_QUIET_S * 1e9))
        return made.module, stamps

    def _stamp_before(self, path: str, time_ns: int) -> Stamp:
        """Return the stamp of a file; None if the file may have changed since a time, so that it counts as changed."""
        now = self._stamp(path)
        return None if now is not None and now[1] >= time_ns else now

    def _own_paths(self, request: BuildRequest) -> list[str]:
        """Return the files of a request, and its folder if it is for a folder, to which files may be added."""
        paths = [str(unit.path) for unit in request.units if unit.path is not None]
        if paths and self._reread is dir_again:
            paths.append(os.path.dirname(paths[0]))  # noqa: PTH120 - as stamp_of
        return paths

    def _settled_stamps(self) -> dict[str, Stamp]:
        """Wait until the files stop changing, and return the stamps."""
        stamps = self._current_stamps()
        for _ in range(_MOST_PAUSES):
            self._pause(_QUIET_S)
            before, stamps = stamps, self._current_stamps()
            if stamps == before and all(stamp is not None and stamp[2] > 0 for stamp in stamps.values()):
                break
        return stamps

    def _current_stamps(self) -> dict[str, Stamp]:
        return {path: self._stamp(path) for path in self._stamps}

    def _is_changed(self) -> bool:
        return any(self._stamp(path) != stamp for path, stamp in self._stamps.items())


class LiveModule(CompiledModule):
    """A module that refers to the module of its current files.

    Parameters
    ----------
    followed : FollowedModule
    """

    def __init__(self, followed: FollowedModule) -> None:
        self.__dict__.update(__followed__=followed, __live__={})

    @property
    def __info__(self) -> ModuleInfo:
        """The state of the module of the current files."""
        return ModuleInfo.of(self.__dict__["__followed__"].current())

    @frames.public
    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function, which also follows the files.

        Raises
        ------
        KeyError
            No version of the module had such a function.
        AttributeError
            An earlier version had the function, but the current one does not.
        """
        live: dict[str, LiveFunction] = self.__dict__["__live__"]
        if name not in live:
            live[name] = LiveFunction(self, name)
        live[name].latest()
        return live[name]


class LiveFunction(KernelFunction[..., Any]):
    """A function of a module that follows its files: each call runs the current code.

    The options and the rules stay when the code changes.

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
        """Return the function of the current module.

        Raises
        ------
        AttributeError
            The current module has no such function.
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

    def _renewed(self, version: ModuleInfo, signature: resolve.CallSignature, rule: Rule) -> Rule:
        """Return a rule for a version of the module."""
        function = rule.function
        if isinstance(function, LiveFunction) and function.module is self.module:
            return kernel_rule(function, version.entry_point(function.entry)[0])
        return rule if rule.is_kernel else rule._replace(attributes=signature.attribute_names)

    @frames.public
    def __call__(self, /, *arrays: Any, outs: Any = None, **attributes: Any) -> Any:
        """Call the current kernel, see `CompiledFunction`."""
        return self.latest()(*arrays, outs=outs, **attributes)

    def clear(self) -> None:
        """Forget the compiled programs, see `CompiledFunction.clear`."""
        if self._made is not None:
            self._made[1].clear()

    def _program(self, outs: Any, attributes: Mapping[str, Any]) -> compiled_function.Program:
        return partial(self.latest(), outs=outs, **attributes)

    def _with(self, options: Options) -> LiveFunction:
        return LiveFunction(self.module, self.entry, options, self._rules)

    def _derive(self, derivative: Derivative) -> None:
        self.clear()
        self._rules, self._made = derivative, None
        self.latest()


class Watching:
    """A call of `be_runtime.watch`. As a context manager, it ends with its block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        watcher().end(self)


class _Options(NamedTuple):
    """The options of one call of `be_runtime.watch`."""

    owner: Watching
    retrace: bool
    interval_s: float


class Watcher:
    """The followed modules of a process, and the calls of `be_runtime.watch`, of which the last one has the options.

    Parameters
    ----------
    process : Process
    """

    def __init__(self, process: Process) -> None:
        self._process = process
        self._lock = ThreadLock()
        self._calls: tuple[_Options, ...] = ()
        self._followed: weakref.WeakSet[FollowedModule] = weakref.WeakSet()
        self._contents: dict[tuple[str, str], str] = {}
        self._stale_names: set[str] = set()
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self.show: Callable[[str, Exception], None] = _print_error

    def is_on(self) -> bool:
        """Return whether files are followed now."""
        return bool(self._calls)

    def begin(self, owner: Watching, *, retrace: bool, interval_s: float) -> None:
        """Follow files with these options until `end` is called for the owner."""
        with self._lock:
            self._calls = (*self._calls, _Options(owner, retrace, interval_s))
            self._process.follow, self._process.registry.keep_first = self._load, self._report_stale
            if self._thread is None or not self._thread.is_alive():  # also in a child of a process that watched
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop,), name="be_runtime.watch", daemon=True
                )
                self._thread.start()
                atexit.register(self._end_thread)

    def end(self, owner: Watching | None = None) -> None:
        """End the call of an owner, or all calls."""
        with self._lock:
            self._calls = tuple(call for call in self._calls if owner is not None and call.owner is not owner)
            if self._calls:
                return
            self._process.follow = self._process.registry.keep_first = None
            thread, self._thread = self._thread, None
            self._stop.set()
            atexit.unregister(self._end_thread)
        _join(thread)

    def _end_thread(self) -> None:
        """End the thread as the process exits."""
        thread, self._thread = self._thread, None
        self._stop.set()
        _join(thread)

    def _run(self, stop: threading.Event) -> None:
        while not stop.wait(self._interval_s()):
            self.follow_all()

    def _interval_s(self) -> float:
        calls = self._calls  # read once: another thread may end them
        return calls[-1].interval_s if calls else 0.0

    def follow_all(self) -> None:
        """Make each module with changed files again."""
        with self._lock:
            followed = tuple(self._followed)
        for each in followed:
            each.follow()

    def _load(self, request: BuildRequest, options: LoadOptions, reread: Reread) -> CompiledModule:
        """Load a module, and follow its files if it has files."""
        followed = FollowedModule(request, options, reread, self)
        self.changed(followed.module)
        if not followed.has_files:
            return followed.module
        with self._lock:
            self._followed.add(followed)
        return LiveModule(followed)

    def make(self, request: BuildRequest, options: LoadOptions) -> MadeModule:
        """Make the module of a request; a registered name keeps its code."""
        session = self._process.session(options.build_directory)
        loaded = load.load(request, options, session)
        return MadeModule(loaded.module, author_files(loaded.entry, loaded.key, session.system))

    def changed(self, module: CompiledModule) -> None:
        """Forget JAX's programs if the last call requested it and the module's name had other code before."""
        info = ModuleInfo.of(module)
        name = info.name, info.platform
        before, self._contents[name] = self._contents.get(name), info.content_hash
        calls = self._calls  # read once: another thread may end them
        if before != info.content_hash and calls and calls[-1].retrace:
            from be_runtime.jax import transforms

            transforms.forget_programs()

    def failed(self, name: str, error: Exception) -> None:
        """Show why the files of a module can't be used."""
        self.show(name, error)

    def _report_stale(self, names: Sequence[str]) -> None:
        """Print, once for each name, that `jax.ffi.ffi_call` calls the first code."""
        stale = [name for name in names if name not in self._stale_names]
        self._stale_names.update(stale)
        if stale:
            obtain.say(
                f"{', '.join(stale)}: the source has changed. Functions of the module call the new code, and "
                "jax.ffi.ffi_call by the name calls the first code"
            )


def watcher() -> Watcher:
    """Return the process's watcher."""
    return PROCESS.only(Watcher, lambda: Watcher(PROCESS))


def _join(thread: threading.Thread | None) -> None:
    """Wait for a thread to end, but not for long, since it may be compiling."""
    if thread is not None and thread.is_alive():
        thread.join(_LONGEST_END_S)


def _print_error(name: str, error: Exception) -> None:
    obtain.say(f"{name} was saved, but the previous code stays in use: {error}")
