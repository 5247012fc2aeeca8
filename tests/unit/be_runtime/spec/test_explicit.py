"""Explicit specs against the C++ signature, and the `functions` argument."""

from __future__ import annotations

import pytest

from be_runtime.errors import ArgumentError, DuplicateEntryPointError, SpecError
from be_runtime.spec.model import Role
from tests.unit.be_runtime.spec.conftest import Spec


@pytest.mark.parametrize(
    ("params", "given", "tokens"),
    [
        ("const BE::Tensor x, BE::Tensor y, int64_t stream", "arg ret stream", "arg ret stream"),
        ("const BE::Tensor x, BE::Tensor y, int64_t stream", "args rets ctx.stream", "arg ret stream"),
        (
            "BE::Tensor y, int64_t stream, float a, const BE::Tensor x",
            "ret stream attr.a arg",
            "ret stream attr.a:float32 arg",
        ),
        ("BE::Tensor y, float a, int64_t b", "ret attrs.a attr.b:int32", "ret attr.a:float32 attr.b:int32"),
        # The C++ type of a written type is the author's choice if it holds every value, and so is the attribute's name.
        ("BE::Tensor y, double a", "ret attr.a:float32", "ret attr.a:float32"),
        ("BE::Tensor y, double a", "ret attr.alpha:float64", "ret attr.alpha:float64"),
        ("BE::Tensor y, double", "ret attr.alpha:float64", "ret attr.alpha:float64"),
        ("BE::Tensor y, uint16_t bits", "ret attr.bits:bfloat16", "ret attr.bits:bfloat16"),
        ("BE::Tensor y, __half h", "ret attr.h", "ret attr.h:float16"),
        ("BE::Tensor y, std::complex<double> z", "ret attr.z:complex64", "ret attr.z:complex64"),
        ("BE::Tensor y, float n", "ret attr.n:int64", "ret attr.n:int64"),
        ("BE::Tensor y, int16_t n", "ret attr.n:uint8", "ret attr.n:uint8"),
        ("BE::Tensor y, int n", "ret attr.n:bool", "ret attr.n:bool"),
        ("BE::Tensor y, char n", "ret attr.n:int8", "ret attr.n:int8"),
        ("BE::Tensor y, BE::Workspace w, BE::State<P> s", "ret scratch[64] state", "ret scratch[64] state"),
        ("BE::Tensor y, MyWorkspace w, MyState s", "ret scratch state", "ret scratch state"),
        # A tensor that is not const may still only be read.
        ("BE::Tensor x, BE::Tensor y", "arg ret", "arg ret"),
        # Default arguments.
        ("BE::Tensor y, int n = 3", "ret", "ret"),
        ("BE::Tensor y, int n = 3", "ret attr.n", "ret attr.n:int32=3"),
        ("BE::Tensor y, int n = 3, float m = 1", "ret attr.n", "ret attr.n:int32=3"),
        # Streams.
        ("BE::Tensor y, cudaStream_t s", "ret stream", "ret stream"),
        ("BE::Tensor y, int64_t anything", "ret stream", "ret stream"),
        ("BE::Tensor y, uintptr_t s", "ret stream", "ret stream"),
        ("BE::Tensor y, void* s", "ret stream", "ret stream"),
        ("BE::Tensor y, int64_t stream", "ret attr.stream", "ret attr.stream:int64"),
        # Types that only a compiler knows.
        ("MyTensor x, MyTensor y, MyScalar n", "arg ret attr.n:int32", "arg ret attr.n:int32"),
        ("auto x, BE::Tensor y, const auto& n", "arg ret attr.n:int32", "arg ret attr.n:int32"),
        ("Tensor x, Tensor y", "arg ret", "arg ret"),
        ("BE::Tensor y, ...", "ret attr.n:int32", "ret attr.n:int32"),
    ],
)
def test_accepted(spec: Spec, params: str, given: str, tokens: str) -> None:
    text = f"void f({params}) {{}}"
    assert spec.tokens(text, {"f": given.split()}) == tokens
    assert spec.tokens(f"// @BE f {given}\n{text}") == tokens


