"""Two processes of one device each: their arrays make one mesh, and a module is built by one of them."""

from __future__ import annotations

from pathlib import Path

from tests.support.one_device_each import run_two


def test_one_process_builds_and_both_compute(tmp_path: Path):
    job = run_two(tmp_path, "cpu")
    assert job.devices == [[2, 1]] * 2
    assert (job.right, job.wrong) == ({"parallel", "reduce"}, set())
    assert (job.built["one_device_each"], job.fetched["one_device_each"], job.compiled) == (1, 1, 1)
