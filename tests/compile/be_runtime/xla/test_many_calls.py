"""100,000 calls on two devices at once, from one thread and from two."""

from __future__ import annotations

import json

import pytest

from tests.support.runtime import environment, run_python

CALLS = 100_000
WAYS = ("in_turn", "split", "a_thread_each", "both_each")
CODE = "import sys; from tests.support.many_calls import main; main(*sys.argv[1:])"


@pytest.mark.full
def test_no_call_hangs_or_is_wrong():
    environ = environment(XLA_FLAGS="--xla_force_host_platform_device_count=2")
    found = json.loads(run_python(CODE, "cpu", str(CALLS), env=environ).stdout.splitlines()[-1])
    assert {way: row["wrong"] for way, row in found["ways"].items()} == dict.fromkeys(WAYS, 0)
    assert found["called"] == len(WAYS) * CALLS
