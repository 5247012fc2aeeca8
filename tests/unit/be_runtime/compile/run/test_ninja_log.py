"""Ninja's log: later lines count, and what is no line of it is passed over."""

from __future__ import annotations

from be_runtime.compile.run.ninja_log import parse_ninja_log


def test_the_last_line_of_an_output_counts():
    text = "# ninja log v7\n0\t100\t5\tobj/a b.o\tff\n10\t30\t5\tx\tff\n0\t250\t6\tobj/a b.o\tfe\n"
    assert parse_ninja_log(text) == {"obj/a b.o": 0.25, "x": 0.02}


def test_a_damaged_line_is_passed_over():
    assert parse_ninja_log("0\t1\nzero\t1\t2\tx\tf\n\n3\t4\t5\ty\tf\textra\n") == {}
    assert parse_ninja_log(f"0\t{'9' * 5000}\t5\ty\tf\n") == {}
