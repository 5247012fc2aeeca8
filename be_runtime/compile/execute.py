"""Child processes: ninja, which runs the commands of a build plan in a folder, and single programs.

No other file of be_runtime starts processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sysconfig
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from time import perf_counter_ns
from typing import TextIO

from be_runtime import trace
from be_runtime.compile.plan import BuildPlan, Edge
from be_runtime.compile.progress import Progress
from be_runtime.errors import BuildError, BuildTimeoutError
from be_toolchain.machine.forks import no_fork
from be_toolchain.machine.system import System, plain_environ
from be_toolchain.named import NamedTuple

_LINE_ENDS = r"""n=$(printf '\nx'); n=${n%x}; r=$(printf '\r'); """
_VARIABLES = {"\n": '"$n"', "\r": '"$r"'}

_LOG = ".ninja_log"
_TIMES = re.compile(r"[0-9]{1,18} [0-9]{1,18}")

JOB_BYTES = 5 * 2**28
"""Memory that one compiler may need: 1.25 GiB, a quarter more than cicc's peak for a file full of CUB and Thrust."""

_MEMINFO = Path("/proc/meminfo")
_OWN_GROUPS = Path("/proc/self/cgroup")
_GROUPS = Path("/sys/fs/cgroup")
_UNLIMITED_BYTES = 2**60
"""In cgroup v1, a limit above this number means that there is no limit."""

_GRACE_S = 2.0
"""Seconds that commands have to end after a signal."""

_ALLOCATION = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216"
"""Setting that gives compilers their memory in large pages and large steps.

With small pages, cudafe++ touches 46,000 of them in a quarter of a second, and the kernel takes half of that time.
https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""

_RUNNING: set[subprocess.Popen[str]] = set()


def escape_value(text: str) -> str:
    """Write a text as the value of a ninja variable."""
    return text.replace("$", "$$")


def escape_path(text: str) -> str:
    """Write a path for ninja's build statement.

    Examples
    --------
    >>> print(escape_path("a b:c"))
    a$ b$:c
    """
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def shell_command(argv: Sequence[str], environ: Sequence[tuple[str, str]] = ()) -> str:
    r"""Write one line for ``/bin/sh`` that runs `argv` with some variables and every argument intact.

    Examples
    --------
    >>> shell_command(["cc", "a b"], [("LANG", "C")])
    "LANG=C cc 'a b'"
    """
    words = [*(f"{name}={_quote_lines(value)}" for name, value in environ), *map(_quote_lines, argv)]
    has_line_ends = any(end in text for text in (*argv, *(value for _, value in environ)) for end in _VARIABLES)
    return (_LINE_ENDS if has_line_ends else "") + " ".join(words)


def _quote_lines(argument: str) -> str:
    """Quote an argument for the shell, with its line ends as variables."""
    return "".join(_VARIABLES.get(part) or shlex.quote(part) for part in re.split(r"([\n\r])", argument))


def render_ninja(edges: Sequence[Edge]) -> str:
    """Write ``build.ninja`` for a graph of commands.

    A command's description is its number, which needs no quoting. The inputs are only the files that other commands
    make. All other files exist, and ninja can't express every path.
    """
    made = {name for edge in edges for name in edge.outputs}
    lines = ["ninja_required_version = 1.8", "rule run", "  command = $argv", "  description = $number", ""]
    for number, edge in enumerate(edges):
        outputs = " ".join(map(escape_path, edge.outputs))
        inputs = " ".join(escape_path(name) for name in edge.inputs if name in made)
        lines += [
            f"build {outputs}: run {inputs}",
            f"  argv = {escape_value(shell_command(edge.argv, edge.environ))}",
            f"  number = {number}",
            "",
        ]
    return "\n".join(lines)


class NinjaLog:
    """The part of a folder's log that one run of ninja adds; make the object before ninja starts.

    Ninja logs a command before it prints the status line of the next one.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / _LOG
        self._read_bytes = self._path.stat().st_size if self._path.exists() else 0
        self._times: dict[str, tuple[int, int]] = {}
        self._seen: list[tuple[Edge, int]] = []
        self._asked_ns = perf_counter_ns()

    def seconds(self, output: str) -> float | None:
        """Return the duration of the command that made an output; None if the output is not made yet."""
        if output not in self._times and self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._read_bytes)
                added = file.read()
            self._read_bytes += len(added)
            self._times |= _ninja_times(added.decode("utf-8", "surrogateescape"))
        began_ms, ended_ms = self._times.get(output, (0, None))
        return None if ended_ms is None else (ended_ms - began_ms) / 1000

    def see(self, edge: Edge) -> None:
        """Note that ninja has printed the status line of a command, which it does as soon as the command ends."""
        self._seen.append((edge, perf_counter_ns()))

    def add_to_trace(self, argv: Sequence[str]) -> None:
        """Add ninja's start and the commands that succeeded to the load's timeline.

        The log counts from ninja's start, which is estimated from the ends of the commands.
        """
        made = [(edge, ns, self._times[edge.outputs[0]]) for edge, ns in self._seen if edge.outputs[0] in self._times]
        if made:
            zero_ns = min(seen_ns - ended_ms * 1_000_000 for _, seen_ns, (_, ended_ms) in made)
            first_ms = min(began_ms for _, _, (began_ms, _) in made)
            trace.command("starting ninja", argv, self._asked_ns, zero_ns + first_ms * 1_000_000)
            for edge, _, times_ms in made:
                trace.command(edge.description, edge.argv, *(zero_ns + ms * 1_000_000 for ms in times_ms))


