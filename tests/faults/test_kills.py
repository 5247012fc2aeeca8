"""kill -9 at any moment of a build, a publication, a pruning or an installation: no hang, and nothing wrong loaded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from be_runtime.store.cache import Cache
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.install.installers import check_wheel
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.plan import PARTS
from be_toolchain.machine.files import INTERRUPTED, SELECTED
from tests.support.faults import Tallies, chance, effort, longer, seeds
from tests.support.fresh_environments import STRANGERS, Environment, make_environment
from tests.support.runtime import ROOT, environment
from tests.support.small_wheels import write_wheels

pytestmark = pytest.mark.timeout(7200)
HANGS_AFTER_S = 120.0

LINES = effort(40, 500, 4_000)
LINE_TESTS = effort(1, 2, 8)


@pytest.mark.parametrize("seed", seeds(LINE_TESTS))
def test_killed_at_any_line_of_the_cache(seed: int, tally: Tallies, tmp_path: Path):
    kills = tally("kills at a line of the cache", seed)
    argv = (sys.executable, "-m", "tests.faults.killing", str(tmp_path), str(seed), str(LINES // LINE_TESTS))
    done = subprocess.run(argv, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=7000, check=False)
    assert done.returncode == 0, done.stderr
    vars(kills).update(json.loads(done.stdout))
    kills.check()


BUILDS = effort(6, 60, 300)
BUILD_TESTS = effort(1, 2, 4)
FRESH = 8
"""One build in so many is the first of a cache: compilers are searched, and what all builds share is made."""


def start_load(cache: Path, number: int) -> subprocess.Popen[str]:
    """A process that loads a module, with compilers of its own session."""
    argv, pipe = (sys.executable, "-m", "tests.faults.answering", "killed", str(number)), subprocess.PIPE
    env = environment(BE_CACHE_DIR=str(cache))
    return subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def answer(process: subprocess.Popen[str]) -> str:
    """What a load gave, or what went wrong."""
    try:
        out, err = process.communicate(timeout=HANGS_AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it hung"
    return out.strip() if process.returncode == 0 else f"exit status {process.returncode}: {err[-800:]}"


def leftovers(cache: Path) -> list[str]:
    """What killed builds left, once it is old and the next round of pruning is over."""
    for path in cache.rglob("*"):
        if not path.is_symlink() and "staging" in path.parts:
            os.utime(path, (time.time() - 7200,) * 2)
    left = []
    for base in cache.rglob("kernels-v1"):
        (base / "pruning.json").unlink(missing_ok=True)
        Cache(base.parent).prune(10**10, 365)
        left += [str(path) for path in (base / "staging").iterdir()]
    return left


@longer
@pytest.mark.parametrize("seed", seeds(BUILD_TESTS))
def test_killed_while_it_builds(seed: int, tally: Tallies, tmp_path: Path):
    """Python alone, whose compilers live on, or all of them; now and then another process wants the same."""
    rng, kills = chance(seed), tally("kills of a build", seed)
    took_s = {}
    for number, fresh in ((1, True), (2, False)):
        began = time.monotonic()
        assert answer(start_load(tmp_path / "0", number)) == str(number)
        took_s[fresh] = time.monotonic() - began
    cache, number = tmp_path / "0", 2
    while kills.tried < BUILDS // BUILD_TESTS and not kills.wrong:
        number += 1
        fresh = number % FRESH == 0
        cache = tmp_path / str(number) if fresh else cache
        process = start_load(cache, number)
        beside = start_load(cache, number) if rng.random() < 0.2 else None
        time.sleep(rng.uniform(0.05, took_s[fresh]))
        if process.poll() is None:
            whole = rng.random() < 0.5
            os.killpg(process.pid, signal.SIGKILL) if whole else process.kill()
            kills.tried += 1
            kills.notes["with the compilers"] += whole
        process.communicate()
        for each in (start_load(cache, number), beside):
            said = answer(each) if each is not None else str(number)
            kills.wrong += [] if said == str(number) else [f"load {number}: {said}"]
    kills.wrong += [f"left behind: {path}" for folder in tmp_path.iterdir() for path in leftovers(folder)]
    kills.check()


def descendants(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill(process: subprocess.Popen[str], *, whole_tree: bool) -> None:
    """``kill -9`` the installer, with its pip or before it; that one is then waited for."""
    below = descendants(process.pid)
    for pid in (process.pid, *(below if whole_tree else ())):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}/exe").exists() for pid in below) and time.monotonic() < deadline:
        time.sleep(0.05)


def resolved_site(fresh: Environment) -> Path | None:
    """The folder of packages that a search takes a toolkit from; every file in it is what its wheel holds."""
    try:
        toolkit = resolve(ToolchainRequest(need_cuda=True), system=fresh.system).cuda
    except CudaNotFoundError:
        return None
    assert toolkit is not None
    site = toolkit.root.parent.parent
    versions = dict(path.stem.replace("_", "-").rsplit("-", 1) for path in site.glob("*.dist-info"))
    assert not [text for part in PARTS for text in check_wheel(site, part, versions[part])], "a half toolchain resolves"
    return site


EXCHANGES = effort(1, 8, 40)
KEPT = ("cuda-13.0.2", SELECTED)


@pytest.fixture(scope="module")
def small_wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for NVIDIA's wheels, of a few KB each."""
    return write_wheels(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One environment and one store for all installations here."""
    return make_environment(tmp_path_factory.mktemp("fresh"))


def start_exchange(fresh: Environment, wheels: Path) -> subprocess.Popen[str]:
    """A repair whose exchange has begun, unless it ended before that was seen."""

    def marks() -> set[int]:
        """When the last exchange began that is not over."""
        with contextlib.suppress(FileNotFoundError):
            return {(fresh.site / INTERRUPTED).stat().st_mtime_ns}
        return set()

    before = marks()
    process = fresh.start("doctor", "--fix", "--yes", "--wheels", wheels)
    while process.poll() is None and marks() <= before:
        time.sleep(0.01)
    return process


@longer
@pytest.mark.xdist_group("killed-installers")
@pytest.mark.parametrize("seed", seeds(1))
def test_killed_while_wheels_are_exchanged(seed: int, tally: Tallies, small_wheels: Path, fresh: Environment):
    rng, kills = chance(seed), tally("kills of an exchange of wheels", seed)
    offline = ("install", "--no-index", "--find-links", small_wheels, "--no-deps", "--no-compile")
    fresh.pip(*offline, "nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-cccl", *STRANGERS)
    process, began = start_exchange(fresh, small_wheels), time.monotonic()
    process.communicate()
    exchange_s = time.monotonic() - began
    fresh.pip(*offline, *STRANGERS)
    while kills.tried < EXCHANGES:
        process = start_exchange(fresh, small_wheels)
        time.sleep(rng.uniform(0.0, exchange_s))
        kills.tried += process.poll() is None
        kill(process, whole_tree=rng.random() < 0.5)
        if resolved_site(fresh) is not None:
            fresh.pip(*offline, *STRANGERS)
        kills.notes["interrupted"] += (fresh.site / INTERRUPTED).exists()
    code, text = fresh.run("doctor", "--fix", "--yes", "--wheels", small_wheels)
    assert code == 0, text
    assert resolved_site(fresh) == fresh.site
    kills.wrong += [f"left behind: {path}" for path in fresh.site.rglob("~*") if path.is_dir()]
    kills.check()


SOURCES = re.compile(r"/be_toolchain/install/|/shutil\.py$")
STEPS = effort(2, 40, 200)
DYING = """
import re, sys
from tests.faults.dying import die_at

lines = die_at(int(sys.argv[1]), re.compile(sys.argv[2]))
from be_toolchain.cli.main import main
try:
    main(sys.argv[3:])
finally:
    sys.settrace(None)
    print("lines", lines())
"""


@longer
@pytest.mark.xdist_group("killed-installers")
@pytest.mark.parametrize("seed", seeds(1))
def test_killed_at_any_line_of_an_installation(seed: int, tally: Tallies, small_wheels: Path, fresh: Environment):
    """From when the wheels are unpacked: they are checked, put in place, and what was there is removed."""
    rng, kills = chance(seed), tally("kills at a line of an installation", seed)
    install = ("install", "--cuda", "13.0", "--into", "managed", "--yes", "--wheels", str(small_wheels))

    def run(line: int, *words: str) -> str:
        argv = (str(fresh.python), "-c", DYING, str(line), SOURCES.pattern, *words)
        options: dict[str, Any] = {"env": fresh.environ, "cwd": "/", "timeout": 200}
        done = subprocess.run(argv, **options, capture_output=True, text=True, check=False)
        found = re.search(r"^lines (\d+)", done.stdout, re.MULTILINE)
        assert found or done.returncode == -signal.SIGKILL, done.stderr
        return found[1] if found else ""

    changes = (install, ("use", "13.0.2"), ("remove", "13.0.2"))
    steps = {words: int(run(10**9, *words)) for words in changes}
    while kills.tried < STEPS:
        words = rng.choice(list(steps))
        if words != install and not ManagedStore(fresh.store).list():
            run(10**9, *install)
        kills.tried += not run(rng.randint(1, steps[words]), *words)
        kills.notes["with a whole toolkit"] += resolved_site(fresh) is not None
    assert fresh.run(*install)[0] == 0
    fresh.run("prune")
    kills.wrong += [f"left behind: {path}" for path in fresh.store.iterdir() if path.name not in KEPT]
    kills.check()
