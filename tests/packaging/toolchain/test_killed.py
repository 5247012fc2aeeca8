"""An installer that is killed at random moments never leaves a half toolchain that resolves."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import CudaNotFoundError
from be_toolchain.install.managed import ManagedStore
from be_toolchain.install.plan import PARTS
from be_toolchain.install.wheel_files import check_wheel
from be_toolchain.machine.store_paths import INTERRUPTED
from tests.packaging.toolchain.conftest import STRANGERS, Environment

pytestmark = pytest.mark.xdist_group("toolchain-killed")

SEED = int(os.environ.get("BE_TEST_SEED", "20"))


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


def resolved_site(environment: Environment) -> Path | None:
    """The folder of packages that a search takes a toolkit from; every file in it is what its wheel holds."""
    try:
        toolkit = resolve(ToolchainRequest(need_cuda=True), system=environment.system).cuda
    except CudaNotFoundError:
        return None
    assert toolkit is not None
    site = toolkit.root.parent.parent
    versions = {part: path for path in site.glob("*.dist-info") for part in PARTS if _is(part, path)}
    assert set(versions) == set(PARTS)
    wrong = [text for part, path in versions.items() for text in check_wheel(site, part, path.stem.rpartition("-")[2])]
    assert not wrong, "a half toolchain resolves"
    return site


def _is(part: str, path: Path) -> bool:
    return path.stem.rpartition("-")[0].replace("_", "-") == part


@pytest.mark.parametrize(("kind", "kills", "share"), [("small_wheels", 20, 1.0), ("wheels", 2, 0.6)])
def test_killed_while_a_managed_toolkit_is_built(
    new_environment: Callable[[], Environment], request: pytest.FixtureRequest, kind: str, kills: int, share: float
):
    """NVIDIA's own wheels, and small ones for which an installer takes a second instead of ten.

    Kills fall into that share of an installation's time; of two, none may come too late.
    """
    environment = new_environment()
    install = ("install", "--cuda", "13.0", "--into", "managed", "--yes", "--wheels", request.getfixturevalue(kind))
    begun = time.monotonic()
    assert environment.run(*install)[0] == 0
    whole_s = time.monotonic() - begun
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    outcomes = []
    for turn in range(kills):
        for row in ManagedStore(environment.store).list():
            ManagedStore(environment.store).remove(row)
        process = environment.start(*install)
        time.sleep(chance.uniform(0.0, share * whole_s))
        kill(process, whole_tree=turn % 2 == 0)
        outcomes.append(resolved_site(environment))
    assert None in outcomes, "no kill came in time"
    assert environment.run(*install)[0] == 0
    assert resolved_site(environment) is not None
    environment.run("prune")
    assert [path.name for path in environment.store.iterdir()] == ["cuda-13.0.2"]


def marked_ns(environment: Environment) -> int:
    """When the last exchange began that is not over, or 0."""
    try:
        return (environment.site / INTERRUPTED).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def start_exchange(environment: Environment, wheels: Path) -> subprocess.Popen[str]:
    """A repair whose exchange has begun, unless it ended before that was seen."""
    before = marked_ns(environment)
    process = environment.start("doctor", "--fix", "--yes", "--wheels", wheels)
    while process.poll() is None and marked_ns(environment) in (0, before):
        time.sleep(0.01)
    return process


def test_killed_while_wheels_are_exchanged(new_environment: Callable[[], Environment], small_wheels: Path):
    environment = new_environment()
    wheels = small_wheels
    offline = ("install", "--no-index", "--find-links", wheels, "--no-deps", "--no-compile")
    environment.pip(*offline, "nvidia-cuda-nvcc==13.0.88", "nvidia-cuda-cccl", *STRANGERS)
    process, begun = start_exchange(environment, wheels), time.monotonic()
    process.communicate()
    exchange_s = time.monotonic() - begun
    environment.pip(*offline, *STRANGERS)
    chance = random.Random(SEED)  # noqa: S311 - moments, not secrets
    interrupted = 0
    for turn in range(8):
        process = start_exchange(environment, wheels)
        time.sleep(chance.uniform(0.0, exchange_s))
        kill(process, whole_tree=turn % 2 == 0)
        if resolved_site(environment) is not None:
            environment.pip(*offline, *STRANGERS)
        interrupted += (environment.site / INTERRUPTED).exists()
    assert interrupted > 1, "no kill came in time"
    code, text = environment.run("doctor", "--fix", "--yes", "--wheels", wheels)
    assert code == 0, text
    assert resolved_site(environment) == environment.site
    leftovers = [path for path in environment.site.rglob("~*") if path.is_dir()]
    assert not leftovers
