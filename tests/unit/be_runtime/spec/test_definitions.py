"""Definitions and annotations in several sources, and code that only a compiler understands."""

from __future__ import annotations

import contextlib

import pytest

from be_runtime.errors import DuplicateEntryPointError, EntryPointNotFoundError, SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec

F = "void f(BE::Tensor y) {}"


@pytest.mark.parametrize(
    ("first", "second", "line"),
    [
        ("void f(BE::Tensor y, int n) {}", f"// @BE f\n{F}", 2),
        ("// @BE f\nvoid f(BE::Tensor y);", f"\n\n{F}", 3),
    ],
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


@pytest.mark.parametrize(
    "text", ["void f(BE::Tensor y", "void f(", "void f(BE::Tensor y) {", f"}}}}}}}} {F}", "f(", "void f"]
)
def test_unfinished_code_raises_nothing_unexpected(text: str) -> None:
    with contextlib.suppress(SpecError):
        discover([SourceText(name="k.cu", text=text)], ["f"])
