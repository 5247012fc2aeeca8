"""Loops in machine code: nested, beside code that was moved away, and what they count."""

from __future__ import annotations

from be_runtime.reports.machine_code import Loop, classify, hottest_loop, read_kernels

HEAD = '\t.section\t.text.k,"ax",@progbits\n.text.k:\n'


def loop(*rows: str) -> Loop | None:
    """The hottest loop of instructions and labels, as nvdisasm writes them."""
    lines, offset = [HEAD], 0
    for row in rows:
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
        "MOV R1, R2",
        ".L_x_0",
        "LDG.E R2, [R4.64]",
        ".L_x_1",
        "FFMA R0, R2, R3, R0",
        "@P0| BRA `(.L_x_1)",
        "STG.E [R4.64], R0",
        "@P1| BRA `(.L_x_0)",
        "EXIT",
    )
    assert found is not None
    assert (found.offset, found.depth, found.instructions) == (32, 2, 2)
    assert found.kinds == {"fp32": 1, "branches": 1}


def test_of_equal_loops_the_one_with_more_accesses_is_the_hottest():
    found = loop(
        ".L_x_0",
        "FFMA R0, R2, R3, R0",
        "FFMA R0, R2, R3, R0",
        "@P0| BRA `(.L_x_0)",
        ".L_x_1",
        "LDG.E.128 R4, [R2.64]",
        "STG.E.U16 [R2.64], R4",
        "@P1| BRA `(.L_x_1)",
        "EXIT",
    )
    assert found is not None
    assert (found.bytes_read, found.bytes_written) == (16, 2)


def test_the_end_that_jumps_to_itself_is_no_loop():
    assert loop("EXIT", ".L_x_0", "BRA `(.L_x_0)", "NOP") is None


def test_code_that_was_moved_away_and_jumps_back_is_no_loop():
    moved = (
        "BRA.DIV UR4, `(.L_x_2)",
        ".L_x_1",
        "STG.E [R2.64], R4",
        "EXIT",
        ".L_x_2",
        "SHFL.DOWN R1, R2",
        "BRA `(.L_x_1)",
    )
    assert loop(*moved) is None


def test_two_ways_back_are_one_loop():
    found = loop(
        ".L_x_0",
        "LDS R1, [R2]",
        "@P0| BRA `(.L_x_0)",
        "IADD3 R1, R2, R3",
        "@P1| BRA `(.L_x_0)",
        "EXIT",
    )
    assert found is not None
    assert found.instructions == 4
    assert found.depth == 1


def test_the_authors_lines_are_told_once():
    found = loop(
        '//## File "/home/ada/k.cu", line 7',
        ".L_x_0",
        "LDG.E R2, [R4.64]",
        '//## File "/home/ada/k.cu", line 8',
        "LDG.E R3, [R4.64]",
        '//## File "/home/ada/k.cu", line 7',
        "@P0| BRA `(.L_x_0)",
    )
    assert found is not None
    assert found.lines == ("k.cu:7", "k.cu:8")


def test_code_without_a_loop_and_no_code():
    assert loop("MOV R1, R2", "EXIT") is None
    assert hottest_loop((), {}) is None
    assert read_kernels("something else\n") == {}


def test_kinds_of_instructions():
    told = {
        "LDG.E.64.CONSTANT": "global loads",
        "LD.E": "global loads",
        "LDGSTS.E.128": "global loads",
        "ST.E": "global stores",
        "RED.E.ADD": "atomics",
        "ATOMG.E.ADD": "atomics",
        "LDS.U.128": "shared loads",
        "LDSM.16.M88.4": "shared loads",
        "STL.64": "local stores",
        "HMMA.16816.F32": "tensor core",
        "DFMA": "fp64",
        "HFMA2.MMA": "fp16",
        "MUFU.RSQ": "special functions",
        "F2F.F64.F32": "conversions",
        "IMAD.WIDE": "integer",
        "ISETP.NE.AND": "integer",
        "BAR.SYNC.DEFER_BLOCKING": "barriers",
        "SHFL.DOWN": "shuffles and votes",
        "BSSY": "branches",
        "ULDC.64": "constant loads",
        "S2R": "moves",
        "XYZ": "other",
    }
    assert {opcode: classify(opcode) for opcode in told} == told