def parse_ninja_log(text: str) -> dict[str, float]:
    r"""Read the seconds for each output.

    Examples
    --------
    >>> parse_ninja_log("# ninja log v6\n0\t120\t1\tobj/a.o\tf0\n120\t150\t2\tmodule.so\tf1\n")
    {'obj/a.o': 0.12, 'module.so': 0.03}
    """
    return {output: (ended_ms - began_ms) / 1000 for output, (began_ms, ended_ms) in _ninja_times(text).items()}


def _ninja_times(text: str) -> dict[str, tuple[int, int]]:
    """Read the milliseconds from ninja's start to the start and the end of the command that made each output."""
    times = {}
    for line in text.splitlines():
        start, _, rest = line.partition("\t")
        fields = rest.split("\t")
        if len(fields) == 4 and _TIMES.fullmatch(f"{start} {fields[0]}"):
            times[fields[2]] = int(start), int(fields[0])
    return times


def resolve_ninja(system: System) -> Path:
    """Find the ninja program: in this Python environment, else on PATH.

    Raises
    ------
    BuildError
        Ninja is not installed.
    """
    beside = Path(sysconfig.get_path("scripts")) / "ninja"
    found = beside if system.is_program(beside) else system.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed", hints=("pip install ninja, or conda install ninja",))
    return found


def fast_linker_flags(compiler: Path, system: System) -> tuple[str, ...]:
    """Return the flag for a faster linker, if the compiler's folder has one; a later flag of the author wins."""
    folder = system.realpath(compiler.parent)
    found = (name for name in ("gold", "lld") if system.is_program(folder / f"ld.{name}"))  # 19, 31 ms; ld: 44
    return tuple(f"-fuse-ld={name}" for name in found)[:1]


def find_objcopy(compiler: Path, system: System) -> str | None:
    """Find the program that edits objects, preferably the compiler's own."""
    triple = re.sub(r"(clang\+\+|g\+\+|c\+\+)(-\d+)?$", "", compiler.name)
    names = (str(compiler.parent / f"{triple}objcopy"), f"{triple}objcopy", "objcopy", "llvm-objcopy")
    return next((str(found) for name in names if (found := system.which(name))), None)


