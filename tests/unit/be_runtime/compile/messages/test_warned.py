"""Warnings are found in the output of each compiler, whatever is around them."""

from __future__ import annotations

import pytest

from be_runtime.compile.messages.warned import find_warnings, warnings_text


@pytest.mark.parametrize(
    ("output", "warning"),
    [
        (
            "k.cc: In function 'void f()':\nk.cc:3:5: warning: unused 'a' [-Wunused]\n   3 | int a;\n     | ^",
            "k.cc:3:5:",
        ),
        (
            '/a b/k.cu(3): warning #177-D: variable "a" was declared\n  int a;\n\nRemark: The warnings can be',
            "/a b/k.cu(3)",
        ),
        ("k.cu(3): warning: an old one", "k.cu(3)"),
        ("k.cc:3:5: error: no\nk.cc:3:5: note: warning: no\nptxas info    : 0 bytes gmem\n1 warning generated.", ""),
    ],
)
def test_each_compiler_form_of_a_warning_is_found(output: str, warning: str):
    found = find_warnings([output, output])
    assert [each.startswith(warning) for each in found] == [True] * bool(warning)


def test_many_warnings_are_counted():
    lines = warnings_text("m", tuple(f"m:{line}:1: warning: x" for line in range(30))).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 20 more, which module.report() lists"
