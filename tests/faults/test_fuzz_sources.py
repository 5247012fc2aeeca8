"""Sources that nobody would write: each has its entry points found, or is refused by our error, within a second."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from tests.faults.short_form import longer

from be_runtime.errors import BeRuntimeError
from be_runtime.generate.codegen import Binding, render_unit
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.faults.fuzzing import CPP, LARGEST, judge, source, time_limit, wanted_functions
from tests.support.faults import FIRST_SEED, Tally, chance, effort, seeds
from tests.support.large_sources import SOURCES, measure

pytestmark = pytest.mark.timeout(3600)
TRIED = effort(600, 10_000, 100_000)
TESTS = effort(1, 4, 20)
PART = effort(6, 1, 1)
"""One of so many of the largest sources is read."""
MOST_S, MOST_MB, LONGEST_ERROR = 1.0, 500, 10_000
KERNELS = 10
"""One source in so many is also read as a raw kernel's."""


def generate(text: str, functions: Any) -> None:
    """Find the entry points and write what calls them, as a build does."""
    entries = discover([SourceText(name="k.cu", text=text)], functions)
    bindings = [Binding(entry=entry, symbol=f"m_{entry.name}", export=entry.name) for entry in entries]
    for language in ("cpp", "cuda"):
        assert render_unit("", "m", bindings, language=language)


@pytest.mark.parametrize("seed", seeds(TESTS))
def test_any_source(seed: int, tally: Callable[[str, int], Tally]):
    rng, sources = chance(seed), tally("sources", seed)
    with time_limit():
        while sources.tried < TRIED // TESTS:
            text = source(rng)
            functions = wanted_functions(rng, text)
            given = (text, functions)
            taken = judge(sources, given, lambda given=given: generate(*given), (BeRuntimeError,))  # type: ignore[misc]
            sources.note("with entry points", taken)
            if sources.tried % KERNELS == 0:
                name = parse_name(functions[0] if isinstance(functions, list) else "k<float>")
                judge(sources, given, lambda text=text, name=name: read_prototype(text, name), (BeRuntimeError,))  # type: ignore[misc]
    sources.check()


NESTED = "void f(const BE::Tensor x, BE::Tensor y) {"
ONCE_SLOW = {
    "nested conditions": "#if X\n" * 11_000,
    "annotations in nested conditions": "#if X\n// @BE f\n" * 4_300,
    "one name annotated often": f"// @BE f\n{NESTED}" * 1_200,
    "branches that exclude each other": "#if A\n" + f"#elif X\n// @BE f\n{NESTED}}}\n" * 500 + "#endif\n",
    "calls of unknown macros without semicolons": "".join(f"// @BE f{i} arg ret\nD(f{i})\n" for i in range(2_200)),
    "names before parentheses": "".join(f"// @BE f{i}\nf{i}(x)\n" for i in range(3_200)),
    "annotations in one comment": "".join(f"// @BE f{i} arg ret\n// D(f{i})\n" for i in range(2_200)) + "D(f)",
    "launches that do not end": f"// @BE f\n{NESTED}{'cudaLaunchKernel(' * 3_500}",
    "configurations that do not end": f"// @BE f\n{NESTED}{'<<<' * 20_000}",
    "brackets in an annotation": "// @BE f " + "{" * 60_000,
}


@pytest.mark.parametrize("what", ONCE_SLOW)
def test_what_was_slow_is_not(what: str, tally: Callable[[str, int], Tally]):
    """64 KB each; the first of them took 35 seconds."""
    once = tally("sources that were slow", 0)
    with time_limit():
        for functions in (None, ["f"], {f"f{number}": ["arg", "ret"] for number in range(500)}):
            judge(once, (what, functions), lambda f=functions: generate(ONCE_SLOW[what], f), (BeRuntimeError,))  # type: ignore[misc]
    once.check()


@longer
@pytest.mark.parametrize("functions", effort((None,), (None, ["f"]), (None, ["f"])))
def test_the_largest_sources_take_a_second(functions: object, tally: Callable[[str, int], Tally]):
    """Half a MiB each; some of them took minutes, and 1.6 GB. In the short form a part of them, by the seed."""
    largest, names = tally("sources as large as they may be", FIRST_SEED), list(SOURCES)
    names = names[FIRST_SEED % PART :: PART]
    costs = measure(functions, names)
    largest.tried = len(costs)
    slow = [name for name, cost in costs.items() if cost.seconds > MOST_S]
    for _ in range(2):  # a busy machine may take longer once
        slow = [name for name, cost in measure(functions, slow).items() if cost.seconds > MOST_S] if slow else []
    largest.wrong += [f"{costs[name].seconds:.1f} s: {name}" for name in slow]
    for name, cost in costs.items():
        if cost.peak_mb > MOST_MB or len(cost.outcome) > LONGEST_ERROR or "characters of source" in cost.outcome:
            largest.wrong.append(f"{cost.peak_mb:.0f} MB: {name}: {cost.outcome[:200]}")
    largest.check()


@longer
@pytest.mark.parametrize("first", effort((None,), (None,), CPP))
def test_what_is_repeated_takes_no_time(first: str | None, tally: Callable[[str, int], Tally]):
    """Each piece of C++ over and over; in the full form each pair of them."""
    repeated = tally("sources of one thing repeated", 0)
    units = [(part,) for part in CPP] if first is None else list(itertools.product((first,), CPP))
    with time_limit():
        for unit in units:
            text = "".join(unit) * (LARGEST // len("".join(unit)))
            for functions in (None, ["f"]):
                judge(repeated, (unit, functions), lambda f=functions, text=text: generate(text, f), (BeRuntimeError,))  # type: ignore[misc]
    repeated.check()
