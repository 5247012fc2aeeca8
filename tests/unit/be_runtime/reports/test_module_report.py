"""The report as text and as JSON, and the cause of each warning."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.reports.machine_code import Loop
from be_runtime.reports.module_report import KernelReport, ModuleReport, Phase, check_blocks
from be_runtime.reports.occupancy import occupancy
from be_toolchain.arch import Arch

FULL = occupancy(Arch(9, 0), registers=32, shared=0, block=256)
LOW = occupancy(Arch(9, 0), registers=255, shared=0, block=256)
NONE = occupancy(Arch(9, 0), registers=255, shared=0, block=1024)
assert FULL is not None
assert LOW is not None
assert NONE is not None
GOOD = KernelReport("good", "_Z4goodv", "sm_90", 32, 0, 0, 0, 0, 512, (FULL,))


def a_loop(**kinds: int) -> Loop:
    return Loop(16, 1, 9, {name.replace("_", " "): count for name, count in kinds.items()}, 8, 4, ("k.cu:3",))


KERNELS = (
    GOOD,
    GOOD._replace(name="spills", stack=8, spill_stores=4, spill_loads=12),
    GOOD._replace(name="local", stack=256),
    GOOD._replace(name="local_in_loop", loop=a_loop(local_loads=3, local_stores=2)),
    GOOD._replace(name="low", occupancy=(LOW,)),
    GOOD._replace(name="converts", loop=a_loop(fp64=1, conversions=2)),
    GOOD._replace(name="doubles", loop=a_loop(fp64=4)),
    GOOD._replace(name="not_launched", occupancy=(NONE,)),
    KernelReport("far", "far", "sm_75", code_bytes=64),
)


def test_the_whole_as_text_and_as_json():
    """``BE_UPDATE_GOLDEN=1`` writes the file anew."""
    report = ModuleReport("m", KERNELS, phases=(Phase("cicc", 0.5, 2), Phase("ptxas", 0.25, 1)), notes=("look",))
    told = f"{report}\n\n{json.dumps(report.to_json(), indent=1)}\n"
    golden = Path(__file__).parent / "golden" / "module_report.txt"
    if "BE_UPDATE_GOLDEN" in os.environ:
        golden.write_text(told)
    assert told == golden.read_text()


@pytest.mark.parametrize("blocks", [(), (0,), (2048,), ("256",), (256.5,)])
def test_block_sizes_are_numbers_of_threads(blocks: tuple[int, ...]):
    with pytest.raises(ArgumentError, match="a block has 1 to 1024 threads"):
        check_blocks(blocks)


def test_the_limits_of_an_unknown_architecture_are_not_guessed():
    assert occupancy(Arch(13, 0), registers=32, shared=0, block=256) is None
