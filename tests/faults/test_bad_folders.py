"""The cache in a folder that misbehaves as network file systems do, used by two machines at once.

Whatever fails, a load gives what its header says, or one of our errors. The short form runs with the other tests;
``make test-faults`` takes minutes, and with ``FULL=1`` hours.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.load.obtain import Attempts
from be_runtime.load.process import PROCESS
from be_runtime.store.cache import BuildOutput, Cache
from be_runtime.store.folder import base_folder
from be_runtime.store.keys import make_key
from be_runtime.store.publish import sweep
from tests.faults.shared_loads import DAY_S, Plan, Worker, make_headers, rows
from tests.support.faults import FIRST_SEED, LEVEL, effort, first_of, longer
from tests.support.runtime import ROOT, environment, run_python

LIMIT_S = effort(250, 7200, 6 * 3600)
pytestmark = [pytest.mark.timeout(LIMIT_S + 60), pytest.mark.usefixtures("tmp_cache")]

LOCKS: dict[str, dict[str, Any]] = {
    "no locks left": {"flock": "ENOLCK"},
    "locks work": {},
    "locks of each machine": {"flock": "local"},
    "locks not supported": {"flock": "EOPNOTSUPP"},
    "locks unknown": {"flock": "ENOSYS"},
    "seen late": {"flock": "local", "late_s": 1.5},
}


def _rates(code: str, **rates: float) -> dict[str, Any]:
    return {"fails": {name: (code, rate) for name, rate in rates.items()}}


FAULTS: dict[str, dict[str, Any]] = {
    "ESTALE": _rates("ESTALE", open=0.05, getattr=0.02, read=0.05, readdir=0.05),
    "EIO": _rates("EIO", open=0.03, getattr=0.01, read=0.03, readdir=0.03, create=0.03),
    "EIO of renames": _rates("EIO", rename=0.3),
    "EIO of writes": _rates("EIO", write=0.05),
    "ENOSPC of writes": _rates("ENOSPC", write=0.05),
    "no space": {"space": 150_000},
    "lost replies": {"lost": {"rename": 0.3, "mkdir": 0.2, "create": 0.05, "unlink": 0.1, "rmdir": 0.1}},
    "short writes": {"short_write": 0.5},
    "clock ahead": {"clock_s": 40.0},
    "clock behind": {"clock_s": -40.0},
}
SOUND = {"short writes", "clock ahead", "clock behind"}
"""What a program need not notice."""


UNMOUNTS = (("umount", "-l"), ("fusermount3", "-uz"), ("fusermount", "-uz"))
"""Lazily, as a failed test may hold files; fusermount serves users other than root."""


class Mount:
    """One machine's view of a backing folder, which does wrong what `tests.faults.bad_folder.Rules` have."""

    def __init__(self, backing: Path, path: Path, rules: dict[str, Any]) -> None:
        self.backing, self.path, self._first = backing, path, rules
        self._file, said = path.with_suffix(".json"), path.with_suffix(".said")
        backing.mkdir(exist_ok=True)
        path.mkdir()
        self.change()
        argv = (sys.executable, "-m", "tests.faults.bad_folder", str(backing), str(path), str(self._file))
        with said.open("w") as stderr:
            self._server = subprocess.Popen(argv, env=environment(), stderr=stderr)
        give_up = time.monotonic() + 10
        while not os.path.ismount(path):
            if self._server.poll() is not None or time.monotonic() > give_up:
                self.close()
                pytest.skip(f"FUSE can't be used: {' '.join(said.read_text().split())[-300:]}")
            time.sleep(0.02)

    def change(self, **rules: Any) -> None:
        """Do other things wrong from now on, besides those that it was made with."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(json.dumps(self._first | rules))
        fresh.rename(self._file)

    def close(self) -> None:
        """Unmount it, and end its server."""
        for argv in UNMOUNTS:
            with contextlib.suppress(FileNotFoundError):
                if subprocess.run([*argv, str(self.path)], capture_output=True, check=False).returncode == 0:
                    break
        try:
            self._server.wait(0.5)
        except subprocess.TimeoutExpired:  # it serves as long as a file is open
            self._server.kill()
            self._server.wait()


MakeMount = Callable[..., Mount]


@pytest.fixture
def bad_mount(tmp_path: Path) -> Iterator[MakeMount]:
    """A function that mounts the test's shared folder once more, with rules of the mount's own."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        pytest.skip("/dev/fuse can't be opened: docker run --device /dev/fuse --cap-add SYS_ADMIN")
    with contextlib.ExitStack() as mounts:

        def mount(**rules: Any) -> Mount:
            made = Mount(tmp_path / "share", tmp_path / f"mount{len(list(tmp_path.glob('mount*.json')))}", rules)
            mounts.callback(made.close)
            return made

        yield mount


