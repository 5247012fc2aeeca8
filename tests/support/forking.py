"""A process that forks in many ways while one of its threads builds: `python -m tests.support.forking 200`.

Each round builds a module with a real ninja in a thread. Meanwhile workers are forked, each of which asks for the same
module; some live on until the end, as a data loader's persistent workers do. Then the module is built once more.
"""

from __future__ import annotations

import faulthandler
import itertools
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.compile.execute import Runner, resolve_ninja
from be_runtime.compile.plan import BuildPlan, Edge
from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.keys import make_key
from be_toolchain.machine.local_system import LocalSystem

HANGS_AFTER_S = 16.0
_MOST_PERSISTENT = 6
_steps = itertools.count()


def _sleep(longest_s: float) -> None:
    """Sleep for less than that, each time for another part of it."""
    time.sleep(next(_steps) * 0.618 % 1 * longest_s)


def ask(root: str, name: str, *, force: bool = False) -> None:
    """Build a module, or find it."""
    entry = Cache(Path(root)).get_or_build(make_key("module", ("name", name)), _build, force=force)
    assert entry.output("m.so").read_text() == "content\n"


def _build(staging: Path) -> BuildOutput:
    script = ("sh", "-c", "sleep 0.03; echo content > m.so")
    edge = Edge(argv=script, inputs=(), outputs=("m.so",), description="making", tool="compile")
    plan, ninja = BuildPlan(files=(), edges=(edge,)), resolve_ninja(LocalSystem())
    Runner(staging, ninja=ninja, jobs=1, environ=os.environ, timeout_s=20.0).run(plan)
    return BuildOutput(outputs=("m.so",))


def _work(root: str, name: str, answers: Any, until: Any) -> None:
    """A data loader's worker: it loads, hands something over, and may live on."""
    ask(root, name)
    answers.put(name)
    if until is not None:
        until.wait()


class Forks:
    """Ways to have workers while something is built.

    Parameters
    ----------
    root : str
        The cache's folder.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._end = multiprocessing.get_context("fork").Event()
        self._living: list[Any] = []

    def os_fork(self, name: str) -> None:
        """Two children, forked by hand, that end without any clean-up."""
        children = []
        for _ in range(2):
            _sleep(0.03)
            children.append(os.fork())
            if children[-1] == 0:
                status = 1
                try:
                    ask(self._root, name)
                    status = 0
                finally:
                    os._exit(status)
        assert [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children] == [0, 0]

    def process(self, name: str, method: str) -> None:
        """A process of multiprocessing's."""
        process = multiprocessing.get_context(method).Process(target=ask, args=(self._root, name))  # type: ignore[attr-defined]
        process.start()
        process.join()
        assert process.exitcode == 0

    def loader(self, name: str, *, persistent: bool) -> None:
        """Two workers with a queue; the persistent ones live on while more is built."""
        fork = multiprocessing.get_context("fork")
        answers, end = fork.SimpleQueue(), self._end if persistent else None
        workers = [fork.Process(target=_work, args=(self._root, name, answers, end)) for _ in range(2)]
        for worker in workers:
            worker.start()
            _sleep(0.02)
        assert [answers.get() for _ in workers] == [name] * 2
        self._living += workers
        if not persistent or len(self._living) > _MOST_PERSISTENT:
            self.end()

    def end(self) -> None:
        """Let the workers go."""
        self._end.set()
        for worker in self._living:
            worker.join()
        self._living.clear()
        self._end.clear()


def _round(root: str, name: str, fork: Callable[[str], None]) -> None:
    with ThreadPoolExecutor(1) as threads:
        building = threads.submit(ask, root, name)
        _sleep(0.05)
        fork(name)
        building.result()
    ask(root, name, force=True)


def main(rounds: int, *ways: str) -> None:
    """Run rounds of each way; a round that hangs ends the process with the traces of its threads."""
    with tempfile.TemporaryDirectory() as root:
        forks = Forks(root)
        every: dict[str, Callable[[str], None]] = {
            "os.fork": forks.os_fork,
            **{method: partial(forks.process, method=method) for method in ("fork", "forkserver", "spawn")},
            "loader": partial(forks.loader, persistent=False),
            "persistent loader": partial(forks.loader, persistent=True),
        }
        for way in ways or every:
            began = time.monotonic()
            for number in range(rounds):
                faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
                _round(root, f"{way} {number}", every[way])
            sys.stdout.write(f"{way}: {rounds} rounds, {time.monotonic() - began:.1f} s\n")
            sys.stdout.flush()
        forks.end()
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:])
