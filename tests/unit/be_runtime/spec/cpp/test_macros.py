"""Entry points that macros generate."""

from __future__ import annotations

import pytest

from be_runtime.errors import SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.cpp.declarations import MacroCall
from be_runtime.spec.cpp.lexer import Token
from be_runtime.spec.cpp.macros import Macros, parse_define
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec, each

ADD = """\
#define ADD(SUFFIX, T) \\
void add_##SUFFIX(const BE::Tensor a, BE::Tensor y, \\
                  T scale, int64_t stream) { \\
    if (a.numel() > 0) { run<T>(a); } \\
}
"""
NOTED = ADD + "// @BE add_x\n"
ADDED = {
    "float32": f"{NOTED}ADD(x, float)\n | {ADD}#define F float\n// @BE add_x\nADD(x, F)"
    " | " + (NOTED + "ADD(x, float)\n").replace("\n", "\r\n"),
    "float64": f"{NOTED}ADD(x, double);\n",
    "uint64": f"{NOTED}ADD(\n  x,\n  unsigned long\n)\n",
    "complex64": f"{NOTED}ADD(x, std::complex<float>)",
    "int32": f"{NOTED.replace('##SUFFIX', ' ## SUFFIX')}ADD(x, int)"
    f" | {NOTED.replace('ADD(', 'ADD(/* ) */ ')}ADD(x, int)",
    "int8": f"{ADD}#define ADD2(S) ADD(S, int8_t)\n// @BE add_x\nADD2(x)",
    "bool": f"{ADD}#define X(...) ADD(__VA_ARGS__)\n// @BE add_x\nX(x, bool)"
    f" | {ADD}#define X(args...) ADD(args)\n// @BE add_x\nX(x, bool)"
    f" | {ADD}namespace a {{\n// @BE add_x\nADD(x, bool)\n}}",
}
EXPANDED = {
    "ret": "#define D(N) void N(BE::Tensor y)\n// @BE f\nD(f) { }"
    " | #define D(N) void N(BE::Tensor y) { g(#N); }\n// @BE f\nD(f)"
    " | #define D(A, B) void A##_##B(BE::Tensor y) {}\n// @BE f_g\nD(f, g)"
    " | #define D(A, B) void A##B(BE::Tensor y) {}\n// @BE f_f32\nD(f, _f32)"
    " | #define D(A) void f##A(BE::Tensor y) {}\n// @BE f\nD()"
    " | #define D(A) void A##f(BE::Tensor y) {}\n// @BE f\nD()"
    " | #define D(A) void f_##A##_g(BE::Tensor y) {}\n// @BE f_32_g\nD(32)"
    " | #define D(N, ...) void N(BE::Tensor y, ##__VA_ARGS__) {}\n// @BE f\nD(f)"
    " | #define API __attribute__((used))\n// @BE f\nAPI void f(BE::Tensor y) {}"
    " | #define TEMPLATE_ARG(...)\n// @BE f\nTEMPLATE_ARG(a, (b, c)) void f(BE::Tensor y) {}"
    " | #define NS namespace a {\n#define END }\nNS\n// @BE f\nvoid f(BE::Tensor y) {}\nEND"
    " | #define A A\n#define B(x) B(x)\n// @BE f\nA B(1) void f(BE::Tensor y) {}"
    # An unknown macro does not hide what follows.
    " | REGISTER(a)\nREGISTER(b, (c))\n// @BE f\nvoid f(BE::Tensor y) {}",
    "ret attr.a:int32 attr.b:bool": "#define D(N, ...) void N(BE::Tensor y, ##__VA_ARGS__) {}\n"
    "// @BE f\nD(f, int a, bool b)",
    "arg ret": "#define IN const BE::Tensor\n// @BE f\nvoid f(IN x, BE::Tensor y) {}",
    "arg ret attr.n:int32": "#define ARGS const BE::Tensor x, BE::Tensor y\n// @BE f\nvoid f(ARGS, int n) {}",
    **{f"arg ret attr.scale:{dtype} stream": texts for dtype, texts in ADDED.items()},
}


