"""The local machine, behind the interface of `System`. No other module of the package starts processes."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_toolchain.machine import trust
from be_toolchain.machine.system import FileStamp, FolderFacts, RunResult, System, plain_environ

if TYPE_CHECKING:
    import subprocess

_KIND, _FOLDER, _FILE = 0o170000, stat.S_IFDIR, stat.S_IFREG


def stamp_path(path: str | Path) -> FileStamp | None:
    """Return the state of a file or folder; None if it does not exist or can't be examined."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a warm load does this for every recorded path; Path would double its cost
    except (OSError, ValueError):
        return None
    mode = found.st_mode
    kind = mode & _KIND
    if kind not in (_FOLDER, _FILE):  # a search has no use for pipes, sockets and devices
        return None
    times = (found.st_mtime_ns, found.st_ctime_ns)
    return FileStamp(kind == _FOLDER, bool(mode & 0o111), found.st_ino, found.st_size, *times)


class LocalSystem(System):
    """The local machine, as this process sees it now.

    Parameters
    ----------
    environ : Mapping of str to str, optional
        The environment variables. The default is the environment of this process.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.machine = os.uname().machine
        self.prefixes = tuple(dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix))))
        ends = ("site-packages", "dist-packages")
        found = (Path(entry) for entry in sys.path if entry.rstrip("/").endswith(ends) and entry.startswith("/"))
        self.site_dirs = tuple(dict.fromkeys(found))
        self.cwd, self.libc = None, ""
        with contextlib.suppress(OSError):  # the folder was removed
            self.cwd = Path.cwd()
        with contextlib.suppress(ValueError, OSError):  # another C library than GNU's
            self.libc = os.confstr("CS_GNU_LIBC_VERSION") or ""

    def stat(self, path: str | Path) -> FileStamp | None:
        """See `System.stat`."""
        return stamp_path(path)

    def list_dir(self, path: Path) -> tuple[str, ...]:
        """See `System.list_dir`."""
        try:
            return tuple(sorted(os.listdir(path)))  # noqa: PTH208 - a Path for each name in /usr/bin takes 10 ms
        except OSError:
            return ()

    def read_text(self, path: Path, limit_bytes: int = 1 << 20) -> str | None:
        """See `System.read_text`."""
        try:
            with trust.open_regular(path, sys.maxsize) as file:
                return trust.read_beginning(file, limit_bytes).decode("utf-8", "replace")
        except OSError:
            return None

    def realpath(self, path: Path) -> Path:
        """See `System.realpath`."""
        return Path(os.path.realpath(path))

    def run_all(
        self, commands: tuple[tuple[str, ...], ...], *, unset: tuple[str, ...] = (), timeout_s: float = 20.0
    ) -> tuple[RunResult, ...]:
        """See `System.run_all`."""
        import time

        environ = plain_environ(self.environ, unset)
        deadline = time.monotonic() + timeout_s
        started: list[subprocess.Popen[bytes] | str] = []
        try:
            started += (_start(argv, environ) for argv in commands)
            return tuple(
                RunResult(argv=argv, returncode=None, problem=process)
                if isinstance(process, str)
                else _finish(argv, process, max(deadline - time.monotonic(), 0.01), timeout_s)
                for argv, process in zip(commands, started, strict=True)
            )
        finally:
            for process in started:
                if not isinstance(process, str) and process.returncode is None:  # after an interrupt
                    _stop(process)

    def open_library(self, name: str) -> Any:
        """See `System.open_library`."""
        import ctypes

        return ctypes.CDLL(name)

    def folder_facts(self, path: Path) -> FolderFacts:
        """See `System.folder_facts`."""
        expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises where the home is unknown
        if expanded.is_absolute():
            path = expanded
        elif path.parts[:1] != ("~",) and self.cwd is not None:
            path = self.cwd / path
        standing = next((place for place in (path, *path.parents) if os.path.exists(place)), Path("/"))  # noqa: PTH110 - Path.exists raises below a folder that can't be read
        # Root may write anywhere except on a read-only mount, which access() respects.
        writable = standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)
        readable = os.access(standing, os.R_OK | os.X_OK if standing == path else os.X_OK)
        facts = trust.judge_folder_at(self, path, standing)._replace(writable=writable, readable=readable)
        try:
            mounted = os.statvfs(standing)
        except OSError:
            return facts
        return facts._replace(
            writable=writable and not mounted.f_flag & os.ST_RDONLY,
            executable=not mounted.f_flag & os.ST_NOEXEC,
            free_bytes=mounted.f_bavail * mounted.f_frsize,
        )

    def ask_server(self, url: str, name: str) -> str:
        """See `System.ask_server`."""
        from be_toolchain.machine.http import exchange, parse_server

        try:
            reply = exchange(parse_server(url), "GET", name, whole_s=2.0)
        except (OSError, ValueError) as error:
            return str(error) or type(error).__name__
        return "" if reply.status in (200, 404) else reply.text

    def has_package(self, name: str) -> bool:
        """See `System.has_package`."""
        import importlib.util

        return importlib.util.find_spec(name) is not None

    def private_key_problem(self, path: Path) -> str:
        """See `System.private_key_problem`."""
        try:
            with trust.open_regular(path) as file:
                return trust.distrust_secret(os.fstat(file.fileno()), os.geteuid())
        except OSError as error:
            return f"can't be read: {error.strerror}"

    def distrust(self, path: Path) -> str:
        """See `System.distrust`."""
        try:
            return next((f"{place} {reason}" for place, reason in trust.distrusted_on_way(path)), "")
        except OSError as error:
            return f"{error.filename} can't be examined: {error.strerror}"


def _start(argv: tuple[str, ...], environ: Mapping[str, str]) -> subprocess.Popen[bytes] | str:
    """Start a program, or return the reason why it can't be started."""
    import subprocess

    from be_toolchain.machine.forks import no_fork

    pipe = subprocess.PIPE
    try:
        with no_fork:
            return subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ, cwd="/", start_new_session=True
            )
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)


def _finish(argv: tuple[str, ...], process: subprocess.Popen[bytes], left_s: float, timeout_s: float) -> RunResult:
    """Collect a program's output, or stop it with all processes that it started."""
    import subprocess

    try:
        out, err = process.communicate(timeout=left_s)
    except subprocess.TimeoutExpired:
        _stop(process)
        return RunResult(argv=argv, returncode=None, problem=f"did not finish within {timeout_s:g} s")
    return RunResult(
        argv=argv,
        returncode=process.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and its children; an interrupt from the terminal does not reach their session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, 9)
    process.communicate()
