"""Macros that generate many entry points or grow without end, of another source, and their replacement."""

from __future__ import annotations

import pytest

from be_runtime.errors import SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.cpp.declarations import MacroCall
from be_runtime.spec.cpp.lexer import Token
from be_runtime.spec.cpp.macros import Macros, parse_define
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec

ADD = """\
#define ADD(SUFFIX, T) \\
void add_##SUFFIX(const BE::Tensor a, BE::Tensor y, \\
                  T scale, int64_t stream) { \\
    if (a.numel() > 0) { run<T>(a); } \\
}
"""


def test_macros_that_grow_without_end_are_left_alone(spec: Spec) -> None:
    doubling = "\n".join(f"#define A{i} A{i + 1} A{i + 1}" for i in range(60))
    deep = "\n".join(f"#define B{i} B{i + 1}" for i in range(3000))
    for text in (f"{doubling}\nint x = (A0);", f"{deep}\nint x = (B0);"):
        assert spec.tokens(f"{text}\n// @BE f\nvoid f(BE::Tensor y) {{}}") == "ret"


def test_each_of_many_calls_is_an_entry_point_at_its_line(spec: Spec) -> None:
    calls = "".join(f"// @BE add_{number}\nADD  (\n  {number}, float)\n" for number in range(200))
    entries = spec.all(ADD + calls + "int last();\n")
    assert [(entry.name, entry.line) for entry in entries] == [(f"add_{n}", 7 + 3 * n) for n in range(200)]


def test_macros_of_an_earlier_source() -> None:
    sources = [SourceText(name="a.cuh", text=ADD), SourceText(name="b.cu", text="// @BE add_x\nADD(x, float*)\n")]
    with pytest.raises(SpecError, match="is a pointer") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"


@pytest.mark.parametrize(
    ("define", "call", "expansion"),
    [
        ("#define M(a, ...) f(a, ##__VA_ARGS__)", "M(1)", "f ( 1 )"),
        ("#define M(a, ...) f(a, ##__VA_ARGS__)", "M(1, 2, 3)", "f ( 1 , 2 , 3 )"),
        ("#define M(a, ...) f(a, __VA_ARGS__)", "M(1)", "f ( 1 , )"),
        ("#define M(a) a##1 1##a a##a", "M(x)", "x1 1x xx"),
        ("#define M(a, b) a##b", "M(, y)", "y"),
        ("#define M(a, b) a##b c", "M(x,)", "x c"),
        ("#define M(a) #a", "M(x y)", '""'),
        ("#define M() x", "M() M", "x M"),
        ("#define M (x)", "M", "( x )"),
        ("#define M(a) { a { b } }", "M(x)", "{ }"),
        ("#define M(a) a M(a)", "M(M(x))", "x M ( x ) M ( x M ( x ) )"),
    ],
)
def test_replacement(define: str, call: str, expansion: str) -> None:
    macros, tokens, calls = Macros(), list[Token](), list[MacroCall]()
    macros.define(parse_define(define))
    macros.expand(call, 100, tokens, calls)
    assert " ".join(token.text for token in tokens) == expansion
    assert calls[0].start == 100
