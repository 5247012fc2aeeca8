"""The cache in a folder that misbehaves as network file systems do, used by two machines at once.

Whatever fails, a load gives what its header says, or one of our errors. The short form runs with the other tests;
``make test-faults`` takes minutes, and with ``FULL=1`` hours.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import be_runtime
from be_runtime.cache import BuildOutput, Entry, Store, make_key
from be_runtime.cache.folder.layout import base_folder
from be_runtime.cache.upkeep.staging import sweep
from be_runtime.load.find_or_build import use_entry
from be_runtime.load.process import PROCESS
from tests.faults.bad_mounts import MakeMount, Mount, bad_mount
from tests.faults.shared_loads import DAY_S, HANGS_AFTER_S, Headers, Plan, Worker, log_file, make_headers, rows, tally
from tests.faults.short_form import first_of, longer
from tests.support.runtime import ROOT, environment, run_python

__all__ = ["bad_mount"]

FORM = os.environ.get("BE_FAULTS", "")
LOADS = {"": 40, "minutes": 100, "full": 1000}[FORM]
REAL = 0.05
pytestmark = [pytest.mark.timeout(7200 if FORM else 300), pytest.mark.usefixtures("tmp_cache")]

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
    "lost renames": {"lost": {"rename": 0.5}},
    "short writes": {"short_write": 0.5},
    "clock ahead": {"clock_s": 40.0},
    "clock behind": {"clock_s": -40.0},
}
SOUND = {"short writes", "clock ahead", "clock behind"}
"""What a program need not notice."""


class Share:
    """Two machines' views of a folder with a cache, and headers on a sound disk."""

    def __init__(self, tmp_path: Path, mounts: list[Mount], keys: int) -> None:
        self.tmp_path, self.mounts, self.keys = tmp_path, mounts, keys
        self.headers: Headers = make_headers(tmp_path / "headers", keys)

    def plan(self, name: str, mount: Mount, seed: int, **fields: Any) -> Plan:
        folder, log = str(mount.path / "cache"), str(self.tmp_path / f"{name}.{seed}")
        return Plan(folder, self.headers.folder, log, seed=seed, keys=self.keys, **fields)

    def load(self, name: str, **fields: Any) -> Counter[str]:
        """Load on both machines at once."""
        running = []
        for seed, mount in enumerate(self.mounts):
            plan = json.dumps(self.plan(name, mount, seed, **fields)._asdict())
            argv = (sys.executable, "-m", "tests.faults.shared_loads", plan)
            running.append(subprocess.Popen(argv, cwd=ROOT, env=environment()))
        codes = [process.wait(7200 if FORM else HANGS_AFTER_S * 2) for process in running]
        assert codes == [0, 0]
        return tally(rows(self.tmp_path.glob(f"{name}.*")))

    def load_here(self, name: str, mount: Mount, loads: int, **fields: Any) -> Counter[str]:
        """Load on one machine, in this process."""
        plan = self.plan(name, mount, 0, **fields)
        be_runtime.set_cache_dir(plan.cache)
        Worker(plan, 0, 0).run(loads)
        return tally(rows([log_file(plan, 0)]))

    def left(self) -> int:
        """The number of staging folders that are left for a sweep, which removes them."""
        base = base_folder(str(self.mounts[0].backing / "cache"))
        found = len(os.listdir(f"{base}/staging"))
        assert sweep(base, now_s=os.stat(base).st_mtime + 10 * DAY_S) == found
        return found


def _are_right(found: Counter[str], *, errors: bool) -> None:
    """Nothing is wrong, hangs or ends a process; no error, or none but ours."""
    right = {name for name in found if name.endswith((" found", " built", " done"))}
    ours = {name for name in found if name.split(" ", 1)[1].startswith(("CacheError: ", "LoadError: ", "BuildError: "))}
    ours |= {name for name in found if name.startswith("clear one CacheError: ")}
    assert set(found) - right - (ours if errors else set()) == set(), found
    assert sum(found[name] for name in right) > 0


