"""Entry points that macros generate."""

from __future__ import annotations

import pytest

from be_runtime.errors import EntryPointNotFoundError, SpecError
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


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (ADD + "// @BE add_x\nADD(x, float)\n", "arg ret attr.scale:float32 stream"),
        (ADD + "// @BE add_x\nADD(x, double);\n", "arg ret attr.scale:float64 stream"),
        (ADD + "// @BE add_x\nADD(\n  x,\n  unsigned long\n)\n", "arg ret attr.scale:uint64 stream"),
        (ADD + "// @BE add_x\nADD(x, std::complex<float>)", "arg ret attr.scale:complex64 stream"),
        (ADD.replace("\n", "\r\n") + "// @BE add_x\r\nADD(x, float)\r\n", "arg ret attr.scale:float32 stream"),
        (ADD.replace("##SUFFIX", " ## SUFFIX") + "// @BE add_x\nADD(x, int)", "arg ret attr.scale:int32 stream"),
        (ADD.replace("ADD(", "ADD(/* ) */ ") + "// @BE add_x\nADD(x, int)", "arg ret attr.scale:int32 stream"),
        (ADD + "#define ADD2(S) ADD(S, int8_t)\n// @BE add_x\nADD2(x)", "arg ret attr.scale:int8 stream"),
        (ADD + "#define F float\n// @BE add_x\nADD(x, F)", "arg ret attr.scale:float32 stream"),
        (ADD + "#define X(...) ADD(__VA_ARGS__)\n// @BE add_x\nX(x, bool)", "arg ret attr.scale:bool stream"),
        (ADD + "#define X(args...) ADD(args)\n// @BE add_x\nX(x, bool)", "arg ret attr.scale:bool stream"),
        (ADD + "namespace a {\n// @BE add_x\nADD(x, bool)\n}", "arg ret attr.scale:bool stream"),
        ("#define D(N) void N(BE::Tensor y)\n// @BE f\nD(f) { }", "ret"),
        ("#define D(N) void N(BE::Tensor y) { g(#N); }\n// @BE f\nD(f)", "ret"),
        ("#define D(A, B) void A##_##B(BE::Tensor y) {}\n// @BE f_g\nD(f, g)", "ret"),
        ("#define D(A, B) void A##B(BE::Tensor y) {}\n// @BE f_f32\nD(f, _f32)", "ret"),
        ("#define D(A) void f##A(BE::Tensor y) {}\n// @BE f\nD()", "ret"),
        ("#define D(A) void A##f(BE::Tensor y) {}\n// @BE f\nD()", "ret"),
        ("#define D(A) void f_##A##_g(BE::Tensor y) {}\n// @BE f_32_g\nD(32)", "ret"),
        ("#define D(N, ...) void N(BE::Tensor y, ##__VA_ARGS__) {}\n// @BE f\nD(f)", "ret"),
        ("#define D(N, ...) void N(BE::Tensor y, ##__VA_ARGS__) {}\n// @BE f\nD(f, int a, bool b)",
         "ret attr.a:int32 attr.b:bool"),
        ("#define IN const BE::Tensor\n// @BE f\nvoid f(IN x, BE::Tensor y) {}", "arg ret"),
        ("#define ARGS const BE::Tensor x, BE::Tensor y\n// @BE f\nvoid f(ARGS, int n) {}", "arg ret attr.n:int32"),
        ("#define API __attribute__((used))\n// @BE f\nAPI void f(BE::Tensor y) {}", "ret"),
        ("#define TEMPLATE_ARG(...)\n// @BE f\nTEMPLATE_ARG(a, (b, c)) void f(BE::Tensor y) {}", "ret"),
        ("#define NS namespace a {\n#define END }\nNS\n// @BE f\nvoid f(BE::Tensor y) {}\nEND", "ret"),
        ("#define A A\n#define B(x) B(x)\n// @BE f\nA B(1) void f(BE::Tensor y) {}", "ret"),
    ],
)  # fmt: skip
def test_expansion(spec: Spec, text: str, tokens: str) -> None:
    assert spec.tokens(text) == tokens


def test_namespaces_of_macros(spec: Spec) -> None:
    macros = "#define NS(n) namespace n {\n#define END }\n#define D(N) void N(BE::Tensor y) {}\n#define IN inner\n"
    text = macros + "NS(a)\nvoid f(BE::Tensor y) {}\nD(g)\nEND\nvoid h(BE::Tensor y) {}\nnamespace IN { D(i) }\n"
    entries = spec.all(text, ["f", "g", "h", "i"])
    assert [entry.call_name for entry in entries] == ["::a::f", "::a::g", "::h", "::inner::i"]


def test_a_namespace_inside_a_macro(spec: Spec) -> None:
    text = '#define D(N) namespace ops { extern "C" { void N(BE::Tensor y) { } } }\nD(f)\nvoid g(BE::Tensor y) {}'
    assert [entry.call_name for entry in spec.all(text, ["f", "g"])] == ["::ops::f", "::g"]