@pytest.mark.parametrize(("text", "tokens"), each(EXPANDED))
def test_expansion(spec: Spec, text: str, tokens: str) -> None:
    assert spec.tokens(text) == tokens


def test_macros_that_grow_without_end_are_left_alone(spec: Spec) -> None:
    doubling = "\n".join(f"#define A{i} A{i + 1} A{i + 1}" for i in range(60))
    deep = "\n".join(f"#define B{i} B{i + 1}" for i in range(3000))
    for text in (f"{doubling}\nint x = (A0);", f"{deep}\nint x = (B0);"):
        assert spec.tokens(f"{text}\n// @BE f\nvoid f(BE::Tensor y) {{}}") == "ret"


def test_namespaces_of_macros_and_inside_them(spec: Spec) -> None:
    macros = "#define NS(n) namespace n {\n#define END }\n#define D(N) void N(BE::Tensor y) {}\n#define IN inner\n"
    text = macros + "NS(a)\nvoid f(BE::Tensor y) {}\nD(g)\nEND\nvoid h(BE::Tensor y) {}\nnamespace IN { D(i) }\n"
    assert [entry.call_name for entry in spec.all(text, [*"fghi"])] == ["::a::f", "::a::g", "::h", "::inner::i"]
    text = '#define D(N) namespace ops { extern "C" { void N(BE::Tensor y) { } } }\nD(f)\nvoid g(BE::Tensor y) {}'
    assert [entry.call_name for entry in spec.all(text, ["f", "g"])] == ["::ops::f", "::g"]


@pytest.mark.parametrize(
    ("calls", "entries"),
    [
        ("// @BE add_a\nADD(a, float)\n// @BE add_b\nADD(b, int)\n#undef ADD\nvoid g() {}\n", [("a", 7), ("b", 9)]),
        (
            "#define ALL(T) ADD(a, T) \\\n  ADD(b, T)\n// @BE add_a\n// @BE add_b\n\nALL(float)\n",
            [("a", 11), ("b", 11)],
        ),
        (
            "".join(f"// @BE add_{number}\nADD  (\n  {number}, float)\n" for number in range(200)) + "int last();\n",
            [(str(number), 7 + 3 * number) for number in range(200)],
        ),
    ],
    ids=["two", "one macro of both", "many"],
)
def test_each_call_is_an_entry_point_at_its_line(spec: Spec, calls: str, entries: list[tuple[str, int]]) -> None:
    assert [(entry.name.removeprefix("add_"), entry.line) for entry in spec.all(ADD + calls)] == entries


def test_a_macro_that_is_defined_again(spec: Spec) -> None:
    text = (
        "#define D(N) void N(BE::Tensor y) {}\n// @BE f\nD(f)\n#undef D\n"
        "#define D(N) void N(BE::Tensor y, int n) {}\n// @BE g\nD(g)\n#undef D\n"
    )
    assert [len(entry.params) for entry in spec.all(text)] == [1, 2]


def test_names_that_python_asks_for(spec: Spec) -> None:
    text = ADD + "ADD(a, float)\nADD(b, int)\n"
    assert [entry.name for entry in spec.all(text, ["add_b", "add_a"])] == ["add_b", "add_a"]
    assert spec.one(text, {"add_a": ["arg", "ret", "attr.scale", "stream"]}).line == 6


def test_macros_of_an_earlier_source() -> None:
    sources = [SourceText(name="a.cuh", text=ADD), SourceText(name="b.cu", text="// @BE add_x\nADD(x, float*)\n")]
    with pytest.raises(SpecError, match="is a pointer") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"


def test_an_unknown_macro_with_tokens(spec: Spec) -> None:
    entry = spec.one('#include "macros.h"\n// @BE f_x arg ret attr.n:int32\nDEFINE(x, float)\n')
    assert (entry.call_name, entry.line, len(entry.params)) == ("::f_x", 2, 3)
    assert spec.tokens("DEFINE(x)\n", {"f_x": ["ret"]}) == "ret"


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
