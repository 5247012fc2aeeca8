"""The text of errors: what is wrong is in it, whatever was quoted or printed."""

from __future__ import annotations

from typing import Any

from be_runtime.errors import ArgumentError, BuildError

NOISE = "\n".join(f"/inc/macros.h:{line}:1: note: in expansion of macro" for line in range(400)) + "\n"
LONG: dict[str, Any] = {
    "command": ("g++", "m.cc"),
    "output": f"m:1:1: error: first\n{NOISE}m:2:1: error: second\n",
    "first_error": "m:1:1: error: first",
    "further": "m:2:1: error: second",
    "hints": ("do this",),
}
LONG_TEXT = """failed
m:1:1: error: first
hint: do this
command: g++ m.cc
then: m:2:1: error: second
full output: 402 lines, in the error's `output`, and on standard error with BE_VERBOSE=1
see docs/errors.md#be301, or run: python -m be_runtime explain BE301"""
SHORT_TEXT = """failed
one
full output:
one
two
see docs/errors.md#be301, or run: python -m be_runtime explain BE301"""


def test_the_output_of_compilers_is_in_the_field_and_in_the_text_if_it_is_short():
    error = BuildError("failed", **LONG)
    assert str(error) == LONG_TEXT
    assert NOISE in error.output
    assert str(BuildError("failed", output="one\ntwo\n", first_error="one")) == SHORT_TEXT
    assert "output" not in str(BuildError("failed", output="one\n", first_error="one"))
    assert len(str(BuildError("failed", output="x" * 10_000))) < 500, "few lines that fill a screen"
    assert len(str(BuildError("failed", output=NOISE)).splitlines()) < 20


def test_an_argument_that_is_a_whole_source_is_quoted_in_part():
    error = ArgumentError(f"name={'code ' * 1000!r} is not allowed: it holds a space", hints=("a hint",))
    first, *rest = str(error).splitlines()
    assert len(str(error)) < 450
    assert first.startswith("name='code code")
    assert first.endswith("is not allowed: it holds a space")
    assert rest == ["hint: a hint", "see docs/errors.md#be101, or run: python -m be_runtime explain BE101"]
    assert len(error.message) > 5000
