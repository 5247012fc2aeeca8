"""Which function a name means, and how generated code calls it."""

from __future__ import annotations

import contextlib

import pytest

from be_runtime.errors import DuplicateEntryPointError, EntryPointNotFoundError, SpecError
from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from tests.unit.be_runtime.spec.conftest import Spec

P = "const BE::Tensor x, BE::Tensor y"


@pytest.mark.parametrize(
    ("text", "call_name"),
    [
        (f"void f({P}) {{}}", "::f"),
        (f"void\nf\n(\n{P}\n)\n{{}}", "::f"),
        (f"void f({P})\r\n{{\r\n}}\r\n", "::f"),
        (f"static void f({P}) {{}}", "::f"),
        (f"inline void f({P}) noexcept {{}}", "::f"),
        (f'extern "C" void f({P}) {{}}', "::f"),
        (f'extern "C" {{ void f({P}) {{}} }}', "::f"),
        (f'extern "C" {{\nint g();\nvoid f({P}) {{}}\n}}', "::f"),
        (f"__host__ void f({P}) {{}}", "::f"),
        (f"__host__ __device__ void f({P}) {{}}", "::f"),
        (f"[[nodiscard]] void f({P}) {{}}", "::f"),
        (f'[[deprecated("f(x)")]] static inline void f({P}) {{}}', "::f"),
        (f'__attribute__((visibility("default"))) void f({P}) {{}}', "::f"),
        (f"void __attribute__((noinline)) f({P}) {{}}", "::f"),
        (f"void f({P}) __attribute__((hot)) {{}}", "::f"),
        (f"MY_API void f({P}) {{}}", "::f"),
        (f"MY_API(1) void f({P}) {{}}", "::f"),
        (f"auto f({P}) -> void {{}}", "::f"),
        (f"void ::f({P}) {{}}", "::f"),
        (f"namespace a {{ void f({P}) {{}} }}", "::a::f"),
        (f"namespace a {{ namespace b {{\nvoid f({P}) {{}}\n}} }}", "::a::b::f"),
        (f"namespace a::b {{ void f({P}) {{}} }}", "::a::b::f"),
        (f"namespace a::inline b {{ void f({P}) {{}} }}", "::a::b::f"),
        (f"inline namespace a {{ void f({P}) {{}} }}", "::a::f"),
        (f"namespace [[deprecated]] a {{ void f({P}) {{}} }}", "::a::f"),
        (f"namespace {{ void f({P}) {{}} }}", "::f"),
        (f"namespace a {{ namespace {{ void f({P}) {{}} }} }}", "::a::f"),
        (f"namespace a {{ void g() {{ if (1) {{ }} }} }} void f({P}) {{}}", "::f"),
        (f"namespace a {{ void f({P}); }} void a::f({P}) {{}}", "::a::f"),
        (f"struct S {{ int a; void g() {{}} }}; void f({P}) {{}}", "::f"),
        (f"struct alignas(16) S : B<int> {{ int a; }}; void f({P}) {{}}", "::f"),
        (f"enum class E {{ A, B }}; int t[] = {{1, 2}}; void f({P}) {{}}", "::f"),
        (f"template <class T> struct S {{ }}; template <typename T> void g(T t) {{}} void f({P}) {{}}", "::f"),
        (f"struct R g() {{ return {{}}; }} void f({P}) {{}}", "::f"),
        (f"using T = int; typedef int U; static_assert(sizeof(int) == 4); void f({P}) {{}}", "::f"),
        (f'void g() {{ char c = \'}}\'; auto s = "}}"; auto r = R"(}})"; /* }} */ }} void f({P}) {{}}', "::f"),
        (f"int x = 1'000; char c = '{{'; void f({P}) {{}}", "::f"),
        (f"#ifdef X\nvoid g() {{\n#else\nvoid g(int) {{\n#endif\n}}\nvoid f({P}) {{}}", "::f"),
        # The name elsewhere.
        (f"// void f(int a) {{\n/* void f(float b); */\nvoid f({P}) {{}}", "::f"),
        (f"// f(1)\nvoid g() {{ f(1, 2); }}\nvoid f({P}) {{}}", "::f"),
        (f"void g() {{ void f(int); }}\nvoid f({P}) {{}}", "::f"),
        (f"auto k = f(1);\nvoid f({P}) {{}}", "::f"),
        (f"void f({P}) {{}}\nstatic int once = (f(1, 2), 0);", "::f"),
        (f"int g(int n = f(3));\nvoid f({P}) {{}}", "::f"),
        (f'const char* s = "void f(int n) {{";\nvoid f({P}) {{}}', "::f"),
        (f"#if 0\nvoid f(int n) {{}}\n#endif\nvoid f({P}) {{}}", "::f"),
        (f"struct S {{ void f(int n) {{}} }};\nvoid f({P}) {{}}", "::f"),
        (f"void ff(int a) {{}} void g_f(int b) {{}} void f({P}) {{}}", "::f"),
        (f"typedef void f(int);\nvoid f({P}) {{}}", "::f"),
        # A prototype, if there is no definition.
        (f"void f({P});", "::f"),
        (f"void f({P}); void f({P}) {{}}", "::f"),
        (f"void f({P}) {{}} void f({P});", "::f"),
    ],
)
def test_the_function_is_found(spec: Spec, text: str, call_name: str) -> None:
    assert spec.tokens(text, ["f"]) == "arg ret"
    assert spec.one(text, ["f"]).call_name == call_name
    assert spec.one(text, {"f": ["arg", "ret"]}).call_name == call_name


