"""100,000 calls on two devices at once, from one thread and from two, with CUDA graphs and without."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cuda import run_json
from tests.support.requirements import OPTIONAL, device_count

CALLS = 100_000
GRAPHS = {
    "replayed": "--xla_gpu_enable_command_buffer=FUSION,CUBLAS,CUSTOM_CALL,WHILE,CONDITIONAL "
    "--xla_gpu_graph_min_graph_size=1",
    "none": "--xla_gpu_enable_command_buffer=",
}
WAYS = ("in_turn", "split", "a_thread_each", "both_each")
CODE = "import sys; from tests.support.many_calls import main; main(*sys.argv[1:])"

pytestmark = pytest.mark.skipif(device_count() < 2, reason=OPTIONAL + "a second device")


@pytest.mark.parametrize("graphs", GRAPHS)
def test_no_call_hangs_or_is_wrong(graphs: str):
    found: Any = run_json(CODE, "gpu", str(CALLS), XLA_FLAGS=GRAPHS[graphs])
    assert {way: row["wrong"] for way, row in found["ways"].items()} == dict.fromkeys(WAYS, 0)
    assert found["kernels"] >= 2
    assert (found["recorded"] > 0) == (graphs == "replayed"), found
    if graphs == "none":
        assert found["called"] >= len(WAYS) * CALLS // found["kernels"]
