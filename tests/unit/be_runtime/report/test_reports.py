"""The report as text and as JSON, and the output of ptxas and cuobjdump."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError
from be_runtime.report import (
    KernelReport,
    ModuleReport,
    Occupancy,
    Phase,
    Usage,
    check_blocks,
    occupancy,
    parse_ptxas,
    parse_resources,
)
from be_toolchain.arch import Arch
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden


def at(registers: int, block: int) -> Occupancy:
    found = occupancy(Arch(9, 0), registers=registers, shared=0, block=block)
    assert found is not None
    return found


GOOD = KernelReport("good", "_Z4goodv", "sm_90", 32, 0, 0, 0, 0, 512, (at(32, 256),))


KERNELS = (
    GOOD,
    GOOD._replace(name="spills", stack=8, spill_stores=4, spill_loads=12),
    GOOD._replace(name="local", stack=256),
    GOOD._replace(name="low", occupancy=(at(255, 256),)),
    GOOD._replace(name="not_launched", occupancy=(at(255, 1024),)),
    KernelReport("far", "far", "sm_75", code_bytes=64),
)


def test_the_whole_as_text_and_as_json():
    report = ModuleReport("m", KERNELS, phases=(Phase("cicc", 0.5, 2), Phase("ptxas", 0.25, 1)), notes=("look",))
    told = f"{report}\n\n{json.dumps(report.to_json(), indent=1)}\n"
    check_golden(Path(__file__).parent / "golden" / "module_report.txt", told)


@pytest.mark.parametrize("blocks", [(), (0,), (2048,), ("256",), (256.5,)])
def test_block_sizes_are_numbers_of_threads(blocks: tuple[int, ...]):
    with pytest.raises(ArgumentError, match="a block has 1 to 1024 threads"):
        check_blocks(blocks)


def test_the_limits_of_an_unknown_architecture_are_not_guessed():
    assert occupancy(Arch(13, 0), registers=32, shared=0, block=256) is None


PTXAS_13 = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z8spillingPKfPf' for 'sm_90'
ptxas info    : Function properties for _Z8spillingPKfPf
    392 bytes stack frame, 912 bytes spill stores, 920 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 392 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 27.496 ms
ptxas info    : Compiling entry function '_Z4addPfi' for 'sm_120f'
ptxas info    : Function properties for _Z4addPfi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
"""
PTXAS_12_WITH_A_FUNCTION = """\
ptxas info    : Compiling entry function 'main' for 'sm_80'
ptxas info    : Function properties for main
    16 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
ptxas info    : Function properties for helper
    96 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, 512 bytes smem, 368 bytes cmem[0]
"""
CUOBJDUMP = """\

Resource usage:
 Common:
  GLOBAL:0
 Function _Z8spillingPKfPf:
  REG:32 STACK:392 SHARED:2048 LOCAL:0 CONSTANT[0]:544 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function plain:
  REG:34 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:548 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_ptxas_tells_the_kernels_own_stack_and_not_that_of_a_function_it_calls():
    assert parse_ptxas(PTXAS_13) == {
        ("_Z8spillingPKfPf", Arch(9, 0)): Usage(32, 1024, 392, 912, 920),
        ("_Z4addPfi", Arch(12, 0, "f")): Usage(8, 0, 0, 0, 0),
    }
    assert parse_ptxas(PTXAS_12_WITH_A_FUNCTION) == {("main", Arch(8, 0)): Usage(40, 512, 16, 8, 8)}
    assert parse_ptxas("nvcc warning : something\nptxas info : new\n    8 bytes stack frame, else\n") == {}


def test_cuobjdump_counts_the_drivers_shared_memory_in_from_hopper_on():
    assert parse_resources(CUOBJDUMP, Arch(9, 0)) == {
        ("_Z8spillingPKfPf", Arch(9, 0)): Usage(32, 1024, 392),
        ("plain", Arch(9, 0)): Usage(34, 0, 0),
    }
    assert parse_resources(CUOBJDUMP, Arch(8, 0))["_Z8spillingPKfPf", Arch(8, 0)].shared == 2048
