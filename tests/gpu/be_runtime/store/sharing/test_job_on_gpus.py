"""Two processes of one GPU each: their arrays make one mesh, and each kernel is built by one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.one_device_each import run_two
from tests.support.requirements import OPTIONAL, device_count

pytestmark = pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")


def test_one_process_builds_and_both_compute(tmp_path: Path):
    job = run_two(tmp_path)
    assert job.devices == [[2, 1]] * 2
    assert job.right >= {"parallel", "reduce", "raw"}
    assert job.wrong == set()
    names = {"one_device_each", "thrice", *(["successor"] if "numba" in job.right else [])}
    assert {name: job.built[name] for name in names} == dict.fromkeys(names, 1)
    assert {name: job.fetched[name] for name in names} == dict.fromkeys(names, 1)
    assert job.compiled == 1
