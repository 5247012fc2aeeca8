"""Discovery: the grammar, definitions, golden files of what is found and refused, and that any text ends soon."""

from __future__ import annotations

import ast
import time
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest

from be_runtime import dtypes, errors
from be_runtime.signature import SourceText, discovery, grammar, model
from be_runtime.signature.cpp import lexer, program
from be_runtime.signature.cpp import macros as macros_module
from be_runtime.signature.cpp import params as types_module
from be_runtime.signature.cpp.macros import Macros, parse_define
from be_runtime.signature.cpp.params import CppTypes, Shape, parse_params
from be_runtime.signature.discovery import discover
from tests.support.large_sources import ROOT
from tests.support.speed import usual_seconds
from tests.unit.be_runtime.compile.codegen.golden_files import check_golden
from tests.unit.be_runtime.signature.conftest import each, found, tokens_of

SPELLINGS = {
    "arg ret": "args rets",
    "ret stream arg": "ret ctx.stream arg",
    "attr.n ret": "attrs.n ret",
    "attr.n:int32 ret": "attrs.n:int32 ret",
    "attr.arg:int8 attr.stream ret": "attr.arg:int8 attr.stream ret",
}


@pytest.mark.parametrize(("written", "first_spelling"), each(SPELLINGS))
def test_spellings(written: str, first_spelling: str) -> None:
    assert " ".join(grammar.render_spec(grammar.parse_spec(written.split()))) == first_spelling


@pytest.mark.parametrize("name", sorted(set(dtypes.BY_NAME).difference(dtypes.ATTR_TYPES)))
def test_a_type_for_arrays_only_is_refused_by_name(name: str) -> None:
    assert grammar.parse_spec([f"ret[3]:{name}"])[0].dtype is dtypes.BY_NAME[name]
    instead = "float32" if "float" in name else "int32"
    for spelt in (name, f"{name}[]", f"{{a:{name}}}"):
        with pytest.raises(errors.SpecError, match=f"XLA has no attributes of {name}; take an? {instead}"):
            grammar.parse_spec([f"attr.x:{spelt}", "ret"])


@pytest.mark.parametrize("text", ["1or 2", "0x1for", "2if n else 3", "'\\d'", "1.real"])
def test_arithmetic_of_which_python_would_warn_is_refused_in_silence(text: str) -> None:
    with (
        warnings.catch_warnings(record=True, action="always") as said,
        pytest.raises(errors.SpecError, match="is not an axis"),
    ):
        grammar.parse_spec(["arg[n]", f"ret[({text})]"])
    assert said == []


def test_a_token_of_any_length_is_no_work() -> None:
    with pytest.raises(errors.SpecError, match="a token has more than 10000 characters: 'arg"):
        grammar.parse_spec([f"arg[{'(' * 30_000}{'(b)' * 10_000}]", "ret"])


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_a_truth_value_is_written_as_in_cpp_or_python(text: str, value: bool):
    for kind in ("", ":bool"):
        params = grammar.parse_spec(["ret", f"attr.a{kind}={text}"])
        assert params[1].default is value
        assert grammar.render_spec(params)[1] == f"attr.a{kind}={'true' if value else 'false'}"


F = "void f(BE::Tensor y) {}"


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [("void f(BE::Tensor y, int n) {}", f"// @BE f\n{F}", 2), ("// @BE f\nvoid f(BE::Tensor y);", f"\n\n{F}", 3)],
)
def test_an_annotation_means_the_function_of_its_own_source_or_else_of_another(first: str, second: str, line: int):
    (entry,) = discover([SourceText(name="a.cu", text=first), SourceText(name="b.cu", text=second)], None)
    assert (entry.source, entry.line, len(entry.params)) == ("b.cu", line, 1)


@pytest.mark.parametrize(("functions", "place"), [(None, "1:8"), (["f"], "2:6")])
def test_two_sources_that_define_or_annotate_one_name(functions: list[str] | None, place: str) -> None:
    sources = [SourceText(name=name, text=f"// @BE f\n{F}") for name in ("a.cu", "b.cu")]
    with pytest.raises(errors.DuplicateEntryPointError, match=rf"first at a\.cu:{place}") as caught:
        discover(sources, functions)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"
    with pytest.raises(errors.EntryPointNotFoundError):
        discover([], None)


@pytest.mark.parametrize("returns", ["std::vector<int>", "Alias", "auto", "std::enable_if_t<(sizeof(int) > 2)>"])
def test_what_may_be_void_is_left_to_the_compiler(returns: str) -> None:
    text = f"{returns} f(BE::Tensor y) {{}}"
    with pytest.raises(errors.SpecError, match="an entry point returns void"):
        found(text, ["f"])
    assert tokens_of(text, {"f": ["ret"]}) == "ret"


FUNCTIONS = "functions: "


def answer(case: str) -> str:
    """The entry points of a source, or its error."""
    given, _, text = case.removeprefix(FUNCTIONS).partition("\n") if case.startswith(FUNCTIONS) else ("None", "", case)
    source = SourceText(name="k.cu", text=text.replace("\\r\n", "\r\n"))
    try:
        entries = discover([source], ast.literal_eval(given))
    except errors.BeRuntimeError as error:
        return f"{type(error).__name__}: {error}".rpartition("\ncauses and remedies: ")[0]
    names = [entry.name + "".join(entry.call_name.partition("<")[1:]) for entry in entries]
    written = discover(
        [source],
        {name: grammar.render_spec((*entry.params, *entry.rules)) for name, entry in zip(names, entries, strict=True)},
    )
    assert [entry.call_name for entry in written] == [entry.call_name for entry in entries]
    return "\n".join(map(told, entries))


