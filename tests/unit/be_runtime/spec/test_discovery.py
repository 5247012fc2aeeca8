"""Discovery: the arg_spec grammar, definitions in several sources, and golden files of what is found and refused."""

from __future__ import annotations

import ast
import os
import warnings
from pathlib import Path

import pytest

from be_runtime.dtypes import ATTR_TYPES, BY_NAME
from be_runtime.errors import BeRuntimeError, DuplicateEntryPointError, EntryPointNotFoundError, SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import parse_spec, render_spec
from be_runtime.spec.model import EntryPoint
from tests.unit.be_runtime.spec.conftest import Spec, each

SPELLINGS = {
    "arg ret": "args rets",
    "ret stream arg": "ret ctx.stream arg",
    "attr.n ret": "attrs.n ret",
    "attr.n:int32 ret": "attrs.n:int32 ret",
    "attr.arg:int8 attr.stream ret": "attr.arg:int8 attr.stream ret",
}


@pytest.mark.parametrize(("written", "first_spelling"), each(SPELLINGS))
def test_spellings(written: str, first_spelling: str) -> None:
    assert " ".join(render_spec(parse_spec(written.split()))) == first_spelling


@pytest.mark.parametrize("name", sorted(ATTR_TYPES))
def test_every_type(name: str) -> None:
    (param, _) = parse_spec([f"attr.x:{name}", "ret"])
    assert param.dtype is BY_NAME[name]


@pytest.mark.parametrize("name", sorted(set(BY_NAME).difference(ATTR_TYPES)))
def test_a_type_for_arrays_only_is_refused_by_name(name: str) -> None:
    assert parse_spec([f"ret[3]:{name}"])[0].dtype is BY_NAME[name]
    instead = "float32" if "float" in name else "int32"
    for spelt in (name, f"{name}[]", f"{{a:{name}}}"):
        with pytest.raises(SpecError, match=f"XLA has no attributes of {name}; take an? {instead}"):
            parse_spec([f"attr.x:{spelt}", "ret"])


@pytest.mark.parametrize("text", ["1or 2", "0x1for", "2if n else 3", "'\\d'", "1.real"])
def test_arithmetic_of_which_python_would_warn_is_refused_in_silence(text: str) -> None:
    with (
        warnings.catch_warnings(record=True, action="always") as said,
        pytest.raises(SpecError, match="is not an axis"),
    ):
        parse_spec(["arg[n]", f"ret[({text})]"])
    assert said == []


def test_a_token_of_any_length_is_no_work() -> None:
    with pytest.raises(SpecError, match="a token has more than 10000 characters: 'arg"):
        parse_spec([f"arg[{'(' * 30_000}{'(b)' * 10_000}]", "ret"])


@pytest.mark.parametrize(("text", "value"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_a_truth_value_is_written_as_in_cpp_or_python(text: str, value: bool):
    for kind in ("", ":bool"):
        params = parse_spec(["ret", f"attr.a{kind}={text}"])
        assert params[1].default is value
        assert render_spec(params)[1] == f"attr.a{kind}={'true' if value else 'false'}"


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
    with pytest.raises(DuplicateEntryPointError, match=rf"first at a\.cu:{place}") as caught:
        discover(sources, functions)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"
    with pytest.raises(EntryPointNotFoundError):
        discover([], None)


@pytest.mark.parametrize("returns", ["std::vector<int>", "Alias", "auto", "std::enable_if_t<(sizeof(int) > 2)>"])
def test_what_may_be_void_is_left_to_the_compiler(spec: Spec, returns: str) -> None:
    text = f"{returns} f(BE::Tensor y) {{}}"
    with pytest.raises(SpecError, match="an entry point returns void"):
        spec.one(text, ["f"])
    assert spec.tokens(text, {"f": ["ret"]}) == "ret"


FUNCTIONS = "functions: "


def answer(case: str) -> str:
    """The entry points of a source, or its error."""
    given, _, text = case.removeprefix(FUNCTIONS).partition("\n") if case.startswith(FUNCTIONS) else ("None", "", case)
    source = SourceText(name="k.cu", text=text.replace("\\r\n", "\r\n"))
    try:
        entries = discover([source], ast.literal_eval(given))
    except BeRuntimeError as error:
        return f"{type(error).__name__}: {error}".rpartition("\nsee ")[0]
    written = discover([source], {entry.name: render_spec(entry.params) for entry in entries})
    assert [entry.call_name for entry in written] == [entry.call_name for entry in entries]
    return "\n".join(map(told, entries))


def told(entry: EntryPoint) -> str:
    """The line of an entry point, the tokens of its call, whether it launches out of order, and its documentation."""
    line = f"line {entry.line}, {entry.name}: {entry.call_name} {' '.join(render_spec(entry.params))}"
    marks = ["launches out of order"] if entry.launches_out_of_order else []
    return "\n".join([line, *marks, *(f"/// {text}" for text in entry.doc.splitlines())])


@pytest.mark.parametrize("golden", sorted(Path(__file__).parent.glob("golden/*.txt")), ids=lambda path: path.stem)
def test_what_is_found_and_what_is_refused(golden: Path) -> None:
    """``BE_UPDATE_GOLDEN=1`` writes the answers anew."""
    cases = [case.partition("\n--\n")[0] for case in golden.read_text().split("\n====\n")]
    whole = "\n====\n".join(f"{case}\n--\n{answer(case)}" for case in cases) + "\n"
    if "BE_UPDATE_GOLDEN" in os.environ:
        golden.write_text(whole)
    assert whole == golden.read_text()
