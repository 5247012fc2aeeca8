"""Two hosts with one cache: names, process ids, boots and locks of their own, and each sees late what the other does.

Their processes load, edit headers, clear, prune and are killed. The short form runs with the other tests; ``make
test-faults`` takes minutes, and with ``FULL=1`` makes 10,000 loads.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from be_runtime.cache.folder.layout import base_folder
from be_runtime.cache.upkeep.staging import sweep
from tests.faults.bad_mounts import MakeMount, bad_mount
from tests.faults.shared_loads import DAY_S, Plan, make_headers, rows, tally
from tests.faults.short_form import first_of
from tests.support.runtime import ROOT, environment

__all__ = ["bad_mount"]

FORM = os.environ.get("BE_FAULTS", "")
LOADS = {"": 50, "minutes": 600, "full": 10_000}[FORM]
WORKERS = 2 if FORM else 1
OFTEN = 1 if FORM else 4
"""So that a few loads have all of it."""
LIMIT_S = {"": 250, "minutes": 1500, "full": 6 * 3600}[FORM]
pytestmark = pytest.mark.timeout(LIMIT_S + 60)

_OWN = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec")
_BECOME = 'hostname "$1"; mount --bind "$2" /proc/sys/kernel/random/boot_id; shift 2; exec "$@"'

LATE = {"flock": "local", "late_s": 1.0}
FAILING = {
    "lost": {"rename": 0.05, "mkdir": 0.05, "unlink": 0.05, "rmdir": 0.05},
    "fails": {"open": ("ESTALE", 0.01), "getattr": ("ESTALE", 0.005), "readdir": ("ESTALE", 0.01)},
}


def _host(tmp_path: Path, name: str, *argv: str) -> tuple[str, ...]:
    """A command on a host of its own."""
    boot = tmp_path / f"boot.{name}"
    boot.write_text(f"{uuid.uuid4()}\n")
    return (*_OWN, _BECOME, "sh", name, str(boot), *argv)


@pytest.mark.parametrize("fails", first_of([False, True]))
@pytest.mark.needs("unshare", "hostname")
def test_hosts_give_what_their_headers_say(tmp_path: Path, bad_mount: MakeMount, *, fails: bool):
    tried = subprocess.run(
        _host(tmp_path, "try", "cat", "/proc/sys/kernel/hostname"), capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        pytest.skip(f"namespaces are not permitted: {tried.stderr.strip()}")
    assert tried.stdout == "try\n"
    headers, running = make_headers(tmp_path / "headers", 8), []
    seed = int(os.environ.get("BE_FAULTS_SEED", "17"))
    loads = (LOADS // 10 if fails else LOADS) // (2 * WORKERS)
    for number, host in enumerate(("one", "two")):
        mount = bad_mount(**LATE, **(FAILING if fails else {}), seed=seed + number)
        plan = Plan(
            str(mount.path / "cache"),
            headers.folder,
            str(tmp_path / host),
            seed=seed + number,
            loads=max(5, loads),
            workers=WORKERS,
            keys=8,
            real=0.05 * OFTEN,
            deaths=0.02 * OFTEN,
            edits=0.1,
            upkeep=0.02,
        )
        argv = (sys.executable, "-m", "tests.faults.shared_loads", json.dumps(plan._asdict()))
        running.append(subprocess.Popen(_host(tmp_path, host, *argv), cwd=ROOT, env=environment()))
    assert [process.wait(LIMIT_S) for process in running] == [0, 0]
    found = tally(rows([*tmp_path.glob("one.*"), *tmp_path.glob("two.*")]))
    print(f"seed {seed}:", *(f"{count} {name}" for name, count in sorted(found.items())), sep="\n  ")  # noqa: T201 - the counts
    fine = {name for name in found if name.endswith((" found", " built", " done", "process killed"))}
    ours = {name for name in found if "CacheError: " in name or " BuildError: " in name or " LoadError: " in name}
    assert set(found) - fine - (ours if fails else set()) == set(), f"seed {seed}: {found}"
    base = base_folder(str(tmp_path / "share" / "cache"))
    sweep(base, now_s=os.stat(base).st_mtime + 10 * DAY_S)
    assert os.listdir(f"{base}/staging") == [], "what the killed left is removed when it is old"
