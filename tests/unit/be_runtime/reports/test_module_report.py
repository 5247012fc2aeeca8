"""The report as text and as JSON, and the cause of each warning."""

from __future__ import annotations

import json

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.reports.machine_code import Loop
from be_runtime.reports.module_report import KernelReport, ModuleReport, Phase, check_blocks
from be_runtime.reports.occupancy import occupancy
from be_toolchain.arch import Arch

FULL = occupancy(Arch(9, 0), registers=32, shared=0, block=256)
LOW = occupancy(Arch(9, 0), registers=255, shared=0, block=256)
assert FULL is not None
assert LOW is not None
GOOD = KernelReport("good", "_Z4goodv", "sm_90", 32, 0, 0, 0, 0, 512, (FULL,))


def a_loop(**kinds: int) -> Loop:
    return Loop(16, 1, 9, {name.replace("_", " "): count for name, count in kinds.items()}, 8, 4, ("k.cu:3",))


@pytest.mark.parametrize(
    ("kernel", "said"),
    [
        (GOOD._replace(stack=8, spill_stores=4, spill_loads=12), "spills registers to memory: a thread writes 4 B and"),
        (GOOD._replace(stack=256), "has 256 B of local memory"),
        (GOOD._replace(loop=a_loop(local_loads=3, local_stores=2)), "in its hottest loop, 5 times in a trip"),
        (GOOD._replace(occupancy=(LOW,)), "at most 12% full, limited by registers"),
        (GOOD._replace(loop=a_loop(fp64=1, conversions=2)), "converts to double"),
    ],
)
def test_each_cause_has_its_warning(kernel: KernelReport, said: str):
    (warning,) = kernel.warnings
    assert warning.startswith("good (sm_90) ")
    assert said in warning
    report = ModuleReport("m", (GOOD, kernel))
    assert report.warnings == (warning,)
    assert f"warning: {warning}" in str(report)


def test_a_kernel_in_order_has_no_warning():
    assert GOOD.warnings == ()
    assert GOOD._replace(loop=a_loop(fp64=4)).warnings == (), "a kernel of doubles converts nothing"


def test_the_table_says_what_no_tool_tells():
    unknown = KernelReport("far", "far", "sm_75", code_bytes=64)
    lines = str(ModuleReport("m", (GOOD, unknown), phases=(Phase("cicc", 0.5, 2),), notes=("look",))).splitlines()
    assert lines[0] == "m: 2 kernels"
    assert lines[1].split() == ["kernel", "arch", "registers", "shared", "spills", "local", "code", "@256"]
    assert lines[2].split() == ["good", "sm_90", "32", "0", "B", "0", "B", "0", "B", "512", "B", "100%"]
    assert lines[3].split() == ["far", "sm_75", "?", "?", "?", "?", "64", "B", "?"]
    assert lines[-2:] == ["seconds of commands, some of which run at once: cicc 0.50", "note: look"]


def test_a_block_that_can_not_be_launched_is_no_percentage():
    none = occupancy(Arch(9, 0), registers=255, shared=0, block=1024)
    assert none is not None
    assert str(ModuleReport("m", (GOOD._replace(occupancy=(none,)),))).splitlines()[2].endswith("-")


def test_json_has_all_of_it():
    report = ModuleReport("m", (GOOD._replace(loop=a_loop(fp32=2)),), phases=(Phase("ptxas", 0.25, 1),))
    told = json.loads(json.dumps(report.to_json()))
    (kernel,) = told["kernels"]
    assert kernel["registers"] == 32
    assert kernel["occupancy"] == [{"block": 256, "blocks": 8, "warps": 64, "fraction": 1.0, "limiter": "registers"}]
    assert kernel["loop"]["kinds"] == {"fp32": 2}
    assert told["phases"] == [{"name": "ptxas", "seconds": 0.25, "commands": 1}]


@pytest.mark.parametrize("blocks", [(), (0,), (2048,), ("256",), (256.5,)])
def test_block_sizes_are_numbers_of_threads(blocks: tuple[int, ...]):
    with pytest.raises(ArgumentError, match="a block has 1 to 1024 threads"):
        check_blocks(blocks)


def test_the_limits_of_an_unknown_architecture_are_not_guessed():
    assert occupancy(Arch(13, 0), registers=32, shared=0, block=256) is None
