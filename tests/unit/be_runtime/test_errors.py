"""The text of errors: what is wrong is in it, whatever was quoted or printed."""

from __future__ import annotations

from pathlib import Path

from be_runtime.errors import ArgumentError, BuildError

NOISE = "\n".join(f"/inc/macros.h:{line}:1: note: in expansion of macro" for line in range(400)) + "\n"
LONG, SHORT = (Path(__file__).parent / "golden" / "errors.txt").read_text().rstrip().split("\n\n")


def test_the_output_of_compilers_is_in_the_field_and_in_the_text_if_it_is_short():
    output = f"m:1:1: error: first\n{NOISE}m:2:1: error: second\n"
    first, further = output.splitlines()[0], output.splitlines()[-1]
    command, hints = ("g++", "m.cc"), ("do this",)
    error = BuildError("failed", output=output, first_error=first, further=further, command=command, hints=hints)
    assert str(error) == LONG
    assert NOISE in error.output
    assert str(BuildError("failed", output="one\ntwo\n", first_error="one")) == SHORT
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