def job_count(processors: int, available_bytes: int | None, wanted: int | None = None, limit: int | None = None) -> int:
    """Return the number of commands to run at a time. Pure.

    Parameters
    ----------
    processors : int
        Number of processors that this process may use.
    available_bytes : int or None
        Available memory; None if unknown.
    wanted : int, optional
        Number that the caller requests, regardless of the memory.
    limit : int, optional
        Upper limit.

    Examples
    --------
    >>> job_count(16, 8 * 2**30)
    6
    >>> job_count(16, 8 * 2**30, wanted=12, limit=10)
    10
    """
    count = wanted
    if count is None:
        room = processors if available_bytes is None else available_bytes // JOB_BYTES
        count = max(1, min(processors, room))
    return count if limit is None else min(count, limit)


def available_memory_bytes(system: System) -> int | None:
    """Return the memory that this process and its children can still use, by the limits of machine and control groups.

    The sources are `/proc/meminfo <https://docs.kernel.org/filesystems/proc.html#meminfo>`_ and both versions of
    `control groups <https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files>`_; None if neither can
    be read.
    """
    found = [room for group in _memory_groups(system) if (room := _group_room(system, group)) is not None]
    meminfo = re.search(r"^MemAvailable:\s+(\d+) kB$", system.read_text(_MEMINFO) or "", re.MULTILINE)
    if meminfo is not None:
        found.append(int(meminfo[1]) * 1024)
    return min(found, default=None)


