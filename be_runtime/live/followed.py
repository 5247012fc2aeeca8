"""A module that is made anew when one of its files changes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from be_runtime.errors import BeRuntimeError, BuildError, warn_caller
from be_runtime.live.author_files import named_files
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.request.arguments import Reread, dir_again
from be_runtime.request.options import BuildRequest, LoadOptions
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.forks import ThreadLock

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
    """The maker of a followed module, which is told of its changes too; see `be_runtime.live.watcher`."""

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
