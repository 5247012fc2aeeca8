"""Sources that nobody would write: each has its entry points found, or is refused by our error, within a second."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from be_runtime.errors import BeRuntimeError
from be_runtime.generate.codegen import Binding, render_unit
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype
from be_runtime.spec import SourceText, discover
from tests.support.faults import Tally, chance, effort, seeds
from tests.support.fuzzing import CPP, LARGEST, judge, source, time_limit, wanted_functions

SOURCES = effort(600, 10_000, 100_000)
TESTS = effort(1, 4, 20)
KERNELS = 10
"""One source in so many is also read as a raw kernel's."""


def generate(text: str, functions: object) -> None:
    """Find the entry points and write what calls them, as a build does."""
    entries = discover([SourceText(name="k.cu", text=text)], functions)  # type: ignore[arg-type]
    bindings = [Binding(entry=entry, symbol=f"m_{entry.name}", export=entry.name) for entry in entries]
    for language in ("cpp", "cuda"):
        assert render_unit("", "m", bindings, language=language)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", seeds(TESTS))
def test_any_source(seed: int, tally: Callable[[str, int], Tally]):
    rng, sources = chance(seed), tally("sources", seed)
    with time_limit():
        while sources.tried < SOURCES // TESTS:
            text = source(rng)
            functions = wanted_functions(rng, text)
            given = (text, functions)
            taken = judge(sources, given, lambda given=given: generate(*given), (BeRuntimeError,))  # type: ignore[misc]
            sources.note("with entry points", taken)
            if sources.tried % KERNELS == 0:
                name = parse_name(functions[0] if isinstance(functions, list) else "k<float>")
                judge(sources, given, lambda text=text, name=name: read_prototype(text, name), (BeRuntimeError,))  # type: ignore[misc]
    sources.check()


@pytest.mark.timeout(3600)
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
