"""Processes that die at any line of the cache's code: `python -m tests.faults.killing FOLDER SEED KILLS`.

A child does something with a cache and kills itself at a line drawn by lot, of the cache or of what it calls to remove
folders. Then others, one of which was there meanwhile, must find or make the right thing, soon. What is left of the
dead must go when it is old. The counts are printed as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.keys import make_key
from tests.faults.dying import die_at
from tests.support.faults import Tally, chance

HANGS_AFTER_S = 20
_CACHE = re.compile(r"/be_runtime/store/")
_ALL = re.compile(r"/be_runtime/store/|/shutil\.py$|<frozen (?:os|posixpath)>")
"""The cache's code, and the same with what it calls to make and remove folders."""
_DAY_S = 86_400.0
_NAMES = ("one", "two", "three")
_OURS = re.compile(r"CACHEDIR\.TAG|pruning\.json|staging|[0-9a-f]{2}")
_ENTRY = {"key.json", "manifest.json", "m.so", "sub"}


class Modules:
    """A cache of three modules, each made of a header that may change."""

    def __init__(self, folder: Path) -> None:
        self.store, self.base = Cache(folder / "cache"), folder / "cache" / "kernels-v1"
        self.headers = {name: folder / f"{name}.h" for name in _NAMES}
        for path in self.headers.values():
            path.write_text("0")

    def load(self, name: str, *, force: bool = False) -> None:
        """Build or find a module, and compare it with its header as it is now."""
        header, key = self.headers[name], make_key("module", ("name", name))

        def build(staging: Path) -> BuildOutput:
            content = header.read_bytes() * 1000
            (staging / "m.so").write_bytes(content)
            (staging / "sub").mkdir()
            (staging / "sub" / "log").write_text("made")
            absent = (header.parent / "none" / "x.h",)
            return BuildOutput(outputs=("m.so", "sub/log"), dependencies=(header,), absent=absent)

        for _ in range(9):  # as a load does, since others may clear the cache at any time
            entry = self.store.get_or_build(key, build, force=force, lock_timeout_s=HANGS_AFTER_S / 2)
            with contextlib.suppress(FileNotFoundError):
                found, log = entry.output("m.so").read_bytes(), entry.output("sub/log").read_text()
                break
            assert not entry.path.exists(), f"{name}: an output is missing"
        assert found == header.read_bytes() * 1000, f"{name}: a wrong module, {found[:9]!r}"
        assert log == "made"

    def prune(self, days: float, size_bytes: int) -> None:
        while not self.store.prune(size_bytes, 30, now_s=time.time() + days * _DAY_S):
            pass


def child(act: Callable[[], object], line: int = 0, traced: re.Pattern[str] = _ALL) -> Callable[[], str]:
    """Fork a process that acts, and dies at a line if one is given; return a function that says how it ended."""
    out, into = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(out)
        signal.alarm(HANGS_AFTER_S)
        said = ""
        try:
            lines = die_at(line, traced) if line else lambda: 0
            act()
            sys.settrace(None)
            said = f"lines {lines()}"
        except BaseException:  # noqa: BLE001 - the parent says it
            sys.settrace(None)
            said = traceback.format_exc()[-1500:]
        os.write(into, said.encode())
        os._exit(0)
    os.close(into)

    def ended() -> str:
        with open(out, "rb") as pipe:
            text = pipe.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return {0: text, -signal.SIGKILL: "killed", -signal.SIGALRM: "hung"}.get(status, f"died {status}")

    return ended


def actions(cache: Modules, rng: random.Random) -> dict[str, Callable[[], object]]:
    """What a process may do when it dies."""
    name, days, size_bytes = rng.choice(_NAMES), rng.choice((0.0, 1.5, 40.0)), rng.choice((0, 1500, 10**6))

    def touched() -> None:
        os.utime(cache.headers[name])
        cache.load(name)

    return {
        "a load": partial(cache.load, name),
        "a build": partial(cache.load, name, force=True),
        "a refreshed manifest": touched,
        "a pruning": partial(cache.prune, days, size_bytes),
        "a removal": partial(cache.store.clear, rng.choice((None, name))),
    }


def run(folder: Path, seed: int, kills: int) -> Tally:
    """Kill so many times."""
    rng, tally, cache = chance(seed), Tally("kills at a line of the cache", seed), Modules(folder)
    lines: dict[tuple[str, re.Pattern[str]], int] = {}
    while tally.tried < kills and not tally.wrong:
        if rng.random() < 0.3:
            rng.choice(list(cache.headers.values())).write_text(str(rng.randrange(10)))
        what, act = rng.choice(list(actions(cache, rng).items()))
        beside = [child(partial(cache.load, rng.choice(_NAMES)))] if rng.random() < 0.3 else []
        traced = rng.choice((_ALL, _CACHE))
        line = rng.randint(1, lines.get((what, traced), 10**9))  # the first is there to count
        said = child(act, line, traced)()
        if said == "killed":
            tally.tried += 1
            tally.notes[f"in {what}"] += 1
        elif said.startswith("lines "):
            lines[what, traced] = max(lines.get((what, traced), 50), int(said.split()[1]))
        else:
            tally.wrong.append(f"{what}: {said}")
        after = [child(partial(cache.load, name))() for name in _NAMES] + [ended() for ended in beside]
        what = f"after {what} was killed at line {line}"
        tally.wrong += [f"{what}: {each}" for each in after if not each.startswith("lines ")]
        if rng.random() < 0.02:
            check_leftovers(cache, tally)
    check_leftovers(cache, tally)
    return tally


def check_leftovers(cache: Modules, tally: Tally) -> None:
    """Nothing old is left of the dead after the next round of pruning."""
    (cache.base / "pruning.json").unlink(missing_ok=True)
    for path in cache.base.rglob("*"):
        os.utime(path, (time.time() - 7200,) * 2, follow_symlinks=False)
    said = child(lambda: cache.prune(2, 10**9))()
    left = [path.name for path in cache.base.iterdir() if not _OURS.fullmatch(path.name)]
    left += [f"staging/{path.name}" for path in (cache.base / "staging").iterdir()]
    entries = [path.parent for path in cache.base.glob("*/*/*/manifest.json")]
    left += [path.name for entry in entries for path in entry.iterdir() if path.name not in _ENTRY]
    if left or not said.startswith("lines "):
        tally.wrong.append(f"left behind: {left} {said}")


if __name__ == "__main__":
    sys.stdout.write(json.dumps(vars(run(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))))