OWN_HOST = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec")
BECOME = 'hostname "$1"; mount --bind "$2" /proc/sys/kernel/random/boot_id; shift 2; exec "$@"'


def on_a_host(tmp_path: Path, name: str, *argv: str) -> tuple[str, ...]:
    """A command on a host with a name, process ids and a boot of its own."""
    boot = tmp_path / f"boot.{name}"
    boot.write_text(f"{uuid.uuid4()}\n")
    return (*OWN_HOST, BECOME, "sh", name, str(boot), *argv)


class Share:
    """Two machines' views of a folder with a cache, and headers on a sound disk."""

    def __init__(self, tmp_path: Path, mounts: list[Mount], keys: int) -> None:
        self.tmp_path, self.mounts, self.keys = tmp_path, mounts, keys
        self.headers = make_headers(tmp_path / "headers", keys)

    def plan(self, name: str, mount: Mount, seed: int, **fields: Any) -> Plan:
        folder, log = str(mount.path / "cache"), str(self.tmp_path / f"{name}.{seed}")
        return Plan(folder, self.headers.folder, log, seed=seed, keys=self.keys, **fields)

    def load(self, name: str, *, hosts: bool = False, **fields: Any) -> Counter[str]:
        """Load on both machines at once; return the number of each outcome."""
        running = []
        for seed, mount in enumerate(self.mounts, FIRST_SEED):
            plan = json.dumps(self.plan(name, mount, seed, **fields)._asdict())
            argv = (sys.executable, "-m", "tests.faults.shared_loads", plan)
            on_it = on_a_host(self.tmp_path, f"host{seed}", *argv) if hosts else argv
            running.append(subprocess.Popen(on_it, cwd=ROOT, env=environment()))
        assert [process.wait(LIMIT_S) for process in running] == [0, 0]
        found = self.outcomes(name)
        print(f"{name}, seed {FIRST_SEED}:", *(f"{found[what]} {what}" for what in sorted(found)), sep="\n  ")  # noqa: T201 - the counts
        return found

    def outcomes(self, name: str) -> Counter[str]:
        return Counter(f"{what} {outcome}" for what, outcome, _ in rows(self.tmp_path.glob(f"{name}.*")))

    def load_here(self, name: str, mount: Mount, loads: int, **fields: Any) -> Counter[str]:
        """Load on one machine, in this process."""
        plan = self.plan(name, mount, 0, **fields)
        be_runtime.set_cache_dir(plan.cache)
        Worker(plan, 0, 0).run(loads)
        return self.outcomes(name)

    def left(self) -> int:
        """The number of staging folders that are left for a sweep, which removes them."""
        base = base_folder(str(self.mounts[0].backing / "cache"))
        found = len(os.listdir(f"{base}/staging"))
        assert sweep(base, now_s=os.stat(base).st_mtime + 10 * DAY_S) == found
        return found


def _are_right(found: Counter[str], *, errors: bool) -> None:
    """Nothing is wrong, hangs or ends a process, unless it is killed; no error, or none but ours."""
    right = {name for name in found if name.endswith((" found", " built", " done", "process killed"))}
    ours = {name for name in found for error in ("CacheError", "LoadError", "BuildError") if f" {error}: " in name}
    assert set(found) - right - (ours if errors else set()) == set(), found
    assert sum(found[name] for name in right) > 0


@pytest.mark.parametrize("name", first_of(LOCKS))
def test_without_a_lock_an_entry_is_built_at_most_twice(name: str, tmp_path: Path, bad_mount: MakeMount):
    share = Share(tmp_path, [bad_mount(**LOCKS[name]) for _ in range(2)], keys=6)
    found = share.load("locks", loads=effort(40, 100, 1000), workers=1)
    _are_right(found, errors=False)
    assert 6 <= found["quick built"] <= 12, found
    assert share.left() == 0


@pytest.mark.parametrize("name", first_of(FAULTS))
def test_a_load_is_right_or_an_error_of_ours(name: str, tmp_path: Path, bad_mount: MakeMount):
    share = Share(tmp_path, [bad_mount(flock="local") for _ in range(2)], keys=4)
    for mount in share.mounts:
        mount.change(**FAULTS[name])
    loads, workers = effort(40, 100, 1000), effort(1, 2, 2)
    found = share.load("bad", loads=loads, workers=workers, real=0.05, edits=0.1, upkeep=0.02)
    _are_right(found, errors=name not in SOUND)
    for mount in share.mounts:
        mount.change()
    # What was left behind is used by nobody: on the same folder, now sound, all is right.
    _are_right(share.load_here("sound", share.mounts[0], 2 * share.keys, edits=0.2), errors=False)
    share.left()


