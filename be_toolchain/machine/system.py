"""The interface to the machine and its real implementation, the only user of subprocess and the environment."""

from __future__ import annotations

import os
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from be_toolchain.machine.plain_environ import plain_environ

if TYPE_CHECKING:
    import subprocess


class FileStamp(NamedTuple):
    """The state of a file or folder, which changes when its content does.

    Parameters
    ----------
    is_dir, executable : bool
        Whether it is a folder, and whether anyone may execute it.
    inode, size_bytes, mtime_ns, ctime_ns : int
        Its stat fields, links followed. Copies and archives set the modification time back; nothing sets the change
        time back.
    """

    is_dir: bool = False
    executable: bool = False
    inode: int = 0
    size_bytes: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


class RunResult(NamedTuple):
    """The result of a program that finished, was stopped, or could not be started.

    Parameters
    ----------
    argv : tuple of str
        The command.
    returncode : int or None
        The exit status; None when it did not start or was stopped.
    stdout, stderr : str
        Its output, undecodable bytes replaced.
    problem : str
        Why `returncode` is None.
    """

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str = ""
    stderr: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """Both outputs, standard output first."""
        return self.stdout + self.stderr

    @property
    def why_failed(self) -> str:
        """One line for a message; empty after success."""
        if self.returncode == 0:
            return ""
        lines = (self.stderr or self.stdout).strip().splitlines()
        return self.problem or f"exit status {self.returncode}{': ' + lines[-1].strip() if lines else ''}"


class FolderFacts(NamedTuple):
    """The possible uses of a folder, or of its nearest existing parent.

    Parameters
    ----------
    path : Path
        The folder in question.
    standing : Path
        `path`, or its nearest existing parent.
    writable, executable : bool
        Whether files can be made there, and whether programs and libraries in it can be loaded (not ``noexec``).
    free_bytes : int or None
        The free space for an ordinary user; None when unknown.
    obstacle : str
        Any other reason why libraries can't be kept there: it is not a folder, or another user could put a file
        there, see `folder_trust`; empty otherwise.
    own_part : Path or None
        The user's own folder in a folder for all users, such as one of mode 1777; None elsewhere.
    readable : bool
        Whether this user can list what is there.
    """

    path: Path
    standing: Path
    writable: bool = True
    executable: bool = True
    free_bytes: int | None = None
    obstacle: str = ""
    own_part: Path | None = None
    readable: bool = True


class System(ABC):
    """The interface through which the search sees a machine. Paths are absolute.

    Attributes
    ----------
    environ : Mapping of str to str
        The environment variables.
    machine : str
        ``"x86_64"`` or ``"aarch64"``.
    prefixes : tuple of Path
        The running Python's prefix and, in a virtual environment, that of its base Python.
    site_dirs : tuple of Path
        The site-packages folders on Python's path, in its order.
    cwd : Path or None
        The working folder; None when it was removed.
    libc : str
        The GNU C library's name and version, ``"glibc 2.36"``; empty with another C library.
    """

    environ: Mapping[str, str]
    machine: str
    prefixes: tuple[Path, ...]
    site_dirs: tuple[Path, ...]
    cwd: Path | None
    libc: str

    @abstractmethod
    def stat(self, path: str | Path) -> FileStamp | None:
        """Return the state of the file or folder at `path`, links followed; None if there is none or it is hidden."""

    @abstractmethod
    def list_dir(self, path: Path) -> tuple[str, ...]:
        """Return the sorted names in a folder; empty when there is no folder."""

    @abstractmethod
    def read_text(self, path: Path, limit_bytes: int = 1 << 20) -> str | None:
        """Read the beginning of a file as UTF-8, undecodable bytes replaced; None if there is no readable file."""

    @abstractmethod
    def realpath(self, path: Path) -> Path:
        """Return `path` with its links resolved."""

    @abstractmethod
    def run_all(
        self, commands: tuple[tuple[str, ...], ...], *, unset: tuple[str, ...] = (), timeout_s: float = 20.0
    ) -> tuple[RunResult, ...]:
        """Run all commands at once, with empty input, in `plain_environ` without the variables in `unset`."""

    @abstractmethod
    def open_library(self, name: str) -> Any:
        """Open a shared library for ctypes; raise OSError when the loader does not find it."""

    @abstractmethod
    def folder_facts(self, path: Path) -> FolderFacts:
        """Examine a folder that may not exist yet; a leading ``~`` is the user's home folder."""

    @abstractmethod
    def ask_server(self, url: str, name: str) -> str:
        """Return why a web server can't be asked for a file below a URL; empty if it answers, in about a second."""

    @abstractmethod
    def has_package(self, name: str) -> bool:
        """Return whether the running Python can find a package; it is not imported."""

    @abstractmethod
    def private_key_problem(self, path: Path) -> str:
        """Return what is wrong with a file that should be the user's alone to read; empty if nothing is."""

    @abstractmethod
    def distrust(self, path: Path) -> str:
        """Return why a file is not believed: another user may have put it there, or could; see `folder_trust`."""

    def run(self, argv: tuple[str, ...], *, unset: tuple[str, ...] = (), timeout_s: float = 20.0) -> RunResult:
        """Run one command as `run_all` does."""
        return self.run_all((argv,), unset=unset, timeout_s=timeout_s)[0]

    def is_file(self, path: Path) -> bool:
        """Return whether `path` is a file."""
        found = self.stat(path)
        return found is not None and not found.is_dir

    def is_dir(self, path: Path) -> bool:
        """Return whether `path` is a folder."""
        found = self.stat(path)
        return found is not None and found.is_dir

    def is_program(self, path: Path) -> bool:
        """Return whether `path` is an executable file."""
        found = self.stat(path)
        return found is not None and not found.is_dir and found.executable

    @property
    def path_dirs(self) -> tuple[Path, ...]:
        """The absolute folders of PATH, each once, in order."""
        words = self.environ.get("PATH", "").split(os.pathsep)
        return tuple(dict.fromkeys(Path(word) for word in words if word.startswith("/")))

    def which(self, name: str) -> Path | None:
        """Find a program on PATH; an absolute `name` is only checked."""
        if "/" in name:
            path = Path(name)
            return path if path.is_absolute() and self.is_program(path) else None
        return next((folder / name for folder in self.path_dirs if self.is_program(folder / name)), None)