def _memory_groups(system: System) -> list[Path]:
    """List the folders of this process's control group and its ancestors; each may have a limit."""
    folders: list[Path] = []
    for line in (system.read_text(_OWN_GROUPS) or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, group = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = _GROUPS / "memory" if controllers else _GROUPS
        path = PurePosixPath(group)
        folders += [root / str(each).lstrip("/") for each in (path, *path.parents)]
    return list(dict.fromkeys(folders))


def _group_room(system: System, folder: Path) -> int | None:
    """Return the bytes that a control group can still use; page cache that can be dropped counts as free."""
    for limit_file, used_file in (
        ("memory.max", "memory.current"),
        ("memory.limit_in_bytes", "memory.usage_in_bytes"),
    ):
        limit, used = (_number(system, folder / name) for name in (limit_file, used_file))
        if limit is not None and used is not None and limit < _UNLIMITED_BYTES:
            cached = re.search(
                r"^(?:total_)?inactive_file (\d+)$", system.read_text(folder / "memory.stat") or "", re.MULTILINE
            )
            return max(0, limit - used + (int(cached[1]) if cached is not None else 0))
    return None


def _number(system: System, path: Path) -> int | None:
    text = (system.read_text(path) or "").strip()
    return int(text) if text.isdecimal() else None


def stop_running() -> None:
    """Stop the builds of all threads after an interrupt, which only the main thread receives."""
    for process in _RUNNING.copy():  # in one step, as no iteration is without the interpreter's lock
        process.terminate()


class Step(NamedTuple):
    """One finished command.

    Parameters
    ----------
    edge : Edge
    output : str
        All its output.
    seconds : float or None
        Duration; None if the command failed.
    """

    edge: Edge
    output: str
    seconds: float | None

    @property
    def failed(self) -> bool:
        """Return whether the command failed, so that its output files can't be used."""
        return self.seconds is None


class Ended(NamedTuple):
    """The end of a child process.

    Parameters
    ----------
    code : int or None
        Exit code, negative for a signal; None if the time limit ended the child.
    seconds : float
    """

    code: int | None
    seconds: float


def run_child(
    argv: Sequence[str], variables: Mapping[str, str], *, output: TextIO, timeout_s: float | None = None
) -> Ended:
    """Run a program with this process's environment and further variables, and wait for its end.

    Parameters
    ----------
    argv : sequence of str
    variables : mapping of str to str
        Further variables.
    output : file
        Open file for all its output.
    timeout_s : float, optional
        Time limit for the program and all processes that it starts.
    """
    began = time.monotonic()
    with no_fork:
        process = subprocess.Popen(
            argv, env={**os.environ, **variables}, stdout=output, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
    with _stopping(process, timeout_s) as timed_out:
        code = process.wait()
    return Ended(None if timed_out.is_set() else code, time.monotonic() - began)


class _Reader:
    """Reader that splits ninja's output into steps; ninja's log has the commands that succeeded.

    Parameters
    ----------
    edges : sequence of Edge
    status : str
        Mark of ninja's status lines, before a command's number; random, so that no command prints such a line.
    log : NinjaLog
    progress : Progress or None
    """

    def __init__(self, edges: Sequence[Edge], status: str, log: NinjaLog, progress: Progress | None) -> None:
        self._edges = {str(number): edge for number, edge in enumerate(edges)}
        self._status = status
        self._log, self._progress = log, progress
        self._edge: Edge | None = None
        self._lines: list[str] = []
        self._owes_line = False
        self.loose: list[str] = []
        self.failed: Step | None = None

    def read(self, lines: Iterable[str]) -> Iterator[Step]:
        """Yield each step except the last when its output is complete, which is when the next step has finished."""
        for line in lines:
            text, _, number = line.partition(self._status)
            edge = self._edges.get(number)
            if edge is None:
                self._take(line)
                continue
            if text:
                # After an output without a line end, ninja appends its status to the last line of the output.
                self._take(text)
                self._owes_line = True
            self._log.see(edge)
            yield from self._finished()
            self._edge = edge
            if self._progress is not None:
                self._progress.finish(edge)

    def _take(self, line: str) -> None:
        if self._edge is None:
            self.loose.append(line)
        elif self._owes_line and not self._lines and not line:
            self._owes_line = False
        else:
            self._lines.append(line)

    def end(self, *, failed: bool) -> Iterator[Step]:
        """Yield the last step; if ninja failed, the last line is ninja's own message."""
        if failed and self._lines:
            text, mark, message = self._lines[-1].rpartition("ninja: ")
            if mark and (not text or message.startswith("build stopped: ")):
                self.loose.append(mark + message)
                self._lines[-1:] = [text] if text else []
        yield from self._finished()

    def _finished(self) -> Iterator[Step]:
        if self._edge is None:
            return
        lines, seconds = self._lines, self._log.seconds(self._edge.outputs[0])
        if seconds is None and lines and "FAILED: " in lines[0]:
            lines = lines[2:]  # ninja names the outputs and repeats the command first
        step = Step(self._edge, "\n".join(lines), seconds)
        if step.failed and self.failed is None:
            self.failed = step
        self._edge, self._lines = None, []
        yield step


class Runner:
    """Runner of plans in one folder, within one time limit for all.

    Parameters
    ----------
    folder : Path
        Existing folder in which commands run.
    ninja : Path
        Path of the program.
    jobs : int
        Number of commands at a time.
    environ : mapping of str to str
        Environment of the commands, to which this class adds some variables.
    timeout_s : float, optional
        Time limit for all plans together, from now on.
    """

    def __init__(
        self, folder: Path, *, ninja: Path, jobs: int, environ: Mapping[str, str], timeout_s: float | None = None
    ) -> None:
        self.folder = folder
        self._ninja, self._jobs, self._environ = ninja, jobs, environ
        self._timeout_s, self._began_s = timeout_s, time.monotonic()

    def run(self, plan: BuildPlan, *, progress: Progress | None = None) -> tuple[Step, ...]:
        """Run a plan's commands to their end; see `started`."""
        with trace.span("ninja"), self.started(plan, progress=progress) as steps:
            return tuple(steps)

    @contextlib.contextmanager
    def started(
        self, plan: BuildPlan, *, targets: Sequence[str] = (), progress: Progress | None = None
    ) -> Iterator[Iterator[Step]]:
        """Write a plan's files and start its commands, which run while the caller works; the context ends after them.

        Parameters
        ----------
        plan : BuildPlan
        targets : sequence of str
            Files to make; by default all.
        progress : Progress, optional
            Progress line, which counts the finished commands.

        Yields
        ------
        iterator of Step
            Steps in the order in which they finish. Each one is available when the next one has finished.

        Raises
        ------
        BuildError
            At the end of the iterator: a command failed. ``output`` is the output of the first one.
        BuildTimeoutError
            At the end of the iterator: the build was stopped.
        """
        _write_files(plan, self.folder)
        status = f"@be{os.urandom(8).hex()}@"
        reader = _Reader(plan.commands, status, log := NinjaLog(self.folder), progress)
        argv = (str(self._ninja), "-j", str(self._jobs), *targets)
        variables = {"GLIBC_TUNABLES": _ALLOCATION, **plain_environ(self._environ), "NINJA_STATUS": status}
        if plan.library_path:
            variables["LD_LIBRARY_PATH"] = plan.library_path
        try:
            with no_fork:
                process = subprocess.Popen(
                    argv,
                    cwd=self.folder,
                    env=variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                    start_new_session=True,
                )
        except OSError as error:
            raise BuildError(f"ninja can't be started: {error}", command=argv) from error
        left_s = None
        if self._timeout_s is not None:
            left_s = max(self._began_s + self._timeout_s - time.monotonic(), 0.01)
        try:
            with _stopping(process, left_s) as timed_out:
                yield self._steps(process, reader, argv, timed_out)
        finally:
            log.add_to_trace(argv)

    def _steps(
        self, process: subprocess.Popen[str], reader: _Reader, argv: Sequence[str], timed_out: threading.Event
    ) -> Iterator[Step]:
        assert process.stdout is not None
        yield from reader.read(line.rstrip("\n") for line in process.stdout)
        code = process.wait()
        yield from reader.end(failed=code != 0)
        if timed_out.is_set():
            raise BuildTimeoutError(
                f"the build was stopped after {self._timeout_s:g} s",
                command=tuple(argv),
                hints=("raise BE_COMPILE_TIMEOUT_S",),
            )
        if code == 0:
            return
        loose, step = "\n".join(reader.loose), reader.failed
        if step is None:
            raise BuildError("ninja failed", command=tuple(argv), output=loose)
        raise BuildError(f"{step.edge.description} failed", command=step.edge.argv, output=step.output or loose)


def _write_files(plan: BuildPlan, folder: Path) -> None:
    for file in plan.files:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        # Rewriting an unchanged file would make ninja build it again.
        if not path.exists():
            path.write_text(file.text, encoding="utf-8", errors="surrogateescape")
    (folder / "build.ninja").write_text(render_ninja(plan.commands), encoding="utf-8", errors="surrogateescape")


@contextlib.contextmanager
def _stopping(process: subprocess.Popen[str], timeout_s: float | None) -> Iterator[threading.Event]:
    """Stop all processes when the context ends, even by a time limit, an interrupt or an error in this package."""
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        _stop_session(process)

    timer = threading.Timer(timeout_s, stop) if timeout_s is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    _RUNNING.add(process)
    try:
        yield timed_out
    finally:
        _RUNNING.discard(process)
        if timer is not None:
            timer.cancel()
            timer.join()
        if process.poll() is None:
            _stop_session(process)
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _stop_session(process: subprocess.Popen[str]) -> None:
    """Stop ninja and its commands; kill each remaining process at least once, even on a slow machine.

    Each command has its own process group. Ninja forwards the signal, and waits for commands that ignore it.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    give_up = time.monotonic() + _GRACE_S
    while members := _session_members(process.pid):
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > give_up:
            break
        time.sleep(0.01)


def _session_members(session: int) -> list[int]:
    """List a session's running processes, from ``/proc/<pid>/stat``: the state follows the bracketed name."""
    members = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _parent, _group, its_session = path.read_bytes().rpartition(b")")[2].split()[:4]
            if int(its_session) == session and state != b"Z":
                members.append(int(path.parent.name))
    return members


def render_log(steps: Sequence[Step]) -> str:
    """Write a readable log: the commands, their durations and their output."""
    parts = []
    for step in steps:
        took = "" if step.seconds is None else f": {step.seconds:.2f} s"
        output = f"{step.output}\n" if step.output else ""
        parts.append(f"# {step.edge.description}{took}\n$ {shell_command(step.edge.argv)}\n{output}")
    return "".join(parts)