LATE = {"flock": "local", "late_s": 1.0}
FAILING = {"lost": dict.fromkeys(("rename", "mkdir", "unlink", "rmdir"), 0.05)}
FAILING |= _rates("ESTALE", open=0.01, getattr=0.005, readdir=0.01)


@pytest.mark.parametrize("fails", first_of([False, True]))
@pytest.mark.needs("unshare", "hostname")
def test_hosts_give_what_their_headers_say(tmp_path: Path, bad_mount: MakeMount, *, fails: bool):
    """Names, process ids, boots and locks of their own; they load, edit headers, clear, prune and are killed."""
    command = on_a_host(tmp_path, "try", "cat", "/proc/sys/kernel/hostname")
    tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        pytest.skip(f"namespaces are not permitted: {tried.stderr.strip()}")
    assert tried.stdout == "try\n"
    share = Share(tmp_path, [bad_mount(**LATE, **(FAILING if fails else {})) for _ in range(2)], keys=8)
    workers, often = (2, 1) if LEVEL else (1, 4)  # so that a few loads have all of it
    loads = max(5, effort(50, 600, 10_000) // (20 if fails else 2) // workers)
    rates = {"real": 0.05 * often, "deaths": 0.02 * often, "edits": 0.1, "upkeep": 0.02}
    _are_right(share.load("shared", hosts=True, loads=loads, workers=workers, **rates), errors=fails)
    share.left()


def test_an_entry_that_another_machine_removes_before_it_is_read_is_built_again(tmp_path: Path, bad_mount: MakeMount):
    here, there = Cache(bad_mount().path / "cache"), Cache(bad_mount(late_s=60.0).path / "cache")
    be_runtime.set_cache_dir(there.root)
    built = []

    def build(staging: Path) -> BuildOutput:
        (staging / "copy.txt").write_text("right")
        return BuildOutput(outputs=("copy.txt",))

    key = make_key("test", ("name", "removed"))
    there.get_or_build(key, build)
    attempts = Attempts(PROCESS.session())
    while attempts.should_try():
        entry = there.get_or_build(key, build)
        built.append(entry.built)
        if len(built) == 1:
            assert here.clear() == 1
            assert entry.output("copy.txt").exists(), "as far as this machine knows"
        with attempts.using(entry):
            text = entry.output("copy.txt").read_text()
    assert (text, built) == ("right", [False, True])


ASKS = '#if __has_include("later.h")\n#include "later.h"\n#else\n#define VALUE 1\n#endif\n'
LOAD = """
import sys
from tests.faults import answering
print(answering.load("asks", "VALUE", sys.argv[1], extra_cflags=[sys.argv[2]])[0])
"""


@longer
@pytest.mark.parametrize(
    "rules", [_rates("EIO", open=1.0) | {"only": "/looked_at.so"}, _rates("ENOSPC", write=1.0) | {"only": ".looked_at"}]
)
def test_a_build_whose_inputs_could_not_be_recorded_is_for_nobody_else(
    rules: dict[str, Any], tmp_path: Path, bad_mount: MakeMount
):
    mount, folder = bad_mount(), tmp_path / "headers"
    folder.mkdir()

    def answer(source: str) -> int:
        environ = environment(BE_CACHE_DIR=str(mount.path / "cache"))
        return int(run_python(LOAD, source, f"-I{folder}", env=environ).stdout)

    assert answer(ASKS + "// another") == 1
    mount.change(**rules)
    assert answer(ASKS) == 1
    mount.change()
    (folder / "later.h").write_text("#define VALUE 2\n")
    assert answer(ASKS) == 2


def test_lost_replies_of_what_was_done_are_no_errors(tmp_path: Path, bad_mount: MakeMount):
    mount = bad_mount(lost={"rename": 1.0, "mkdir": 1.0})
    share = Share(tmp_path, [mount], keys=4)
    assert set(share.load_here("lost", mount, 20, edits=0.5)) == {"quick built", "quick found"}
    assert share.left() == 0


@longer
def test_an_entry_is_read_again_after_a_stale_handle(tmp_path: Path, bad_mount: MakeMount):
    mount = bad_mount(fails={"open": ("ESTALE", 0.3), "read": ("ESTALE", 0.3)}, only="/copy.txt")
    share = Share(tmp_path, [mount], keys=1)
    mount.change(fails={})
    share.load_here("first", mount, 1)
    mount.change()
    assert share.load_here("second", mount, 40) == {"quick found": 40}
