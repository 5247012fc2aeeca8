"""Sources and arg_specs that nobody would write.

Each source has its entry points found, each arg_spec is read back as it was written, or is refused by our error, within
a second.
"""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime.call.signature import read_signature
from be_runtime.compile.codegen import render_unit
from be_runtime.compile.codegen_values import Binding
from be_runtime.errors import BeRuntimeError
from be_runtime.kernels.raw_compiler import parse_name, read_prototype
from be_runtime.signature import SourceText, discovery, grammar
from tests.faults.fuzzing import CPP, LARGEST, arg_spec, judge, source, time_limit, wanted_functions
from tests.support.faults import FIRST_SEED, Tallies, chance, effort, longer, seeds
from tests.support.large_sources import SOURCES, measure

pytestmark = pytest.mark.timeout(3600)
OURS = (BeRuntimeError,)
TRIED = effort(600, 10_000, 100_000)
TESTS = effort(1, 4, 20)
PART = effort(6, 1, 1)
"""One of so many of the largest sources is read."""
MOST_S, MOST_MB, LONGEST_ERROR = 1.0, 500, 10_000
KERNELS = 10
"""One source in so many is also read as a raw kernel's."""


def generate(text: str, functions: Any) -> None:
    """Find the entry points and write what calls them, as a build does."""
    entries = discovery.discover([SourceText(name="k.cu", text=text)], functions)
    bindings = [Binding(entry=entry, symbol=f"m_{entry.name}", export=entry.name) for entry in entries]
    for language in ("cpp", "cuda"):
        assert render_unit("", "m", bindings, language=language)


@pytest.mark.parametrize("seed", seeds(TESTS))
def test_any_source(seed: int, tally: Tallies):
    rng, sources = chance(seed), tally("sources", seed)
    with time_limit():
        while sources.tried < TRIED // TESTS:
            text = source(rng)
            functions = wanted_functions(rng, text)
            sources.notes["with entry points"] += judge(sources, OURS, generate, text, functions)
            if sources.tried % KERNELS == 0:
                name = functions[0] if isinstance(functions, list) else "k<float>"
                judge(sources, OURS, read_prototype, text, parse_name(name))
    sources.check()


ONCE_SLOW = (
    *("nested conditions", "conditions with annotations", "one name annotated often", "branches with annotations"),
    *("annotated unknown calls", "annotated names before parentheses", "annotations in one comment"),
    *("calls of a stream", "brackets in an annotation", "launches that do not end", "launches that end far away"),
)


@pytest.mark.parametrize("name", ONCE_SLOW)
def test_what_was_slow_is_not(name: str, tally: Tallies):
    """64 KB each; the first of them took 35 seconds."""
    once = tally("sources that were slow", 0)
    with time_limit():
        for functions in (None, ["f"], {f"f{number}": ["arg", "ret"] for number in range(500)}):
            judge(once, OURS, generate, SOURCES[name].text(LARGEST), functions)
    once.check()


@longer
@pytest.mark.parametrize("functions", effort((None,), (None, ["f"]), (None, ["f"])))
def test_the_largest_sources_take_a_second(functions: object, tally: Tallies):
    """Half a MiB each; some of them took minutes, and 1.6 GB. In the short form a part of them, by the seed."""
    largest, names = tally("sources as large as they may be", FIRST_SEED), list(SOURCES)
    names = names[FIRST_SEED % PART :: PART]
    costs = measure(functions, names)
    largest.tried = len(costs)
    slow = [name for name, cost in costs.items() if cost.seconds > MOST_S]
    for _ in range(2):  # a busy machine may take longer once
        slow = [name for name, cost in measure(functions, slow).items() if cost.seconds > MOST_S] if slow else []
    for name, cost in costs.items():
        is_large = cost.peak_mb > MOST_MB or len(cost.outcome) > LONGEST_ERROR
        if name in slow or is_large or "characters of source" in cost.outcome:
            largest.wrong.append(f"{cost.seconds:.1f} s, {cost.peak_mb:.0f} MB: {name}: {cost.outcome[:200]}")
    largest.check()


@longer
@pytest.mark.parametrize("first", effort((None,), (None,), CPP))
def test_what_is_repeated_takes_no_time(first: str | None, tally: Tallies):
    """Each piece of C++ over and over; in the full form each pair of them."""
    repeated = tally("sources of one thing repeated", 0)
    with time_limit():
        for unit in (f"{first or ''}{part}" for part in CPP):
            for functions in (None, ["f"]):
                judge(repeated, OURS, generate, unit * (LARGEST // len(unit)), functions)
    repeated.check()


SPECS = effort(5_000, 100_000, 1_000_000)
OTHERS = 20
"""One spec in so many is also that of a source, and of a kernel without host code."""
TEXT = "void f(const BE::Tensor x, const BE::Tensor w, BE::Tensor y, int n, float m, cudaStream_t s) {}\n"


def read_back(tokens: list[str]) -> None:
    params = grammar.parse_spec(tokens, function="f")
    again = grammar.parse_spec(grammar.render_spec(params), function="f")
    assert repr(again) == repr(params), "another spec is read back"  # repr: a default may be nan


@pytest.mark.parametrize("seed", seeds(TESTS))
def test_any_spec(seed: int, tally: Tallies):
    rng, specs = chance(seed), tally("arg_specs", seed)
    with time_limit():
        while specs.tried < SPECS // TESTS:
            tokens = arg_spec(rng)
            specs.notes["taken"] += judge(specs, OURS, read_back, tokens)
            if specs.tried % OTHERS == 0:
                judge(specs, OURS, discovery.discover, [SourceText(name="k.cu", text=TEXT)], {"f": tokens})
                judge(specs, OURS, read_signature, "f", " ".join(tokens), ("x", "w", "y"))
    specs.check()