def test_each_call_is_an_entry_point_at_its_line(spec: Spec) -> None:
    text = ADD + "// @BE add_a\nADD(a, float)\n// @BE add_b\nADD(b, int)\n#undef ADD\nvoid g() {}\n"
    assert [(entry.name, entry.line) for entry in spec.all(text)] == [("add_a", 7), ("add_b", 9)]


def test_many_calls_in_a_row(spec: Spec) -> None:
    calls = "".join(f"// @BE add_{number}\nADD  (\n  {number}, float)\n" for number in range(200))
    entries = spec.all(ADD + calls + "int last();\n")
    assert [(entry.name, entry.line) for entry in entries] == [(f"add_{n}", 7 + 3 * n) for n in range(200)]


def test_several_annotations_above_one_call(spec: Spec) -> None:
    text = ADD + "#define ALL(T) ADD(a, T) \\\n  ADD(b, T)\n// @BE add_a\n// @BE add_b\n\nALL(float)\n"
    assert [(entry.name, entry.line) for entry in spec.all(text)] == [("add_a", 11), ("add_b", 11)]


def test_a_macro_that_is_defined_again(spec: Spec) -> None:
    text = (
        "#define D(N) void N(BE::Tensor y) {}\n// @BE f\nD(f)\n#undef D\n"
        "#define D(N) void N(BE::Tensor y, int n) {}\n// @BE g\nD(g)\n#undef D\n"
    )
    assert [len(entry.params) for entry in spec.all(text)] == [1, 2]


def test_a_macro_of_a_dead_branch_is_not_defined(spec: Spec) -> None:
    text = "#if 0\n#define D(N) void N(BE::Tensor y) {}\n#endif\n// @BE f\nD(f)\n"
    assert "D is not defined" in spec.error(text).message


def test_names_that_python_asks_for(spec: Spec) -> None:
    text = ADD + "ADD(a, float)\nADD(b, int)\n"
    assert [entry.name for entry in spec.all(text, ["add_b", "add_a"])] == ["add_b", "add_a"]
    assert spec.one(text, {"add_a": ["arg", "ret", "attr.scale", "stream"]}).line == 6
    assert "add_a" in spec.error(text, ["add_c"]).hints[0]


def test_macros_of_an_earlier_source() -> None:
    sources = [SourceText(name="a.cuh", text=ADD), SourceText(name="b.cu", text="// @BE add_x\nADD(x, float*)\n")]
    with pytest.raises(SpecError, match="is a pointer") as caught:
        discover(sources, None)
    assert caught.value.span is not None
    assert caught.value.span.file == "b.cu"


def test_the_caret_points_into_the_macro(spec: Spec) -> None:
    error = spec.error("#define D(N) \\\n  void N(BE::Tensor y, MyT x) {}\n// @BE f\nD(f)\n")
    assert error.span is not None
    assert (error.span.line, spec.caret(error)) == (2, "MyT x")


def test_the_caret_points_at_the_argument(spec: Spec) -> None:
    error = spec.error(ADD + "// @BE add_x\nADD(x, MyT)\n")
    assert error.span is not None
    assert (error.span.line, spec.caret(error)) == (7, "MyT")


UNKNOWN = '#include "macros.h"\n// @BE f_x {}\nDEFINE(x, float)\n'


def test_an_unknown_macro_needs_tokens(spec: Spec) -> None:
    error = spec.error(UNKNOWN.format(""))
    assert isinstance(error, EntryPointNotFoundError)
    assert "DEFINE is not defined" in error.message
    assert "// @BE f_x" in error.hints[0]
    assert spec.caret(error) == "DEFINE"


def test_an_unknown_macro_with_tokens(spec: Spec) -> None:
    entry = spec.one(UNKNOWN.format("arg ret attr.n:int32"))
    assert (entry.call_name, entry.line, len(entry.params)) == ("::f_x", 2, 3)
    assert spec.tokens("DEFINE(x)\n", {"f_x": ["ret"]}) == "ret"


def test_an_unknown_macro_gives_no_types(spec: Spec) -> None:
    error = spec.error(UNKNOWN.format("ret attr.n"))
    assert "the type of 'attr.n' is unknown" in error.message
    assert spec.caret(error) == "attr.n"


def test_an_unknown_macro_does_not_hide_what_follows(spec: Spec) -> None:
    assert spec.tokens("REGISTER(a)\nREGISTER(b, (c))\n// @BE f\nvoid f(BE::Tensor y) {}") == "ret"


def test_macros_that_grow_without_end_are_left_alone(spec: Spec) -> None:
    doubling = "\n".join(f"#define A{i} A{i + 1} A{i + 1}" for i in range(60))
    deep = "\n".join(f"#define B{i} B{i + 1}" for i in range(3000))
    assert spec.tokens(f"{doubling}\nint x = (A0);\n// @BE f\nvoid f(BE::Tensor y) {{}}") == "ret"
    assert spec.tokens(f"{deep}\nint x = (B0);\n// @BE f\nvoid f(BE::Tensor y) {{}}") == "ret"


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
