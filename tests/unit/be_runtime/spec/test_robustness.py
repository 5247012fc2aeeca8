"""Whatever a source holds, discovery answers or raises one of our errors, soon."""

from __future__ import annotations

import time
from unittest.mock import Mock

import pytest

from be_runtime.errors import BeRuntimeError
from be_runtime.source_text import SourceText
from be_runtime.spec import discovery
from be_runtime.spec.cpp import macros as macros_module
from be_runtime.spec.cpp import program
from be_runtime.spec.cpp import types as types_module
from be_runtime.spec.cpp.cpp_params import Shape, parse_params
from be_runtime.spec.cpp.lexer import Token, significant
from be_runtime.spec.cpp.macros import Macros, parse_define
from be_runtime.spec.cpp.types import CppTypes
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import MOST
from tests.support.large_sources import ROOT
from tests.support.speed import usual_seconds

HOSTILE = (
    *("(" * 50_000, "{" * 50_000, "void f(" * 5_000, "namespace a {" * 5_000, "__attribute__((" * 5_000, "f<" * 5_000),
    *("#if X\n" * 5_000, "#if X\n{\n#else\n" * 2_000, "// @BE f\n" * 2_000, "struct " * 5_000 + "{", "[[" * 5_000),
    *("alignas(" * 5_000 + "struct S {", "namespace " + "a::" * 10_000 + " (", "namespace " + "a " * 10_000 + "( {"),
    *("struct " + "a " * 10_000 + "( {", "struct " + "a" * 10_000 + " g() {", "namespace " + "a" * 10_000 + " M(x) {"),
    *("template <class " + "a" * 10_000 + "> void g() {", "struct alignas(" + "a" * 10_000 + " {"),
    *("enum class A {" * 5_000 + "void f(A a);", "enum A : " * 5_000 + "{ void f(A a);"),
    *("enum A { " + "a, " * 50_000 + "* }; void f(A a);", "struct A { " + "A a; " * 5_000 + "}; void f(A a);"),
    *("struct A { " + "int n{" * 5_000 + "; }; void f(A a);", "void f(" + "a::" * 20_000 + "< a);"),
    "void f(float x = " + "-" * 50_000 + "1);",
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:24])
def test_hostile_text_takes_no_time(text: str) -> None:
    started = time.process_time()
    for functions in (["f"], None):
        with pytest.raises(BeRuntimeError):
            discover([SourceText(name="k.cu", text=text)], functions)
    assert usual_seconds(time.process_time() - started) < 20


@pytest.mark.parametrize(
    ("overload", "line"), [("enum T@ { a@ };\nvoid f(T@ x) {}\n", 511), ("void f(T@ x) {}\n", 256)]
)
def test_many_overloads_take_no_time(overload: str, line: int) -> None:
    text = "".join(overload.replace("@", str(number)) for number in range(255)) + "void f(BE::Tensor y, int n) {}"
    started = time.process_time()
    (entry,) = discover([SourceText(name="k.cu", text=text)], {"f": ["ret", "attr.n"]})
    assert entry.line == line
    assert usual_seconds(time.process_time() - started) < 5


def test_a_long_argument_that_is_often_repeated_takes_no_memory() -> None:
    macros, tokens = Macros(), list[Token]()
    macros.define(parse_define("#define D(a) " + "a " * 5_000))
    for _ in range(2):
        macros.expand(f"void g(D({'w' * 5_000}))", 0, tokens, [])
    assert macros.unexpanded == [0, 0]
    assert sum(len(token.text) for token in tokens) < 11_000


def test_a_macro_that_is_too_long_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(return_value="x " * 60_000)
    monkeypatch.setattr(macros_module, "_without_bodies", read)
    macros = Macros()
    macros.define(parse_define("#define D " + "x " * 60_000))
    for place in range(5_000):
        macros.expand("D()", place, [], [])
    assert read.call_count == 1
    assert macros.is_spent


def test_a_type_of_many_spellings_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(wraps=significant)
    monkeypatch.setattr(types_module, "significant", read)
    for text in ("enum E { a, b };", "struct E { int a; };"):
        types = CppTypes([(0, text, text)], ())
        params = parse_params(significant(",".join(f"const n{number}::E& a" for number in range(20))))
        assert {types.resolve(param).shape for param in params} <= {Shape.ENUM, Shape.STRUCT}
    assert read.call_count == 2


@pytest.mark.parametrize("end", ["", "}" * 1000], ids=["open", "closed"])
def test_types_within_each_other_are_read_up_to_a_limit(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(return_value=[])
    monkeypatch.setattr(types_module, "significant", read)
    text = "".join(f"enum E{number} {{" for number in range(1000)) + "a " * 50_000 + end
    types = CppTypes([(0, text, text)], ())
    params = parse_params(significant(",".join(f"E{number} a" for number in range(1000))))
    assert {types.resolve(param).shape for param in params} == {Shape.UNKNOWN}
    assert sum(len(call.args[0]) for call in read.call_args_list) <= 1 << 19


def test_a_name_in_very_many_declarations_is_refused() -> None:
    with pytest.raises(BeRuntimeError, match="or 20,000 mention it") as caught:
        discover([SourceText(name="k.cu", text="f();" * 20_001)], ["f"])
    assert "another name" in caught.value.hints[0]


def test_names_of_enumerations_are_counted_for_each_parameter() -> None:
    text = "enum E { " + ", ".join(f"a{number}" for number in range(1000)) + " };\n"
    text += "".join(f"// @BE f{number}\nvoid f{number}(BE::Tensor y, E e) {{}}\n" for number in range(201))
    with pytest.raises(BeRuntimeError, match=r"up to f200 .* 200,000 names of enumerations"):
        discover([SourceText(name="k.cu", text=text)])


def test_the_page_names_the_limits() -> None:
    page = (ROOT / "docs" / "arg-spec.md").read_text(encoding="utf-8")
    limits = [program.LARGEST, program.MOST_OF_A_NAME, program.MOST_OF_A_WORD, macros_module.LIMIT, MOST]
    for module, names in {
        macros_module: ("_MOST_OF_ALL", "_MOST_CHARACTERS"),
        types_module: ("_MOST_CHARACTERS",),
        discovery: ("_MOST_ENTRIES", "_MOST_PARAMS", "_MOST_CHOICES"),
    }.items():
        limits += [vars(module)[name] for name in names]
    text = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert [limit for limit in limits if f"{limit:,}" not in text] == []
