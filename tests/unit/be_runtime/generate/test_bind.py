"""Which unit defines which entry point, and under which name a module offers it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from be_runtime.generate.bind import bind
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.source_text import SourceText
from be_runtime.spec.cpp import program
from be_runtime.spec.cpp.outline import outline
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

F, G = "// @BE f\nvoid f(BE::Tensor out) {}\n", "// @BE g\nvoid g(const BE::Tensor x, BE::Tensor out) {}\n"


def request(functions: object = None, /, **sources: str) -> BuildRequest:
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=f"/{stem}.cc", text=text),), path=Path(f"/{stem}.cc"))
        for stem, text in sources.items()
    )
    return BuildRequest(name="m", language="cpp", units=units, functions=functions, compile=CompileOptions())


def test_one_unit_keeps_its_names_and_has_symbols_whatever_the_module_s_name():
    (binding,) = bind(request(a=F))["a"]
    assert (binding.export, binding.symbol, binding.trampoline) == ("f", "m_f", "be_call_m_f")
    (binding,) = bind(request(a=F)._replace(name="my kernels-2"))["a"]
    assert binding.symbol == "my_kernels_2_f"


def test_symbols_of_several_units_are_unique_identifiers():
    """Stems that only differ in what no identifier holds."""
    bound = bind(request(**{"a b": F, "a-b": F, "a_b": F, "ä": F, "a\udcff": F}))
    symbols = [binding.symbol for found in bound.values() for binding in found]
    assert len(set(symbols)) == 5
    assert all(symbol.isidentifier() and symbol.isascii() for symbol in symbols)


@pytest.mark.parametrize(
    ("functions", "sources", "exports"),
    [
        (None, {"a": F + G, "b": F, "c": ""}, {"a": ["a.f", "g"], "b": ["b.f"], "c": []}),
        (["g"], {"a": F + G, "b": F, "c": G}, {"a": ["a.g"], "b": [], "c": ["c.g"]}),
        (["f", "g"], {"a": F, "b": G}, {"a": ["f"], "b": ["g"]}),
        ({"f": ["ret"]}, {"a": F + G, "b": F, "c": G}, {"a": ["a.f"], "b": ["b.f"], "c": []}),
        *(({}, {"a": F}, {"a": []}), ([], {"a": F}, {"a": []}), ((), {"a": F, "b": G}, {"a": [], "b": []})),
    ],
)
def test_names_are_looked_up_in_every_unit_and_a_repeated_one_is_offered_by_file(
    functions: object, sources: dict[str, str], exports: dict[str, list[str]]
):
    bound = bind(request(functions, **sources))
    assert {stem: [binding.export for binding in found] for stem, found in bound.items()} == exports


def test_each_source_is_read_once_for_all_names(monkeypatch: pytest.MonkeyPatch):
    read = Mock(wraps=outline)
    monkeypatch.setattr(program, "outline", read)
    names = [f"f{number}" for number in range(20)]
    sources = ["".join(f"void f{number}(BE::Tensor y) {{}}\n" for number in range(start, 20, 2)) for start in (0, 1)]
    bind(request(names, a=sources[0], b=sources[1]))
    assert [call.args[0] for call in read.call_args_list] == sources


REFUSED: list[tuple[object, dict[str, str]]] = [
    *((["f", "f"], units) for units in ({"a": F}, {"a": F, "b": G})),
    (["ff"], {"a": G, "b": F}),
    *((None, {"a": first, "b": second}) for first, second in (("int x;", "int y;"), (F, "// @BE gone\n"), (F + F, G))),
    ({"f": ["rte"]}, {"a": F, "b": G}),
    *((wrong, {"a": F, "b": G}) for wrong in ("f", b"f", 7, {"f"}, {"f": "ret"}, [7], {7: ["ret"]})),
    *((wrong, {"a": F}) for wrong in ("f", b"f", 7, {"f"}, {"f": "ret"}, [7], {7: ["ret"]})),
]


def test_an_error_of_one_unit_is_not_hidden_by_another_and_knows_all_of_them():
    rows = [
        f"{functions} in {sources}\n  {answer(bind, request(functions, **sources))}\n" for functions, sources in REFUSED
    ]
    check_golden(Path(__file__).parent / "golden" / "refused_functions.txt", "".join(rows))