@pytest.mark.parametrize("name", first_of(LOCKS))
def test_without_a_lock_an_entry_is_built_at_most_twice(name: str, tmp_path: Path, bad_mount: MakeMount):
    share = Share(tmp_path, [bad_mount(**LOCKS[name]) for _ in range(2)], keys=6)
    found = share.load(name, loads=LOADS, workers=1)
    _are_right(found, errors=False)
    assert 6 <= found["quick built"] <= 12, found
    assert share.left() == 0


@pytest.mark.parametrize("name", first_of(FAULTS))
def test_a_load_is_right_or_an_error_of_ours(name: str, tmp_path: Path, bad_mount: MakeMount):
    share = Share(tmp_path, [bad_mount(flock="local") for _ in range(2)], keys=4)
    for mount in share.mounts:
        mount.change(**FAULTS[name])
    found = share.load("bad", loads=LOADS, workers=1 if not FORM else 2, real=REAL, edits=0.1, upkeep=0.02)
    print(name, *(f"{count} {what}" for what, count in sorted(found.items())), sep="\n  ")  # noqa: T201 - the counts
    _are_right(found, errors=name not in SOUND)
    for mount in share.mounts:
        mount.change()
    # What was left behind is used by nobody: on the same folder, now sound, all is right.
    _are_right(share.load_here("sound", share.mounts[0], 2 * share.keys, edits=0.2), errors=False)
    share.left()


@longer
def test_an_entry_that_another_machine_removed_is_built_again(tmp_path: Path, bad_mount: MakeMount):
    share = Share(tmp_path, [bad_mount(), bad_mount(late_s=60.0)], keys=1)
    here, there = share.mounts
    assert share.load_here("first", there, 2) == {"quick built": 1, "quick found": 1}
    output = next(there.path.glob("**/copy.txt"))
    assert Store(here.path / "cache").clear() == 1
    assert output.exists(), "the other machine still has its stat"
    assert share.load_here("second", there, 2) == {"quick built": 1, "quick found": 1}


def test_an_entry_that_another_machine_removes_before_it_is_read_is_built_again(tmp_path: Path, bad_mount: MakeMount):
    here, there = Store(bad_mount().path / "cache"), Store(bad_mount(late_s=60.0).path / "cache")
    be_runtime.set_cache_dir(there.root)
    built = []

    def build(staging: Path) -> BuildOutput:
        (staging / "copy.txt").write_text("right")
        return BuildOutput(outputs=("copy.txt",))

    def use(entry: Entry) -> str:
        built.append(entry.built)
        if len(built) == 1:
            assert here.clear() == 1
            assert entry.output("copy.txt").exists(), "as far as this machine knows"
        return entry.output("copy.txt").read_text()

    key = make_key("test", ("name", "removed"))
    there.get_or_build(key, build)
    assert use_entry(lambda: there.get_or_build(key, build), use, PROCESS.session()) == "right"
    assert built == [False, True]


ASKS = """
#include "brainevent/common.h"
#if __has_include("later.h")
#include "later.h"
#else
#define VALUE 1
#endif
extern "C" __attribute__((visibility("default"))) int answer() { return VALUE; }
// @BE f
void f(BE::Tensor out) { (void)out; }
"""
LOAD = """
import ctypes, sys, be_runtime
source, flag = sys.argv[1:]
module = be_runtime.load_cpp_inline("asks", source, extra_cflags=[flag], auto_register=False)
print(ctypes.CDLL(str(module.path)).answer())
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
    found = share.load_here("lost", mount, 20, edits=0.5)
    assert set(found) == {"quick built", "quick found"}, found
    assert share.left() == 0


@longer
def test_an_entry_is_read_again_after_a_stale_handle(tmp_path: Path, bad_mount: MakeMount):
    mount = bad_mount(fails={"open": ("ESTALE", 0.3), "read": ("ESTALE", 0.3)}, only="/copy.txt")
    share = Share(tmp_path, [mount], keys=1)
    mount.change(fails={})
    share.load_here("first", mount, 1)
    mount.change()
    assert share.load_here("second", mount, 40) == {"quick found": 40}
