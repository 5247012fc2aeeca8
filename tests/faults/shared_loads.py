"""Loads from a shared cache by processes that may be killed, each judged: `python -m tests.faults.shared_loads PLAN`.

A load is right if it gives the value that its header had at some time while it ran. Each header has a history, which an
edit extends before it changes the header; both are on a sound disk.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import be_runtime.store.publish  # noqa: F401 - before it forks
from be_runtime.errors import BuildError, CacheError, LoadError
from be_runtime.load.obtain import Attempts
from be_runtime.load.process import PROCESS
from be_runtime.store.cache import BuildOutput
from be_runtime.store.keys import make_key
from tests.faults import answering

HANGS_AFTER_S = 100.0
DAY_S = 24 * 3600.0
_COPIES = 300


class Plan(NamedTuple):
    """What the processes of one machine do.

    Parameters
    ----------
    cache, headers, log : str
        Folder of the cache, folder of the headers, and start of the names of the logs.
    seed : int
    loads : int
        Number of loads of each process.
    workers, keys : int
        Numbers of processes and of headers; each header has a module of either sort.
    real : float
        Share of loads that run a compiler and the dynamic loader.
    deaths, edits, upkeep : float
        How often a process is killed in a load, edits a header, or clears or prunes the cache, for each load.
    """

    cache: str
    headers: str
    log: str
    seed: int = 0
    loads: int = 10
    workers: int = 2
    keys: int = 4
    real: float = 0.0
    deaths: float = 0.0
    edits: float = 0.0
    upkeep: float = 0.0


class Headers:
    """The headers ``x<number>.h``, and the values that each has had."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def path(self, number: int) -> str:
        return f"{self.folder}/x{number}.h"

    def values(self, number: int) -> list[int]:
        with open(f"{self.folder}/x{number}.history", encoding="ascii") as file:
            return list(map(int, file.read().split()))

    def edit(self, number: int, value: int, *, in_place: bool = False) -> None:
        with open(f"{self.folder}/x{number}.history", "a", encoding="ascii") as history:
            fcntl.flock(history, fcntl.LOCK_EX)
            print(value, file=history, flush=True)
            if in_place:
                descriptor = os.open(self.path(number), os.O_WRONLY)
                os.pwrite(descriptor, b"%d" % value, len("#define VALUE "))
                os.close(descriptor)
            else:
                fresh = f"{self.path(number)}.{os.getpid()}"
                Path(fresh).write_text(f"#define VALUE {value}\n", encoding="ascii")
                os.rename(fresh, self.path(number))


def make_headers(folder: Path, keys: int) -> Headers:
    folder.mkdir()
    headers = Headers(str(folder))
    for number in range(keys):
        headers.edit(number, 1)
    return headers


