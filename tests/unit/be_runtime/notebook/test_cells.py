"""Errors as HTML: nothing of what they quote is markup."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from be_runtime.errors import ArgumentError, BeRuntimeError, BuildError, SourceSpan, SpecError
from be_runtime.notebook import error_html, parse_cell_options
from be_toolchain.errors import HostCompilerNotFoundError, ToolchainError
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden


def test_everything_is_escaped_and_the_output_folded():

    evil = "<script>&\33[31m"
    first, output = f"k:1:1: {evil}\n   1 | {evil}\n     | ^~~", f"{evil}\n  ^~~ {evil}\n</pre></details>"
    span = SourceSpan("k", 3, 5, 2, "int <x>;")
    errors: tuple[BeRuntimeError | ToolchainError, ...] = (
        BuildError(f"g++ {evil}", command=("g++", evil), output=output, first_error=first, hints=(evil,)),
        SpecError("no axes", span=span, hints=("write [n]",)),
        HostCompilerNotFoundError("no compiler", hints=("apt",)),
    )
    page = "\n".join(error_html(error) for error in errors) + "\n"
    check_golden(Path(__file__).parent / "shown_errors.html", page)
    assert not re.search("<script>|\33", page)


def test_the_options_of_a_cell():
    line = "k -O 2 --fast-math --flag=-DA='b c' -I inc --ldflag=-lm --functions=f,g --debug --line-info"
    options = parse_cell_options("cuda_kernel", line)
    assert (options.name, options.functions, options.flags) == ("k", ["f", "g"], ["-DA=b c"])
    named = {"optimization_level": 2, "extra_include_paths": ["inc"], "extra_ldflags": ["-lm"], "verbose": False}
    assert options.load == named | dict.fromkeys(("use_fast_math", "debug", "line_info"), True)


def test_a_line_that_is_not_understood():
    for line, message in (
        ("", "%%cpp_kernel: the following arguments are required: NAME"),
        ("k --fast", "unrecognized arguments: --fast"),
        ("k -O x", "invalid int value"),
        ("a.b", "'a.b' can't be the name of a Python variable"),
        ("for", "can't be the name"),
        ("k 'x", "No closing quotation"),
    ):
        with pytest.raises(ArgumentError, match=message):
            parse_cell_options("cpp_kernel", line)