def test_the_line_is_that_of_the_definition(spec: Spec) -> None:
    assert spec.one(f"void f({P});\n\nstatic\nvoid f({P})\n{{}}", ["f"]).line == 4


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"template <typename T> void f({P}, T t) {{}}", "it is a template"),
        (f"template <> void f<int>({P}) {{}} template <class T> void f({P}) {{}}", "it is a template"),
        (f"struct S {{ void f({P}) {{}} }};", "it is a member of S"),
        (f"class S final : public B {{ public: static void f({P}) {{}} }};", "it is a member of S"),
        (f"__global__ void f({P}) {{}}", "it is a CUDA kernel"),
        (f"__global__ void __launch_bounds__(256) f({P}) {{}}", "it is a CUDA kernel"),
        (f"__device__ void f({P}) {{}}", "it is a __device__ function"),
    ],
)
def test_functions_that_are_no_entry_points(spec: Spec, text: str, reason: str) -> None:
    error = spec.error(text, ["f"])
    assert isinstance(error, SpecError)
    assert error.message.startswith("f: ")
    assert reason in error.message
    assert spec.caret(error) == "f"


@pytest.mark.parametrize(
    ("text", "returns"),
    [
        (f"static int f({P}) {{}}", "int"),
        (f"void* f({P}) {{}}", "void*"),
        (f"BE::Tensor f({P}) {{}}", "BE::Tensor"),
        (f"MY_API const BE::Tensor& f({P}) {{}}", "MY_API const BE::Tensor&"),
        (f"using namespace BE; Tensor f({P}) {{}}", "Tensor"),
        (f"auto f({P}) -> unsigned long {{}}", "unsigned long"),
        (f"#define DEFINE(T) T f({P}) {{}}\nDEFINE(int64_t)", "int64_t"),
    ],
)
@pytest.mark.parametrize("tokens", [None, ["arg", "ret"]])
def test_an_entry_point_returns_nothing(spec: Spec, text: str, returns: str, tokens: list[str] | None) -> None:
    error = spec.error(text, ["f"] if tokens is None else {"f": tokens})
    assert f"it returns {returns!r}, but an entry point returns void" in error.message
    assert spec.caret(error) == returns
    assert "BE_CHECK" in error.hints[0]


@pytest.mark.parametrize("returns", ["std::vector<int>", "Alias", "auto", "std::enable_if_t<(sizeof(int) > 2)>"])
def test_what_may_be_void_is_left_to_the_compiler(spec: Spec, returns: str) -> None:
    text = f"{returns} f({P}) {{}}"
    assert "an entry point returns void" in spec.error(text, ["f"]).message
    assert spec.tokens(text, {"f": ["arg", "ret"]}) == "arg ret"


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("void ff(BE::Tensor y) {}", "did you mean 'ff'?"),
        ("// void f(int n)", "comment"),
        ("#if 0\nvoid f(BE::Tensor y) {}\n#endif", "disabled"),
        ("void g() { f(1); }", "functions in the source: g"),
        ("int k = f(1);", "is not declared"),
        ("typedef void f(int);", "is not declared"),
        ("#define f(x) void g(x)\nf(BE::Tensor y) {}", "functions in the source: g"),
        ("", ""),
    ],
)
def test_a_function_that_is_not_there(spec: Spec, text: str, hint: str) -> None:
    for functions in (["f"], {"f": ["ret"]}):
        error = spec.error(text, functions)
        assert isinstance(error, EntryPointNotFoundError)
        assert error.message.startswith("f: no function of this name in k.cu")
        assert hint in "\n".join(error.hints)


OVERLOADS = "void f(BE::Tensor y) {}\nvoid f(BE::Tensor y, int n) {}\n"


def test_overloads_can_not_be_inferred(spec: Spec) -> None:
    error = spec.error(OVERLOADS, ["f"])
    assert "k.cu:1:6" in error.message
    assert "k.cu:2:6" in error.message


def test_a_spec_tells_overloads_apart(spec: Spec) -> None:
    assert spec.one(OVERLOADS, {"f": ["ret"]}).line == 1
    assert spec.one(OVERLOADS, {"f": ["ret", "attr.n"]}).line == 2
    assert "fits none" in spec.error(OVERLOADS, {"f": ["arg", "ret", "stream"]}).message


def test_namespaces_are_overloads_too(spec: Spec) -> None:
    error = spec.error(
        "namespace a { void f(BE::Tensor y) {} } namespace b { void f(BE::Tensor y) {} }", {"f": ["ret"]}
    )
    assert "::a::f" in error.message
    assert "::b::f" in error.message


def test_one_signature_in_two_branches_is_one_function(spec: Spec) -> None:
    text = "#ifdef X\nvoid f(BE::Tensor y) { a(); }\n#else\nvoid f(BE::Tensor y) { b(); }\n#endif"
    assert spec.tokens(text, ["f"]) == "ret"


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