class Worker:
    """A process that loads; it is forked from one that has imported everything."""

    def __init__(self, plan: Plan, worker: int, life: int) -> None:
        self.plan, self.headers = plan, Headers(plan.headers)
        self.rng = random.Random(f"{plan.seed}.{worker}.{life}")  # noqa: S311 - nothing is secret here
        self._log = os.open(log_file(plan, worker), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, what: str, outcome: str, began: float) -> None:
        os.write(self._log, json.dumps([what, outcome, round(time.monotonic() - began, 3)]).encode() + b"\n")

    def run(self, loads: int) -> None:
        for _ in range(loads):
            if self.rng.random() < self.plan.edits:
                number, value = self.rng.randrange(self.plan.keys), self.rng.randrange(1, 10)
                self.headers.edit(number, value, in_place=self.rng.random() < 0.5)
            if self.rng.random() < self.plan.upkeep:
                self.upkeep()
            self.load()

    def load(self) -> None:
        what = "real" if self.rng.random() < self.plan.real else "quick"
        number, began = self.rng.randrange(self.plan.keys), time.monotonic()
        faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
        with self._mortal(1.5 if what == "real" else 0.03):
            self.note(what, self._outcome(what, number), began)
        faulthandler.cancel_dump_traceback_later()

    @contextlib.contextmanager
    def _mortal(self, within_s: float) -> Iterator[None]:
        """Perhaps be killed in the block."""
        if self.rng.random() >= self.plan.deaths:
            yield
            return
        death = threading.Timer(self.rng.uniform(0, within_s), os.kill, (os.getpid(), signal.SIGKILL))
        death.start()
        yield
        death.cancel()

    def _outcome(self, what: str, number: int) -> str:
        before = len(self.headers.values(number))
        try:
            value, built = self._real(number) if what == "real" else self._quick(number)
        except (BuildError, CacheError, LoadError) as error:
            text = getattr(error, "first_error", "") or error.message
            return f"{type(error).__name__}: {' '.join(text.replace(self.plan.cache, 'CACHE').split())[:500]}"
        except Exception:  # noqa: BLE001 - it is reported
            return f"other {traceback.format_exc()}"
        possible = self.headers.values(number)[max(0, before - 2) :]
        return ("built" if built else "found") if value in possible else f"WRONG {value} of {possible}"

    def _quick(self, number: int) -> tuple[int, bool]:
        """Load a copy of the header: all that a cache does, without a compiler."""
        session, header = PROCESS.session(), self.headers.path(number)

        def build(staging: Path) -> BuildOutput:
            text = Path(header).read_text(encoding="ascii")
            (staging / "copy.txt").write_text(f"{number} {text}" * _COPIES, encoding="ascii")
            return BuildOutput(outputs=("copy.txt",), dependencies=(header,))

        key = make_key("test", ("name", f"quick{number}"), ("header", header))
        attempts = Attempts(session)
        while attempts.should_try():
            entry = session.module_store.get_or_build(key, build)
            with attempts.using(entry):
                text, built = entry.output("copy.txt").read_text(encoding="ascii"), entry.built
        line = text.partition("\n")[0] + "\n"
        is_whole = text == line * _COPIES and line.startswith(f"{number} #define VALUE ")
        return int(line.split()[-1]) if is_whole else -1, built

    def _real(self, number: int) -> tuple[int, bool]:
        began_ns, flags = time.time_ns(), [f"-I{self.headers.folder}", "-O0"]
        text = f'#include "x{number}.h"'
        answer, path = answering.load(f"real{number}", f"{number} * 100 + VALUE", text, extra_cflags=flags)
        key, value = divmod(answer, 100)
        return value if key == number else -1, int(path.parent.parent.name.partition("-")[0], 16) >= began_ns

    def upkeep(self) -> None:
        """Clear or prune, some of it as if it were months later."""
        began, rng = time.monotonic(), self.rng
        what, outcome = rng.choice(("clear", "clear one", "clear one", "prune", "prune")), "done"
        try:
            store = PROCESS.session().cache
            if what == "prune":
                later_s, patience_s = rng.choice((0, 2, 100)) * DAY_S, rng.choice((0.0, 60.0))
                limits = rng.choice((None, 20_000)), rng.choice((None, 90.0))
                store.prune(*limits, patience_s=patience_s, now_s=time.time() + later_s)
            else:
                store.clear(None if what == "clear" else f"quick{rng.randrange(self.plan.keys)}")
        except CacheError as error:
            outcome = f"CacheError: {error.message}"
        except Exception as error:  # noqa: BLE001 - it is reported
            outcome = f"other {type(error).__name__}: {error}"
        self.note(what, outcome, began)


def log_file(plan: Plan, worker: int) -> str:
    return f"{plan.log}.{worker}"


def rows(files: Iterable[str | Path]) -> list[list[Any]]:
    """The logs' rows: what was done, its outcome, and how many seconds it took."""
    return [json.loads(line) for file in files for line in Path(file).read_text(encoding="utf-8").splitlines()]


def main(plan: Plan) -> None:
    """Keep the processes running until each has made its loads: a killed one is replaced."""
    os.environ["BE_CACHE_DIR"] = plan.cache
    warnings.simplefilter("ignore")  # JAX on forks: none of these processes calls it
    lives: Counter[int] = Counter()
    running = {_fork(plan, worker, 0, plan.loads): worker for worker in range(plan.workers)}
    while running:
        pid, status = os.wait()
        worker = running.pop(pid, None)  # None: left by a killed one, if this is the first process of its namespace
        if worker is None or status == 0:
            continue
        code = os.waitstatus_to_exitcode(status)
        reason = "killed" if code == -signal.SIGKILL else f"other end of the process: {code}"
        log = log_file(plan, worker)
        with open(log, "a", encoding="utf-8") as file:
            print(json.dumps(["process", reason, 0]), file=file)
        lives[worker] += 1
        left = plan.loads - sum(row[0] in ("quick", "real") for row in rows([log]))
        if left > 0:
            running[_fork(plan, worker, lives[worker], left)] = worker


def _fork(plan: Plan, worker: int, life: int, loads: int) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            Worker(plan, worker, life).run(loads)
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    return pid


if __name__ == "__main__":
    main(Plan(**json.loads(sys.argv[1])))
