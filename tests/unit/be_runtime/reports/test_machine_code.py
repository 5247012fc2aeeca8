"""Loops in machine code: nested, beside code that was moved away, and what they count."""

from __future__ import annotations

import pytest

from be_runtime.reports.machine_code import Loop, classify, hottest_loop, read_kernels

HEAD = '\t.section\t.text.k,"ax",@progbits\n.text.k:\n'


def loop(code: str) -> Loop | None:
    """The hottest loop of instructions, labels and comments between semicolons, as nvdisasm writes them."""
    lines, offset = [HEAD], 0
    for row in code.split("; "):
        if row.startswith((".L", "//##")):
            lines.append(f"{row}:" if row.startswith(".L") else f"\t{row}")
        else:
            guard, _, rest = row.rpartition("| ")
            lines.append(f"        /*{offset:04x}*/              {guard} {rest} ;")
            offset += 16
    (kernel,) = read_kernels("\n".join(lines)).values()
    return hottest_loop(*kernel)


def test_the_innermost_loop_is_the_hottest():
    found = loop(
        "MOV R1, R2; .L_x_0; LDG.E R2, [R4.64]; .L_x_1; FFMA R0, R2, R3, R0; @P0| BRA `(.L_x_1); "
        "STG.E [R4.64], R0; @P1| BRA `(.L_x_0); EXIT"
    )
    assert found is not None
    assert (found.offset, found.depth, found.instructions) == (32, 2, 2)
    assert found.kinds == {"fp32": 1, "branches": 1}


def test_of_equal_loops_the_one_with_more_accesses_is_the_hottest():
    found = loop(
        ".L_x_0; FFMA R0, R2, R3, R0; FFMA R0, R2, R3, R0; @P0| BRA `(.L_x_0); "
        ".L_x_1; LDG.E.128 R4, [R2.64]; STG.E.U16 [R2.64], R4; @P1| BRA `(.L_x_1); EXIT"
    )
    assert found is not None
    assert (found.bytes_read, found.bytes_written) == (16, 2)


def test_two_ways_back_are_one_loop():
    found = loop(".L_x_0; LDS R1, [R2]; @P0| BRA `(.L_x_0); IADD3 R1, R2, R3; @P1| BRA `(.L_x_0); EXIT")
    assert found is not None
    assert (found.instructions, found.depth) == (4, 1)


def test_the_authors_lines_are_told_once():
    line = '//## File "/home/ada/k.cu", line'
    found = loop(f"{line} 7; .L_x_0; LDG.E R2, [R4.64]; {line} 8; LDG.E R3, [R4.64]; {line} 7; @P0| BRA `(.L_x_0)")
    assert found is not None
    assert found.lines == ("k.cu:7", "k.cu:8")


@pytest.mark.parametrize(
    "code",
    [
        "MOV R1, R2; EXIT",
        "EXIT; .L_x_0; BRA `(.L_x_0); NOP",  # its end jumps to itself
        "BRA.DIV UR4, `(.L_x_2); .L_x_1; STG.E [R2.64], R4; EXIT; .L_x_2; SHFL.DOWN R1, R2; BRA `(.L_x_1)",  # moved
    ],
)
def test_code_without_a_loop(code: str):
    assert loop(code) is None


def test_no_code():
    assert hottest_loop((), {}) is None
    assert read_kernels("something else\n") == {}


KINDS = {
    "global loads": "LDG.E.64.CONSTANT LD.E LDGSTS.E.128",
    "global stores": "ST.E",
    "atomics": "RED.E.ADD ATOMG.E.ADD",
    "shared loads": "LDS.U.128 LDSM.16.M88.4",
    "local stores": "STL.64",
    "tensor core": "HMMA.16816.F32",
    "fp64": "DFMA",
    "fp16": "HFMA2.MMA",
    "special functions": "MUFU.RSQ",
    "conversions": "F2F.F64.F32",
    "integer": "IMAD.WIDE ISETP.NE.AND",
    "barriers": "BAR.SYNC.DEFER_BLOCKING",
    "shuffles and votes": "SHFL.DOWN",
    "branches": "BSSY",
    "constant loads": "ULDC.64",
    "moves": "S2R",
    "other": "XYZ",
}


def test_kinds_of_instructions():
    assert {kind: " ".join(each for each in KINDS[kind].split() if classify(each) == kind) for kind in KINDS} == KINDS