_KIND, _FOLDER, _FILE = 0o170000, stat.S_IFDIR, stat.S_IFREG


def stamp_path(path: str | Path) -> FileStamp | None:
    """Return the state of a real file or folder; None if there is none or it is hidden."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a warm load does this for every recorded path; Path would double its cost
    except (OSError, ValueError):
        return None
    mode = found.st_mode
    kind = mode & _KIND
    if kind not in (_FOLDER, _FILE):  # pipes, sockets and devices hold nothing for a search
        return None
    executable, times = bool(mode & 0o111), (found.st_mtime_ns, found.st_ctime_ns)
    return FileStamp(kind == _FOLDER, executable, found.st_ino, found.st_size, *times)


_PIECE_BYTES = 1 << 14


class LocalSystem(System):
    """The local machine, as this process sees it now.

    Parameters
    ----------
    environ : Mapping of str to str, optional
        The environment variables; this process's unless given.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self.environ = os.environ if environ is None else environ
        self.machine = os.uname().machine
        self.prefixes = tuple(dict.fromkeys((Path(sys.prefix), Path(sys.base_prefix))))
        ends = ("site-packages", "dist-packages")
        found = (Path(entry) for entry in sys.path if entry.rstrip("/").endswith(ends) and entry.startswith("/"))
        self.site_dirs = tuple(dict.fromkeys(found))
        self.cwd = _working_folder()
        self.libc = _libc()

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
        parts: list[bytes] = []
        try:
            # A pipe or a device has no end, and the open of one can wait for ever.
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb", buffering=0) as file:  # noqa: PTH123 - by descriptor
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                # In pieces, since the kernel clears as much memory as a read of /proc/sys asks for.
                while limit_bytes > 0 and (part := file.read(min(limit_bytes, _PIECE_BYTES))):
                    parts.append(part)
                    limit_bytes -= len(part)
        except OSError:
            return None
        return b"".join(parts).decode("utf-8", "replace")

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
        started = [_start(argv, environ) for argv in commands]
        return tuple(
            RunResult(argv=argv, returncode=None, problem=process)
            if isinstance(process, str)
            else _finish(argv, process, max(deadline - time.monotonic(), 0.01), timeout_s)
            for argv, process in zip(commands, started, strict=True)
        )

    def open_library(self, name: str) -> Any:
        """See `System.open_library`."""
        import ctypes

        return ctypes.CDLL(name)

    def folder_facts(self, path: Path) -> FolderFacts:
        """See `System.folder_facts`."""
        from be_toolchain.machine.folder_trail import judge_folder_at

        expanded = Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises where the home is unknown
        if expanded.is_absolute():
            path = expanded
        elif path.parts[:1] != ("~",) and self.cwd is not None:
            path = self.cwd / path
        standing = next((place for place in (path, *path.parents) if os.path.exists(place)), Path("/"))  # noqa: PTH110 - Path.exists raises below a folder that can't be read
        # Root may write anywhere but on a read-only mount: the flags of the mount say that, access() too.
        writable = standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)
        obstacle, own = judge_folder_at(path, standing)
        readable = os.access(standing, os.R_OK | os.X_OK if standing == path else os.X_OK)
        facts = FolderFacts(path, standing, writable=writable, readable=readable, obstacle=obstacle, own_part=own)
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
        from http.client import HTTPException

        from be_toolchain.machine.http_exchange import exchange, parse_server

        try:
            reply = exchange(parse_server(url), "GET", name, whole_s=2.0)
        except (OSError, HTTPException, ValueError) as error:
            return str(error) or type(error).__name__
        return "" if reply.status in (200, 404) else reply.text

    def has_package(self, name: str) -> bool:
        """See `System.has_package`."""
        from importlib.util import find_spec

        return find_spec(name) is not None

    def private_key_problem(self, path: Path) -> str:
        """See `System.private_key_problem`."""
        from be_toolchain.machine.folder_trust import distrust_secret

        try:
            with path.open("rb") as file:
                return distrust_secret(os.fstat(file.fileno()), os.geteuid())
        except OSError as error:
            return f"can't be read: {error.strerror}"

    def distrust(self, path: Path) -> str:
        """See `System.distrust`."""
        from be_toolchain.machine.folder_trail import trail
        from be_toolchain.machine.folder_trust import distrust_trail

        home = self.environ.get("HOME", "")
        home = home if home and path.is_relative_to(home) else ""
        try:
            return distrust_trail(trail(str(path)), os.geteuid(), home)
        except OSError as error:
            return f"{error.filename} can't be examined: {error.strerror}"


def _working_folder() -> Path | None:
    """Return the working folder; None if it was removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def _libc() -> str:
    """Return the GNU C library's name and version; empty with another C library."""
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


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
    import contextlib
    import subprocess

    try:
        out, err = process.communicate(timeout=left_s)
    except BaseException as error:
        # It has a session of its own: an interrupt from the terminal does not reach it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)
        process.communicate()
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return RunResult(argv=argv, returncode=None, problem=f"did not finish within {timeout_s:g} s")
    return RunResult(
        argv=argv,
        returncode=process.returncode,
        stdout=out.decode("utf-8", "replace"),
        stderr=err.decode("utf-8", "replace"),
    )
