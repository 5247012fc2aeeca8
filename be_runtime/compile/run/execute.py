"""Runs a build plan with ninja in a folder, and reports what happened.

This is the only file of be_runtime that starts processes.
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
from typing import NamedTuple

from be_runtime.compile.plan.build_plan import BuildPlan, Edge
from be_runtime.compile.run.ninja import render_ninja, shell_command
from be_runtime.compile.run.ninja_log import NinjaLog
from be_runtime.compile.run.progress import Progress
from be_runtime.errors import BuildError, BuildTimeoutError
from be_toolchain.machine.forks import no_fork
from be_toolchain.machine.plain_environ import plain_environ

_STATUS = "@be@"
"""Begins each of ninja's status lines, so that they can't be mistaken for a compiler's output."""

_GRACE_S = 2.0
"""How long commands may take to end when they are asked to."""

_ALLOCATION = "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=16777216"
"""Lets compilers get their memory in large pages, in large steps: cudafe++ touches 46,000 small ones in a quarter of a
second, half of it the kernel's. https://www.gnu.org/software/libc/manual/html_node/Memory-Allocation-Tunables.html
"""


class Step(NamedTuple):
    """One finished command.

    Parameters
    ----------
    edge : Edge
    output : str
        All that it printed.
    seconds : float or None
        How long it took; None for one that failed.
    """

    edge: Edge
    output: str
    seconds: float | None

    @property
    def failed(self) -> bool:
        """Whether it made nothing that can be used."""
        return self.seconds is None


class _Reader:
    """Takes ninja's output apart into steps, line by line; which of them failed is read from its log."""

    def __init__(self, edges: Sequence[Edge], log: NinjaLog, progress: Progress | None) -> None:
        self.edges = {str(number): edge for number, edge in enumerate(edges)}
        self.log, self.progress = log, progress
        self.steps: list[Step] = []
        self.loose: list[str] = []
        self._edge: Edge | None = None
        self._lines: list[str] = []

    def read(self, lines: Iterable[str]) -> Iterator[Step]:
        """Each step as soon as it is known that there is no more to its output: when the next one has finished."""
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
    """Runs plans in one folder, all within one time limit.

    Parameters
    ----------
    folder : Path
        Exists; commands run in it.
    ninja : Path
        The program.
    jobs : int
        Commands at a time.
    environ : mapping of str to str
        The commands' variables, apart from those that are set here.
    timeout_s : float, optional
        Seconds from now after which everything is stopped.
    """

    def __init__(
        self, folder: Path, *, ninja: Path, jobs: int, environ: Mapping[str, str], timeout_s: float | None = None
    ) -> None:
        self.folder = folder
        self._ninja, self._jobs, self._environ = ninja, jobs, environ
        self._timeout_s, self._began_s = timeout_s, time.monotonic()

    def run(self, plan: BuildPlan, *, progress: Progress | None = None) -> tuple[Step, ...]:
        """Run a plan's commands; see `started`."""
        with self.started(plan, progress=progress) as steps:
            return tuple(steps)

    @contextlib.contextmanager
    def started(
        self, plan: BuildPlan, *, targets: Sequence[str] = (), progress: Progress | None = None
    ) -> Iterator[Iterator[Step]]:
        """Write a plan's files and start its commands, which run on while the caller works; at the end none is left.

        Parameters
        ----------
        plan : BuildPlan
        targets : sequence of str
            What to make; everything by default.
        progress : Progress, optional
            Is told of each command that has finished.

        Yields
        ------
        iterator of Step
            In the order in which they finish. The first one is there when the second has finished.

        Raises
        ------
        BuildError
            At the end of the iterator: a command failed; ``output`` is that of the first one.
        BuildTimeoutError
            There too: the build was stopped.
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
    """Leaves no process behind: not at the time limit, not at an interrupt, not at an error of ours."""
    timed_out = threading.Event()

    def stop() -> None:
        timed_out.set()
        _stop_session(process)

    timer = threading.Timer(timeout_s, stop) if timeout_s is not None else None
    if timer is not None:
        timer.daemon = True
        timer.start()
    try:
        yield timed_out
    finally:
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

    Each command is a process group of its own: ninja passes the signal on, and waits for those that ignore it.
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
    """The running processes of a session, from ``/proc/<pid>/stat``: the state and more follow the bracketed name."""
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
    """Commands, how long each took, and their output, for people."""
    return "".join(map(_log_entry, steps))


def _log_entry(step: Step) -> str:
    took = "" if step.seconds is None else f": {step.seconds:.2f} s"
    output = step.output + "\n" if step.output else ""
    return f"# {step.edge.description}{took}\n$ {shell_command(step.edge.argv)}\n{output}"