@pytest.mark.parametrize(
    ("params", "given", "part", "caret"),
    [
        ("BE::Tensor y, int n", "ret", "1 token (ret) but the function has 2 parameters", "int n"),
        ("BE::Tensor y", "ret stream", "2 tokens (ret stream) but the function has 1 parameter", "f"),
        ("", "ret", "but the function has 0 parameters", "f"),
        ("BE::Tensor y, int n = 1", "ret attr.n attr.m:int8", "has 1 to 2 parameters", "f"),
        ("BE::Tensor y, int n, float m = 1", "ret", "has 2 to 3 parameters", "int n"),
        ("BE::Tensor y, BE::Workspace w", "ret attr.w:int8", "which is a BE::Workspace", "BE::Workspace w"),
        ("BE::Tensor y, int w", "ret scratch", "'scratch' is at the position of parameter 'w'", "int w"),
        ("BE::Tensor y, BE::State<P> s", "ret scratch[8]", "which is a BE::State", "BE::State<P> s"),
        ("BE::Tensor y, int n", "ret arg", "'arg' is at the position of parameter 'n', which is a scalar", "int n"),
        ("BE::Tensor y, int n", "arg ret", "'ret' is at the position of parameter 'n', which is a scalar", "int n"),
        ("BE::Tensor y, BE::Tensor x", "ret attr.x:int8", "'attr.x:int8' is at the position", "BE::Tensor x"),
        ("BE::Tensor y, const BE::Tensor& x", "ret stream", "which is a const BE::Tensor", "const BE::Tensor& x"),
        ("BE::Tensor y, BE::Tensor", "ret attr.x:int8", "at the position of a parameter", "BE::Tensor"),
        ("BE::Tensor y, float* x", "ret arg", "which is a pointer", "float* x"),
        ("BE::Tensor y, float* x", "ret attr.x:float32", "which is a pointer", "float* x"),
        ("BE::Tensor y, cudaStream_t s", "ret attr.s:int64", "which is a CUDA stream", "cudaStream_t s"),
        ("BE::Tensor y, int stream", "ret stream", "which is a scalar ('int')", "int stream"),
        ("BE::Tensor y, int a, int b", "ret attr.b attr.a", "tokens follow the order of the C++ call", "int a"),
        ("BE::Tensor y, int a, int b", "ret attr.b:int8 attr.c:int8", "tokens follow the order", "int a"),
        ("BE::Tensor y, float h", "ret attr.h:float16", "can't be passed to parameter 'h'", "float h"),
        ("BE::Tensor y, float z", "ret attr.z:complex64", "can't be passed to parameter 'z'", "float z"),
        ("BE::Tensor y, int32_t n", "ret attr.n:int64", "'int32_t' does not hold every int64", "int32_t n"),
        ("BE::Tensor y, int n", "ret attr.n:uint32", "'int' does not hold every uint32", "int n"),
        ("BE::Tensor y, size_t n", "ret attr.n:int8", "'size_t' does not hold every int8", "size_t n"),
        ("BE::Tensor y, bool n", "ret attr.n:int8", "'bool' does not hold every int8", "bool n"),
        ("BE::Tensor y, int n", "ret attr.n:float32", "'int' does not hold every float32", "int n"),
        ("BE::Tensor y, const float& n", "ret attr.n:float64", "does not hold every float64", "const float& n"),
        ("BE::Tensor y, std::complex<float> n", "ret attr.n:complex128", "every complex128", "std::complex<float> n"),
        ("BE::Tensor y, std::complex<float> n", "ret attr.n:float64", "every float64", "std::complex<float> n"),
        ("const BE::Tensor x, BE::Tensor y", "ret arg", "'ret' makes parameter 'x' a result", "const BE::Tensor x"),
        ("const BE::Tensor& x, BE::Tensor y", "ret ret", "'ret' makes parameter 'x' a result", "const BE::Tensor& x"),
        ("BE::Tensor y, BE::Tensor const", "ret ret", "'ret' makes a parameter a result", "BE::Tensor const"),
        ("BE::Tensor y, int n", "ret attr.m", "'attr.m' names no parameter", "f"),
        ("BE::Tensor y, MyType n", "ret attr.n", "'MyType', which has no mapping", "MyType n"),
        ("BE::Tensor y, float& n", "ret attr.n", "is a reference to a non-const scalar", "float& n"),
    ],
)
def test_contradictions(spec: Spec, params: str, given: str, part: str, caret: str) -> None:
    error = spec.error(f"void f({params}) {{}}", {"f": given.split()})
    assert isinstance(error, SpecError)
    assert error.message.startswith("f: ")
    assert part in error.message
    assert spec.caret(error) == caret


def test_an_annotation_is_underlined_where_python_has_no_place(spec: Spec) -> None:
    assert spec.caret(spec.error("// @BE f ret attr.m\nvoid f(BE::Tensor y, int n) {}")) == "attr.m"
    assert spec.caret(spec.error("// @BE f ret attr.n\nvoid f(BE::Tensor y) {}")) == "attr.n"


