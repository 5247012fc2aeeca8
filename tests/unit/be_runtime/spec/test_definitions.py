"""Which function a name means, and how generated code calls it."""

from __future__ import annotations

import contextlib
import re

import pytest

from be_runtime.errors import DuplicateEntryPointError, SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec, each

P = "const BE::Tensor x, BE::Tensor y"
FOUND = {
    # P stands for the parameters.
    "::f": "void f(P) {} | void\nf\n(\nP\n)\n{} | void f(P)\r\n{\r\n}\r\n | static void f(P) {}"
    ' | inline void f(P) noexcept {} | extern "C" void f(P) {} | extern "C" { void f(P) {} }'
    ' | extern "C" {\nint g();\nvoid f(P) {}\n} | __host__ void f(P) {} | __host__ __device__ void f(P) {}'
    ' | [[nodiscard]] void f(P) {} | [[deprecated("f(x)")]] static inline void f(P) {}'
    ' | __attribute__((visibility("default"))) void f(P) {} | void __attribute__((noinline)) f(P) {}'
    " | void f(P) __attribute__((hot)) {} | MY_API void f(P) {} | MY_API(1) void f(P) {} | auto f(P) -> void {}"
    " | void ::f(P) {} | namespace { void f(P) {} } | namespace a { void g() { if (1) { } } } void f(P) {}"
    " | struct S { int a; void g() {} }; void f(P) {} | struct alignas(16) S : B<int> { int a; }; void f(P) {}"
    " | enum class E { A, B }; int t[] = {1, 2}; void f(P) {} | struct R g() { return {}; } void f(P) {}"
    " | template <class T> struct S { }; template <typename T> void g(T t) {} void f(P) {}"
    " | using T = int; typedef int U; static_assert(sizeof(int) == 4); void f(P) {}"
    ' | void g() { char c = \'}\'; auto s = "}"; auto r = R"(})"; /* } */ } void f(P) {}'
    " | int x = 1'000; char c = '{'; void f(P) {} | #ifdef X\nvoid g() {\n#else\nvoid g(int) {\n#endif\n}\nvoid f(P) {}"
    # The name elsewhere.
    " | // void f(int a) {\n/* void f(float b); */\nvoid f(P) {} | // f(1)\nvoid g() { f(1, 2); }\nvoid f(P) {}"
    " | void g() { void f(int); }\nvoid f(P) {} | auto k = f(1);\nvoid f(P) {} | int g(int n = f(3));\nvoid f(P) {}"
    ' | void f(P) {}\nstatic int once = (f(1, 2), 0); | const char* s = "void f(int n) {";\nvoid f(P) {}'
    " | #if 0\nvoid f(int n) {}\n#endif\nvoid f(P) {} | struct S { void f(int n) {} };\nvoid f(P) {}"
    " | void ff(int a) {} void g_f(int b) {} void f(P) {} | typedef void f(int);\nvoid f(P) {}"
    # A prototype, if there is no definition.
    " | void f(P); | void f(P); void f(P) {} | void f(P) {} void f(P);"
    # One signature in two branches is one function.
    " | #ifdef X\nvoid f(P) { a(); }\n#else\nvoid f(P) { b(); }\n#endif",
    "::a::f": "namespace a { void f(P) {} } | inline namespace a { void f(P) {} }"
    " | namespace [[deprecated]] a { void f(P) {} } | namespace a { namespace { void f(P) {} } }"
    " | namespace a { void f(P); } void a::f(P) {}",
    "::a::b::f": "namespace a { namespace b {\nvoid f(P) {}\n} } | namespace a::b { void f(P) {} }"
    " | namespace a::inline b { void f(P) {} }",
}


@pytest.mark.parametrize(("text", "call_name"), each(FOUND))
def test_the_function_is_found(spec: Spec, text: str, call_name: str) -> None:
    text = re.sub(r"\bP\b", P, text)
    assert spec.tokens(text, ["f"]) == "arg ret"
    assert spec.one(text, ["f"]).call_name == call_name
    assert spec.one(text, {"f": ["arg", "ret"]}).call_name == call_name


@pytest.mark.parametrize("returns", ["std::vector<int>", "Alias", "auto", "std::enable_if_t<(sizeof(int) > 2)>"])
def test_what_may_be_void_is_left_to_the_compiler(spec: Spec, returns: str) -> None:
    text = f"{returns} f({P}) {{}}"
    with pytest.raises(SpecError, match="an entry point returns void"):
        spec.one(text, ["f"])
    assert spec.tokens(text, {"f": ["arg", "ret"]}) == "arg ret"


def test_a_definition_has_its_line_and_a_spec_tells_overloads_apart(spec: Spec) -> None:
    assert spec.one(f"void f({P});\n\nstatic\nvoid f({P})\n{{}}", ["f"]).line == 4
    overloads = "void f(BE::Tensor y) {}\nvoid f(BE::Tensor y, int n) {}\n"
    assert spec.one(overloads, {"f": ["ret"]}).line == 1
    assert spec.one(overloads, {"f": ["ret", "attr.n"]}).line == 2


def test_two_sources_that_define_one_name() -> None:
    sources = [SourceText(name=name, text="void f(BE::Tensor y) {}") for name in ("a.cu", "b.cu")]
    with pytest.raises(DuplicateEntryPointError, match=r"first at a\.cu:1:6"):
        discover(sources, ["f"])


@pytest.mark.parametrize(
    "text", ["void f(BE::Tensor y", "void f(", "void f(BE::Tensor y) {", "}}}} void f(BE::Tensor y) {}", "f(", "void f"]
)
def test_unfinished_code_raises_nothing_unexpected(text: str) -> None:
    with contextlib.suppress(SpecError):
        discover([SourceText(name="k.cu", text=text)], ["f"])
