"""Which unit defines which entry point, and under which name a module offers it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pytest

from be_runtime.errors import ArgumentError, DuplicateEntryPointError, EntryPointNotFoundError, SpecError
from be_runtime.generate.bind import bind
from be_runtime.generate.codegen import Binding
from be_runtime.request.options import BuildRequest, CompileOptions, Unit
from be_runtime.source_text import SourceText
from be_runtime.spec.cpp import program
from be_runtime.spec.cpp.outline import outline

F, G = "// @BE f\nvoid f(BE::Tensor out) {}\n", "// @BE g\nvoid g(const BE::Tensor x, BE::Tensor out) {}\n"


def request(functions: object = None, /, **sources: str) -> BuildRequest:
    units = tuple(
        Unit(stem=stem, sources=(SourceText(name=f"/{stem}.cc", text=text),), path=Path(f"/{stem}.cc"))
        for stem, text in sources.items()
    )
    return BuildRequest(name="m", language="cpp", units=units, functions=functions, compile=CompileOptions())


def exports(bound: dict[str, tuple[Binding, ...]]) -> dict[str, list[str]]:
    return {stem: [binding.export for binding in found] for stem, found in bound.items()}


def test_one_unit_keeps_its_names():
    (binding,) = bind(request(a=F))["a"]
    assert (binding.export, binding.symbol) == ("f", "m_f")
    assert (binding.trampoline, binding.handler(allow_cuda_graph=False)) == ("be_call_m_f", "be_ffi_m_f")


def test_a_module_whose_name_is_no_identifier_has_symbols():
    (binding,) = bind(request(a=F)._replace(name="my kernels-2"))["a"]
    assert binding.symbol == "my_kernels_2_f"


def test_a_repeated_name_is_offered_by_file():
    assert exports(bind(request(a=F + G, b=F, c=""))) == {"a": ["a.f", "g"], "b": ["b.f"], "c": []}


def test_symbols_of_several_units_are_unique_identifiers():
    """Stems that only differ in what no identifier holds."""
    bound = bind(request(**{"a b": F, "a-b": F, "a_b": F, "ä": F, "a\udcff": F}))
    symbols = [binding.symbol for found in bound.values() for binding in found]
    assert len(set(symbols)) == 5
    assert all(symbol.isidentifier() and symbol.isascii() for symbol in symbols)


def test_names_are_looked_up_in_every_unit():
    sources = {"a": F + G, "b": F, "c": G}
    assert exports(bind(request(["g"], **sources))) == {"a": ["a.g"], "b": [], "c": ["c.g"]}
    assert exports(bind(request(["f", "g"], a=F, b=G))) == {"a": ["f"], "b": ["g"]}
    assert exports(bind(request({"f": ["ret"]}, **sources))) == {"a": ["a.f"], "b": ["b.f"], "c": []}


def test_each_source_is_read_once_for_all_names(monkeypatch: pytest.MonkeyPatch):
    read = Mock(wraps=outline)
    monkeypatch.setattr(program, "outline", read)
    names = [f"f{number}" for number in range(20)]
    sources = ["".join(f"void f{number}(BE::Tensor y) {{}}\n" for number in range(start, 20, 2)) for start in (0, 1)]
    assert exports(bind(request(names, a=sources[0], b=sources[1]))) == {"a": names[::2], "b": names[1::2]}
    assert [call.args[0] for call in read.call_args_list] == sources


def test_a_name_listed_twice_is_refused():
    for sources in ({"a": F}, {"a": F, "b": G}):
        with pytest.raises(DuplicateEntryPointError, match="listed twice"):
            bind(request(["f", "f"], **sources))


def test_a_name_in_no_unit_is_an_error_that_knows_all_units():
    with pytest.raises(EntryPointNotFoundError, match="ff") as caught:
        bind(request(["ff"], a=G, b=F))
    assert "f" in " ".join(caught.value.hints)


def test_no_annotation_in_any_unit():
    with pytest.raises(EntryPointNotFoundError, match=r"/a\.cc, /b\.cc"):
        bind(request(a="int x;", b="int y;"))


def test_an_annotation_without_its_function_is_an_error_though_others_have_theirs():
    with pytest.raises(EntryPointNotFoundError) as caught:
        bind(request(a=F, b="// @BE gone\n"))
    assert caught.value.span is not None
    assert caught.value.span.file == "/b.cc"


def test_errors_of_one_unit_are_not_hidden_by_another():
    with pytest.raises(SpecError, match="rte"):
        bind(request({"f": ["rte"]}, a=F, b=G))
    with pytest.raises(DuplicateEntryPointError):
        bind(request(a=F + "// @BE f\n", b=G))


@pytest.mark.parametrize("functions", ["f", b"f", 7, {"f"}, {"f": "ret"}, [7], {7: ["ret"]}], ids=repr)
@pytest.mark.parametrize("units", [{"a": F}, {"a": F, "b": G}], ids=len)
def test_functions_of_a_wrong_kind(functions: object, units: dict[str, str]):
    with pytest.raises((ArgumentError, SpecError)):
        bind(request(functions, **units))


@pytest.mark.parametrize("functions", [{}, [], ()], ids=repr)
@pytest.mark.parametrize("units", [{"a": F}, {"a": F, "b": G}], ids=len)
def test_an_empty_list_binds_nothing(functions: object, units: dict[str, str]):
    assert bind(request(functions, **units)) == dict.fromkeys(units, ())
