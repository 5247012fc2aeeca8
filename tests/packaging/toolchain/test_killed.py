"""A killed installer of NVIDIA's own wheels leaves no half toolchain that resolves; see also `tests/faults`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from be_toolchain.install.managed import ManagedStore
from tests.support.fresh_environments import Environment
from tests.support.killed_installers import kill, resolved_site

pytestmark = pytest.mark.xdist_group("toolchain-killed")


def test_killed_while_a_managed_toolkit_is_built(new_environment: Callable[[], Environment], wheels: Path):
    """Two kills, in the first part of an installation: none may come too late."""
    environment = new_environment()
    install = ("install", "--cuda", "13.0", "--into", "managed", "--yes", "--wheels", wheels)
    begun = time.monotonic()
    assert environment.run(*install)[0] == 0
    whole_s = time.monotonic() - begun
    chance = random.Random(20)  # noqa: S311 - moments, not secrets
    outcomes = []
    for turn in range(2):
        for row in ManagedStore(environment.store).list():
            ManagedStore(environment.store).remove(row)
        process = environment.start(*install)
        time.sleep(chance.uniform(0.0, 0.6 * whole_s))
        kill(process, whole_tree=turn % 2 == 0)
        outcomes.append(resolved_site(environment))
    assert None in outcomes, "no kill came in time"
    assert environment.run(*install)[0] == 0
    assert resolved_site(environment) is not None
    environment.run("prune")
    assert [path.name for path in environment.store.iterdir()] == ["cuda-13.0.2"]
