"""The text of errors: what is wrong is in it, whatever was quoted or printed."""

from __future__ import annotations

import be_runtime
from be_runtime.errors import ArgumentError, BuildError

NOISE = "\n".join(f"/inc/macros.h:{line}:1: note: in expansion of macro" for line in range(400)) + "\n"


def test_a_long_output_is_in_the_field_and_not_in_the_text():
    error = BuildError(
        "compiling m failed",
        command=("g++", "m.cc"),
        output=f"m:1:1: error: first\n{NOISE}m:2:1: error: second\n",
        first_error="m:1:1: error: first",
        further="m:2:1: error: second",
        hints=("do this",),
    )
    assert str(error).splitlines() == [
        "compiling m failed",
        "m:1:1: error: first",
        "hint: do this",
        "command: g++ m.cc",
        "then: m:2:1: error: second",
        "full output: 402 lines, in the error's `output`, and on standard error with BE_VERBOSE=1",
        "see docs/errors.md#be301, or run: python -m be_runtime explain BE301",
    ]
    assert NOISE in error.output


def test_a_short_output_is_in_the_text():
    lines = str(BuildError("failed", output="one\ntwo\n", first_error="one")).splitlines()
    assert lines == [
        "failed",
        "one",
        "full output:",
        "one",
        "two",
        "see docs/errors.md#be301, or run: python -m be_runtime explain BE301",
    ]
    assert "output" not in str(BuildError("failed", output="one\n", first_error="one"))


def test_an_output_of_few_lines_that_fill_a_screen_is_cut():
    assert len(str(BuildError("failed", output="x" * 10_000))) < 500
    assert len(str(BuildError("failed", output=NOISE)).splitlines()) < 20


def test_an_argument_that_is_a_whole_source_is_quoted_in_part():
    error = ArgumentError(f"name={'code ' * 1000!r} is not allowed: it holds a space", hints=("a hint",))
    text = str(error)
    assert len(text) < 450
    assert text.startswith("name='code code")
    assert text.splitlines()[0].endswith("is not allowed: it holds a space")
    assert text.endswith("\nhint: a hint\nsee docs/errors.md#be101, or run: python -m be_runtime explain BE101")
    assert len(error.message) > 5000


def test_the_package_lists_its_public_names():
    """Also those that are imported on first use; the modules that it is made of are none."""
    assert sorted(dir(be_runtime)) == sorted(be_runtime.__all__)
    assert {"numba_cuda_kernel", "warp_kernel", "BenchmarkConfig", "load_cpp_inline"} <= set(dir(be_runtime))