def told(entry: model.EntryPoint) -> str:
    """The line of an entry point, the tokens of its call, what its host code does, and its documentation."""
    spec = " ".join(grammar.render_spec((*entry.params, *entry.rules)))
    line = f"line {entry.line}, {entry.name}: {entry.call_name} {spec}"
    marks = [f"on the default stream: {', '.join(entry.unordered)}"] if entry.unordered else []
    marks += [f"ends the process: {', '.join(entry.ends)}"] if entry.ends else []
    return "\n".join([line, *marks, *(f"/// {text}" for text in entry.doc.splitlines())])


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_what_is_found_and_what_is_refused(golden: Path) -> None:
    cases = [case.partition("\n--\n")[0] for case in golden.read_text().split("\n====\n")]
    check_golden(golden, "\n====\n".join(f"{case}\n--\n{answer(case)}" for case in cases) + "\n")


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
        with pytest.raises(errors.BeRuntimeError):
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
    macros, tokens = Macros(), list[lexer.Token]()
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
    read = Mock(wraps=lexer.significant)
    monkeypatch.setattr(types_module, "significant", read)
    for text in ("enum E { a, b };", "struct E { int a; };"):
        types = CppTypes([(0, text, text)], ())
        params = parse_params(lexer.significant(",".join(f"const n{number}::E& a" for number in range(20))))
        assert {types.resolve(param).shape for param in params} <= {Shape.ENUM, Shape.STRUCT}
    assert read.call_count == 2


@pytest.mark.parametrize("end", ["", "}" * 1000], ids=["open", "closed"])
def test_types_within_each_other_are_read_up_to_a_limit(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = Mock(return_value=[])
    monkeypatch.setattr(types_module, "significant", read)
    text = "".join(f"enum E{number} {{" for number in range(1000)) + "a " * 50_000 + end
    types = CppTypes([(0, text, text)], ())
    params = parse_params(lexer.significant(",".join(f"E{number} a" for number in range(1000))))
    assert {types.resolve(param).shape for param in params} == {Shape.UNKNOWN}
    assert sum(len(call.args[0]) for call in read.call_args_list) <= 1 << 19


def test_a_name_in_very_many_declarations_is_refused() -> None:
    with pytest.raises(errors.BeRuntimeError, match="or 20,000 mention it") as caught:
        discover([SourceText(name="k.cu", text="f();" * 20_001)], ["f"])
    assert "another name" in caught.value.hints[0]


def test_names_of_enumerations_are_counted_for_each_parameter() -> None:
    text = "enum E { " + ", ".join(f"a{number}" for number in range(1000)) + " };\n"
    text += "".join(f"// @BE f{number}\nvoid f{number}(BE::Tensor y, E e) {{}}\n" for number in range(201))
    with pytest.raises(errors.BeRuntimeError, match=r"up to f200 .* 200,000 names of enumerations"):
        discover([SourceText(name="k.cu", text=text)])


def test_the_page_names_the_limits() -> None:
    page = (ROOT / "docs" / "arg-spec.md").read_text(encoding="utf-8")
    limits = [program.LARGEST, program.MOST_OF_A_NAME, program.MOST_OF_A_WORD, macros_module.LIMIT, grammar.MOST]
    for module, names in {
        macros_module: ("_MOST_OF_ALL", "_MOST_CHARACTERS"),
        types_module: ("_MOST_CHARACTERS",),
        discovery: ("_MOST_ENTRIES", "_MOST_PARAMS", "_MOST_CHOICES"),
    }.items():
        limits += [vars(module)[name] for name in names]
    text = page.partition("\n## Limits\n")[2].partition("\n## ")[0]
    assert [limit for limit in limits if f"{limit:,}" not in text] == []


def test_host_code_of_included_files_is_judged_where_an_entry_point_uses_it():
    upstream = """// @BE not_an_entry_point
    #define CHECK(call) if (call) exit(1)
    inline void launch(float* x, cudaStream_t stream) { k<<<1, 1, 0, stream>>>(x); }
    inline void unused(float* x) { k<<<1, 1>>>(x); }
    template <typename T> void inner(T* x) { CHECK(cudaGetLastError()); k<<<2, 2>>>(x); }
    void outer(float* x, int n) { inner<float>(x); }
    """
    glue = """#include "upstream.cu"
    // @BE f arg ret
    void f(const BE::Tensor x, BE::Tensor y) { outer(y.data_ptr<float>(), 3); launch(nullptr, s); }
    // @BE g arg ret
    void g(const BE::Tensor x, BE::Tensor y) {}
    """
    included = [SourceText(name="upstream.cu", text=upstream)]
    f, g = discover([SourceText(name="glue.cu", text=glue)], included=included)
    assert f.unordered == ("upstream.cu:5 (k<<<2, 2>>>)",)
    assert f.ends == ("upstream.cu:2 (exit in the macro CHECK)",)
    assert not g.unordered
    assert not g.ends
    (alone, _) = discover([SourceText(name="glue.cu", text=glue)])
    assert not alone.unordered


def test_included_files_beyond_a_limit_are_not_judged():
    glue = [SourceText(name="a.cu", text="// @BE f arg ret\nvoid f(const BE::Tensor x, BE::Tensor y) { g(); }")]
    (entry,) = discover(glue, included=[SourceText(name="b.cu", text="void g() { k<<<1, 1>>>(); }" + " " * (1 << 19))])
    assert not entry.unordered
