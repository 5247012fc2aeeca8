"""Execution of a build plan with ninja in a folder, a report of the steps, and other child processes.

Only this file of be_runtime starts processes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from be_runtime.compile.plan.build_plan import BuildPlan, Edge
from be_runtime.compile.run.ninja import render_ninja, shell_command
from be_runtime.compile.run.ninja_log import NinjaLog
from be_runtime.compile.run.progress import Progress
from be_runtime.errors import BuildError, BuildTimeoutError
from be_toolchain.machine.forks import no_fork
from be_toolchain.machine.plain_environ import plain_environ

_STATUS = "@be@"
"""Start of each of ninja's status lines, which distinguishes them from a compiler's output."""

_GRACE_S = 2.0
"""Time for commands to end after they were asked to."""

_ALLOCATION = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216"
"""Setting by which compilers get their memory in large pages, in large steps: cudafe++ touches 46,000 small ones in a
quarter of a second, and the kernel takes half of that time.
https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""


_RUNNING: set[subprocess.Popen[str]] = set()


def stop_running() -> None:
    """Ask the builds of all threads to end, after an interrupt: only the main thread is told of it."""
    for process in tuple(_RUNNING):
        process.terminate()


class Step(NamedTuple):
    """One finished command.

    Parameters
    ----------
    edge : Edge
    output : str
        All its output.
    seconds : float or None
        Duration; None if it failed.
    """

    edge: Edge
    output: str
    seconds: float | None

    @property
    def failed(self) -> bool:
        """True if the command failed, so its output files can't be used."""
        return self.seconds is None


class Ended(NamedTuple):
    """The end of a child process.

    Parameters
    ----------
    code : int or None
        Exit code, negative for a signal; None if the child was stopped after its time.
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
        Variables beside those of this process.
    output : file
        Open file for all its output.
    timeout_s : float, optional
        Time after which it is stopped, with all processes that it started.
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
    """Reader that splits ninja's output into steps, line by line; ninja's log tells which of them failed."""

    def __init__(self, edges: Sequence[Edge], log: NinjaLog, progress: Progress | None) -> None:
        self.edges = {str(number): edge for number, edge in enumerate(edges)}
        self.log, self.progress = log, progress
        self.steps: list[Step] = []
        self.loose: list[str] = []
        self._edge: Edge | None = None
        self._lines: list[str] = []

    def read(self, lines: Iterable[str]) -> Iterator[Step]:
        """Return each step as soon as its output is complete, which is when the next one has finished."""
        for line in lines:
            if line.startswith(_STATUS):
                yield from self._finished()
                self._edge = self.edges.get(line.removeprefix(_STATUS))
                if self._edge is not None and self.progress is not None:
                    self.progress.finish(self._edge)
            elif self._edge is None or line.startswith("ninja: "):
                self.loose.append(line)
            else:
                self._lines.append(line)
        yield from self._finished()

    def _finished(self) -> Iterator[Step]:
        if self._edge is not None:
            step = Step(self._edge, "\n".join(self._lines), self.log.seconds(self._edge.outputs[0]))
            if step.failed and self._lines and "FAILED: " in self._lines[0]:
                # Ninja names the outputs and repeats the command first.
                step = step._replace(output="\n".join(self._lines[2:]))
            self.steps.append(step)
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
        Time limit, from now on, after which everything is stopped.
    """

    def __init__(
        self, folder: Path, *, ninja: Path, jobs: int, environ: Mapping[str, str], timeout_s: float | None = None
    ) -> None:
        self.folder = folder
        self._ninja, self._jobs, self._environ = ninja, jobs, environ
        self._timeout_s, self._began_s = timeout_s, time.monotonic()

    def run(self, plan: BuildPlan, *, progress: Progress | None = None) -> tuple[Step, ...]:
        """Run a plan's commands, as `started` does."""
        with self.started(plan, progress=progress) as steps:
            return tuple(steps)

    @contextlib.contextmanager
    def started(
        self, plan: BuildPlan, *, targets: Sequence[str] = (), progress: Progress | None = None
    ) -> Iterator[Iterator[Step]]:
        """Write a plan's files and start its commands, which run while the caller works; on exit all have ended.

        Parameters
        ----------
        plan : BuildPlan
        targets : sequence of str
            Files to make; by default all.
        progress : Progress, optional
            Progress line, which is told of each finished command.

        Yields
        ------
        iterator of Step
            Steps in the order in which they finish. Each one is available when the next one has finished.

        Raises
        ------
        BuildError
            At the end of the iterator: a command failed; ``output`` is that of the first command that failed.
        BuildTimeoutError
            At the end of the iterator: the build was stopped.
        """
        _write_files(plan, self.folder)
        reader = _Reader(plan.commands, NinjaLog(self.folder), progress)
        argv = (str(self._ninja), "-j", str(self._jobs), *targets)
        variables = {"GLIBC_TUNABLES": _ALLOCATION, **plain_environ(self._environ), "NINJA_STATUS": _STATUS}
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
        with _stopping(process, self._left_s()) as timed_out:
            yield self._steps(process, reader, argv, timed_out)

    def _steps(
        self, process: subprocess.Popen[str], reader: _Reader, argv: Sequence[str], timed_out: threading.Event
    ) -> Iterator[Step]:
        assert process.stdout is not None
        yield from reader.read(line.rstrip("\n") for line in process.stdout)
        code = process.wait()
        if timed_out.is_set():
            raise BuildTimeoutError(
                f"the build was stopped after {self._timeout_s:g} s",
                command=tuple(argv),
                hints=("raise BE_COMPILE_TIMEOUT_S",),
            )
        if code != 0:
            raise _failure(reader, argv)

    def _left_s(self) -> float | None:
        if self._timeout_s is None:
            return None
        return max(self._began_s + self._timeout_s - time.monotonic(), 0.01)


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
    """Leave no process behind, be it after the time limit, an interrupt or an error in this package."""
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
    """Stop ninja and its commands.

    Each command is a process group of its own: ninja passes the signal on, and waits for commands that ignore it.
    """
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE_S)
    give_up = time.monotonic() + _GRACE_S
    while (members := _session_members(process.pid)) and time.monotonic() < give_up:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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


def _failure(reader: _Reader, argv: Sequence[str]) -> BuildError:
    step = next((step for step in reader.steps if step.failed), None)
    if step is None:
        return BuildError("ninja failed", command=tuple(argv), output="\n".join(reader.loose))
    output = step.output or "\n".join(reader.loose)
    return BuildError(f"{step.edge.description} failed", command=step.edge.argv, output=output)


def render_log(steps: Sequence[Step]) -> str:
    """Write a log for people: the commands, their durations and their output."""
    return "".join(map(_log_entry, steps))


def _log_entry(step: Step) -> str:
    took = "" if step.seconds is None else f": {step.seconds:.2f} s"
    output = step.output + "\n" if step.output else ""
    return f"# {step.edge.description}{took}\n$ {shell_command(step.edge.argv)}\n{output}"
