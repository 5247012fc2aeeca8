"""Errors as HTML: nothing of what they quote is markup."""

from __future__ import annotations

import pytest

from be_runtime.errors import ArgumentError, BuildError, SourceSpan, SpecError
from be_runtime.notebook.cell_options import parse_cell_options
from be_runtime.notebook.shown_error import error_html
from be_toolchain.errors import HostCompilerNotFoundError


def test_everything_is_escaped_and_the_output_folded():
    evil = "<script>&\33[31m"
    error = BuildError(
        f"compiling {evil} failed",
        command=("g++", evil),
        output=f"{evil}\n  ^~~ {evil}\n</pre></details>",
        first_error=f"k:1:1: {evil}\n   1 | {evil}\n     | ^~~",
        hints=(evil,),
    )
    page = error_html(error)
    assert "<script>" not in page
    assert "\33" not in page
    assert page.count("</details>") == page.count("</summary>") == page.count("<details>") == 2
    assert page.count("</pre>") == page.count("<pre ") == 3
    assert "output of the compiler, 3 lines" in page
    assert '\n     | <b style="color: var(--jp-error-color1, #c62828)">^~~</b>' in page


def test_a_place_in_a_source_and_other_errors():
    span = SourceSpan("k", 3, 5, 2, "int <x>;")
    page = error_html(SpecError("no axes", span=span, hints=("write [n]",)))
    assert "k:3:5\n    int &lt;x&gt;;" in page
    assert "hint: write [n]" in page
    assert "details" not in page
    assert "no compiler" in error_html(HostCompilerNotFoundError("no compiler", hints=("apt",)))


def test_the_options_of_a_cell():
    options = parse_cell_options(
        "cuda_kernel", "k -O 2 --fast-math --flag=-DA='b c' -I inc --ldflag=-lm --functions=f,g --debug --line-info"
    )
    assert (options.name, options.functions, options.flags) == ("k", ["f", "g"], ["-DA=b c"])
    assert options.load == {
        "optimization_level": 2,
        "use_fast_math": True,
        "extra_include_paths": ["inc"],
        "extra_ldflags": ["-lm"],
        "debug": True,
        "line_info": True,
        "verbose": False,
    }


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "%%cpp_kernel: the following arguments are required: NAME"),
        ("k --fast", "unrecognized arguments: --fast"),
        ("k -O x", "invalid int value"),
        ("a.b", "'a.b' can't be the name of a Python variable"),
        ("for", "can't be the name"),
        ("k 'x", "No closing quotation"),
    ],
)
def test_a_line_that_is_not_understood(line: str, message: str):
    with pytest.raises(ArgumentError, match=message):
        parse_cell_options("cpp_kernel", line)
