"""The interface through which the search sees a machine: files, folders, programs, servers and variables."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from be_toolchain.named import NamedTuple


class FileStamp(NamedTuple):
    """The state of a file or folder. It changes when the content changes.

    Parameters
    ----------
    is_dir, executable : bool
        Whether it is a folder, and whether anyone may execute it.
    inode, size_bytes, mtime_ns, ctime_ns : int
        Its stat fields, links followed. Copies and archives set the modification time, but nothing sets the change
        time.
    """

    is_dir: bool = False
    executable: bool = False
    inode: int = 0
    size_bytes: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0


class RunResult(NamedTuple):
    """The result of a program that ended, was stopped, or could not be started.

    Parameters
    ----------
    argv : tuple of str
        The command.
    returncode : int or None
        The exit status; None if it did not start or was stopped.
    stdout, stderr : str
        Its output, undecodable bytes replaced.
    problem : str
        The reason why `returncode` is None.
    """

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str = ""
    stderr: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """Standard output, followed by standard error."""
        return self.stdout + self.stderr

    @property
    def why_failed(self) -> str:
        """The reason for a failure, in one line; empty after success."""
        if self.returncode == 0:
            return ""
        lines = (self.stderr or self.stdout).strip().splitlines()
        return self.problem or f"exit status {self.returncode}{': ' + lines[-1].strip() if lines else ''}"


class FolderFacts(NamedTuple):
    """The facts that determine the possible uses of a folder, or of its nearest existing parent.

    Parameters
    ----------
    path : Path
        The folder in question.
    standing : Path
        `path`, or its nearest existing parent.
    writable, executable : bool
        Whether files can be made there, and whether programs and libraries in it can be loaded (not ``noexec``).
    free_bytes : int or None
        The free space for an ordinary user; None if it is unknown.
    obstacle : str
        Any other reason why libraries can't be kept there, for example that another user could put a file there, see
        `trust`; empty without one.
    own_part : Path or None
        The user's own folder in a folder for all users, such as one of mode 1777; None for other folders.
    readable : bool
        Whether this user can list the folder.
    doubtful : tuple of Path
        The folders and links on the way to it that another user could exchange, unless this user vouches for them.
        `obstacle` names the first one.
    """

    path: Path
    standing: Path
    writable: bool = True
    executable: bool = True
    free_bytes: int | None = None
    obstacle: str = ""
    own_part: Path | None = None
    readable: bool = True
    doubtful: tuple[Path, ...] = ()


class System(ABC):
    """The interface through which the search sees a machine. Paths are absolute.

    Attributes
    ----------
    environ : Mapping of str to str
        The environment variables.
    machine : str
        ``"x86_64"`` or ``"aarch64"``.
    prefixes : tuple of Path
        The running Python's prefix and, in a virtual environment, the prefix of its base Python.
    site_dirs : tuple of Path
        The site-packages folders on Python's path, in its order.
    cwd : Path or None
        The working folder; None if it was removed.
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
        """Return the state of a file or folder, links followed; None if it does not exist or can't be examined."""

    @abstractmethod
    def list_dir(self, path: Path) -> tuple[str, ...]:
        """Return the sorted names in a folder; empty if there is no folder."""

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
        """Run all commands at once, with empty input, with the variables of `plain_environ` except those in `unset`."""

    @abstractmethod
    def open_library(self, name: str) -> Any:
        """Open a shared library for ctypes; raise OSError if the loader does not find it."""

    @abstractmethod
    def folder_facts(self, path: Path) -> FolderFacts:
        """Examine a folder that may not exist yet; a leading ``~`` is the user's home folder."""

    @abstractmethod
    def ask_server(self, url: str, name: str) -> str:
        """Ask a web server for a file below a URL, for about a second; return the problem, or an empty text."""

    @abstractmethod
    def has_package(self, name: str) -> bool:
        """Return whether the running Python can find a package, without importing it."""

    @abstractmethod
    def private_key_problem(self, path: Path) -> str:
        """Return the problem of a file that only the user should be able to read, or an empty text."""

    @abstractmethod
    def distrust(self, path: Path) -> str:
        """Return the reason to distrust a file, which another user may have written or could write; else empty."""

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


_COMMANDS = (
    (("debian", "ubuntu"), "apt-get install g++", "apt-get install clang-19 (or another from clang-16 on)"),
    (("fedora", "rhel", "centos"), "dnf install gcc-c++", "dnf install clang"),
    (("suse",), "zypper install gcc-c++", "zypper install clang"),
    (("arch",), "pacman -S gcc", "pacman -S clang"),
    (("alpine",), "apk add g++", "apk add clang"),
)
"""The commands that install the system's own C++ compiler, and a clang that compiles CUDA, by words of ``ID`` and
``ID_LIKE`` in ``/etc/os-release``."""

_CONDA = ("conda install gxx", "conda install -c conda-forge clangxx")
"""The commands for all other distributions."""


def distribution_of(system: System) -> str:
    """Return the names of the machine's distribution and of the distributions that it derives from."""
    return parse_os_release(system.read_text(Path("/etc/os-release")) or "")


def parse_os_release(text: str) -> str:
    r"""Read ``ID`` and ``ID_LIKE`` from the text of ``/etc/os-release``, as words.

    Examples
    --------
    >>> parse_os_release('NAME="Ubuntu"\nID=ubuntu\nID_LIKE=debian')
    'ubuntu debian'
    """
    values = dict(re.findall(r"^(ID|ID_LIKE)=\"?([^\"\n]*)", text, re.MULTILINE))
    return " ".join(filter(None, (values.get("ID"), values.get("ID_LIKE"))))


def host_package(distribution: str) -> str:
    """Return the command that installs the system's C++ compiler.

    Examples
    --------
    >>> host_package("ubuntu debian")
    'apt-get install g++'
    """
    return _commands(distribution)[0]


def clang_package(distribution: str) -> str:
    """Return the command that installs a clang that compiles CUDA.

    Examples
    --------
    >>> clang_package("fedora")
    'dnf install clang'
    """
    return _commands(distribution)[1]


def _commands(distribution: str) -> tuple[str, str]:
    """Return the commands in the row of a distribution."""
    words = set(distribution.split())
    return next(((host, clang) for names, host, clang in _COMMANDS if words.intersection(names)), _CONDA)


PRINT_VARIABLES = (
    *("CC_LOG_DIAGNOSTICS", "CC_PRINT_HEADERS", "CC_PRINT_OPTIONS", "CC_PRINT_PROC_STAT", "CLICOLOR", "CLICOLOR_FORCE"),
    *("COLLECT_NO_DEMANGLE", "FORCE_COLOR", "GCC_COLORS", "GCC_EXTRA_DIAGNOSTIC_OUTPUT", "GCC_URLS", "LANGUAGE"),
    *("MAKEFLAGS", "MFLAGS", "NINJA_STATUS", "SHELLOPTS", "TERM_URLS"),
)
"""Variables that change the output of programs; users, Jupyter, make and others set them."""


def plain_environ(environ: Mapping[str, str], unset: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the variables for a program whose output is parsed: messages in the C locale and without colors.

    Examples
    --------
    >>> plain_environ({"CLICOLOR_FORCE": "1", "HOME": "/home/me"})
    {'HOME': '/home/me', 'LC_ALL': 'C', 'TERM': 'dumb'}
    """
    left_out = {*PRINT_VARIABLES, *unset}
    kept = {name: value for name, value in environ.items() if name not in left_out}
    return kept | {"LC_ALL": "C", "TERM": "dumb"}
