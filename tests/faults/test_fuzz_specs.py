"""Arg_specs that nobody would write: each is taken and read back as it was written, or refused by our error."""

from __future__ import annotations

import pytest

from be_runtime.call.kernel_signature import read_signature
from be_runtime.errors import BeRuntimeError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import parse_spec, render_spec
from tests.faults.fuzzing import arg_spec, judge, time_limit
from tests.support.faults import Tallies, chance, effort, seeds

OURS = (BeRuntimeError,)
SPECS = effort(5_000, 100_000, 1_000_000)
TESTS = effort(1, 4, 20)
OTHERS = 20
"""One spec in so many is also that of a source, and of a kernel without host code."""
TEXT = "void f(const BE::Tensor x, const BE::Tensor w, BE::Tensor y, int n, float m, cudaStream_t s) {}\n"


def read(tokens: list[str]) -> None:
    params = parse_spec(tokens, function="f")
    again = parse_spec(render_spec(params), function="f")
    assert repr(again) == repr(params), "another spec is read back"  # repr: a default may be nan


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(TESTS))
def test_any_spec(seed: int, tally: Tallies):
    rng, specs = chance(seed), tally("arg_specs", seed)
    with time_limit():
        while specs.tried < SPECS // TESTS:
            tokens = arg_spec(rng)
            specs.notes["taken"] += judge(specs, OURS, read, tokens)
            if specs.tried % OTHERS == 0:
                judge(specs, OURS, discover, [SourceText(name="k.cu", text=TEXT)], {"f": tokens})
                judge(specs, OURS, read_signature, "f", " ".join(tokens), ("x", "w", "y"))
    specs.check()