def test_hints_say_which_token_fits(spec: Spec) -> None:
    error = spec.error("void f(const BE::Tensor x, BE::Tensor y, int n) {}", {"f": ["arg", "ret", "arg"]})
    assert error.hints == ("token 3 should be 'attr.n:int32'",)
    error = spec.error("void f(BE::Tensor y, int n) {}", {"f": ["ret", "attr.n:int64"]})
    assert error.hints == (
        "token 2 should be 'attr.n:int32'",
        "or make the parameter a type that holds every int64",
    )
    error = spec.error("void f(BE::Tensor y, int value) {}", {"f": ["ret", "attr.valeu"]})
    assert error.hints[0] == "did you mean 'attr.value'?"


def test_a_const_result_is_an_order_that_may_be_swapped(spec: Spec) -> None:
    text = "void f(const BE::Tensor x, BE::Tensor y, const BE::Tensor z) {}"
    must = "a result must not be const: take it as a BE::Tensor"
    error = spec.error(text, {"f": ["arg", "ret", "ret"]})
    assert error.hints == ("token 3 should be 'arg'", must)
    error = spec.error(text, {"f": ["ret", "arg", "arg"]})
    assert error.hints[:2] == ("token 1 should be 'arg'", must)
    assert "the order may be swapped" in error.hints[2]


def test_defaults_may_stand_in_the_prototype(spec: Spec) -> None:
    text = "void f(BE::Tensor y, int n = 3);\nvoid f(BE::Tensor y, int n) {}"
    assert spec.tokens(text, {"f": ["ret"]}) == "ret"


def test_parameters_carry_their_cpp_names(spec: Spec) -> None:
    entry = spec.one("void f(const BE::Tensor x, BE::Tensor, int64_t s) {}", {"f": ["arg", "ret", "stream"]})
    assert [(param.role, param.name) for param in entry.params] == [
        (Role.ARG, "x"),
        (Role.RET, ""),
        (Role.STREAM, "s"),
    ]


def test_what_a_call_can_do_is_not_refused(spec: Spec) -> None:
    text, tokens = "template <class T> void f(BE::Tensor y, T n) {}", ["ret", "attr.n:int32"]
    assert spec.tokens(text, {"f": tokens}) == " ".join(tokens)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("template <class T> void f(BE::Tensor y) {}", "it is a template"),
        ("__global__ void f(BE::Tensor y) {}", "it is a CUDA kernel"),
        ("struct S { void f(BE::Tensor y) {} };", "it is a member of S"),
    ],
)
def test_what_no_call_can_do_is_refused(spec: Spec, text: str, part: str) -> None:
    assert part in spec.error(text, {"f": ["ret"]}).message


@pytest.mark.parametrize(
    ("functions", "part"),
    [
        ("f", "functions must be a dict"),
        (b"f", "functions must be a dict"),
        (3, "functions must be a dict"),
        ({"f"}, "functions must be a dict"),
        ([3], "functions holds the name 3"),
        ([["f"]], "functions holds the name ['f']"),
        ({3: ["ret"]}, "functions holds the name 3"),
        ({"f": "arg ret"}, "functions['f'] must be a list of tokens, not 'arg ret'"),
        ({"f": None}, "functions['f'] must be a list of tokens, not None"),
        ({"f": 3}, "functions['f'] must be a list"),
        ({"f": {"ret"}}, "functions['f'] must be a list"),
        ({"f": ["ret", 3]}, "functions['f'] holds 3"),
    ],
)
def test_bad_functions_arguments(spec: Spec, functions: object, part: str) -> None:
    error = spec.error("void f(BE::Tensor y) {}", functions)
    assert isinstance(error, ArgumentError)
    assert part in error.message


@pytest.mark.parametrize("name", ["", "a b", "1f", "a/b", "a::b", "f()", "é"])
def test_names_that_are_no_identifiers(spec: Spec, name: str) -> None:
    for functions in ([name], {name: ["ret"]}):
        error = spec.error("void f(BE::Tensor y) {}", functions)
        assert isinstance(error, SpecError)
        assert f"{name!r} is not an identifier" in error.message


def test_an_empty_spec_has_no_output(spec: Spec) -> None:
    assert "f: the arg_spec has no 'ret'" in spec.error("void f(BE::Tensor y) {}", {"f": []}).message


def test_a_name_listed_twice(spec: Spec) -> None:
    assert isinstance(spec.error("void f(BE::Tensor y) {}", ["f", "f"]), DuplicateEntryPointError)


def test_the_order_is_that_of_functions(spec: Spec) -> None:
    text = "void f(BE::Tensor y) {}\nvoid g(BE::Tensor y) {}"
    assert [entry.name for entry in spec.all(text, {"g": ["ret"], "f": ["ret"]})] == ["g", "f"]
    assert [entry.name for entry in spec.all(text, ("g", "f"))] == ["g", "f"]
