"""Attributes beyond numbers, and parameters that take no array or several: inferred, completed, and compared."""

from __future__ import annotations

import pytest

from be_runtime.errors import SpecError
from tests.unit.be_runtime.spec.conftest import Spec

MODE = "enum class Mode { fast, slow = 3, };"
STEP = "struct Step { float rate = 0.5; int n; };"


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        ("std::string_view s", "attr.s:string"),
        (
            "const std::string& s, ::std::string_view t, string_view const u",
            "attr.s:string attr.t:string attr.u:string",
        ),
        ("BE::Span<const float> v", "attr.v:float32[]"),
        ("const BE::Span<long const>& v, BE::Span<const std::complex<double>> w", "attr.v:int64[] attr.w:complex128[]"),
        ("::BE::Span<const unsigned char> v", "attr.v:uint8[]"),
        ("BE::DType t, const BE::DType& u", "attr.t:dtype attr.u:dtype"),
        ("std::optional<BE::Tensor> a", "arg?"),
        ("const std::optional<const BE::Tensor>& a, std::optional< ::BE::Tensor > b", "arg? arg?"),
        ("const BE::Tensor* a, BE::Tensor const *b, const ::BE::Tensor* const c", "arg? arg? arg?"),
        ("const BE::Tensors xs, BE::Tensors ys", "arg... ret..."),
        ("const BE::Tensors& xs, BE::Tensors& ys", "arg... ret..."),
    ],
)
def test_signatures(spec: Spec, params: str, tokens: str) -> None:
    assert spec.params(f"BE::Tensor y, {params}") == f"ret {tokens}"
    short = params.replace("::BE::", "").replace("BE::", "")
    assert spec.params(f"Tensor y, {short}", before="using namespace BE;") == f"ret {tokens}"


@pytest.mark.parametrize(
    ("definitions", "params", "tokens"),
    [
        (MODE, "Mode m", "attr.m:enum(fast slow)"),
        ("namespace a { enum Mode : std::uint8_t { fast }; }", "const a::Mode& m", "attr.m:enum(fast)"),
        ("enum Mode { fast [[deprecated]], slow = (1, 2) };", "enum Mode m", "attr.m:enum(fast slow)"),
        (MODE + STEP, "Step s, Mode m", "attr.s:{rate:float32=0.5 n:int32} attr.m:enum(fast slow)"),
        ("struct S { Mode m = Mode::slow; BE::DType t{BE::DType::Int8}; };" + MODE, "S s",
         "attr.s:{m:enum(fast slow)=slow t:dtype=int8}"),
        ('struct S { std::string_view a = "b"; BE::Span<const int> v; bool c{true}; double d = f(); };', "const S s",
         "attr.s:{a:string=b v:int32[] c:bool=true d:float64}"),
        ('struct S { std::string_view a = "b c"; std::string b = "}"; };', "const S s", "attr.s:{a:string b:string}"),
        ("struct S { /* # */ int n; };\n#if 0\nstruct S { int m; };\n#endif", "S s", None),
        ("struct S {\n  int n;  // the number\n};", "S s", "attr.s:{n:int32}"),
    ],
)  # fmt: skip
def test_types_that_the_source_defines(spec: Spec, definitions: str, params: str, tokens: str | None) -> None:
    text = f"{definitions}\n// @BE f\nvoid f(BE::Tensor y, {params}) {{}}"
    if tokens is None:
        assert "attr.s:{a:float32 b:int32} for a structure" in spec.error(text).hints[0]
    else:
        assert spec.tokens(text) == f"ret {tokens}"


@pytest.mark.parametrize(
    ("definitions", "param"),
    [
        ("", "Mode m"),
        ("enum Mode { X(a) };", "Mode m"),
        ("enum Mode {};", "Mode m"),
        (MODE + "namespace b { enum Mode { c }; }", "Mode m"),
        ("#define NAMES a, b\nenum Mode { NAMES };", "Mode m"),
        ("enum Mode {\n a,\n#ifdef X\n b\n#endif\n};", "Mode m"),
        (MODE, "Mode& m"),
        (MODE, "std::vector<Mode> m"),
        *((f"struct Mode {body};", "Mode m") for body in (
            "{ int n }", "{}", "{ int* n; }", "{ int n[3]; }", "{ int a, b; }", "{ int n : 3; }", "{ Mode(); int n; }",
            "{ public: int n; }", "{ const int n; }", "{ static int n; }", "{ struct { int n; } m; }", "{ int& n; }",
            "{ Other n; }", "{ Mode n; }", "{ int; }", "{ std::string s; int n(); }", ": Base { int n; }",
            "{ BE::Tensor x; }", "{ std::complex<float> const z; }",
        )),
    ],
)  # fmt: skip
def test_types_that_are_not_certain_need_their_tokens(spec: Spec, definitions: str, param: str) -> None:
    error = spec.error(f"{definitions}\n// @BE f\nvoid f(BE::Tensor y, {param}) {{}}")
    assert isinstance(error, SpecError)
    assert "has no mapping" in error.message
    assert "attr.m:enum(a b) for an enumeration" in error.hints[0]
    token = "attr.m:enum(a b)" if "enum" in definitions else "attr.m:{n:int32}"
    assert spec.tokens(f"{definitions}\n// @BE f ret {token}\nvoid f(BE::Tensor y, {param}) {{}}") == f"ret {token}"


@pytest.mark.parametrize(
    ("param", "token"),
    [
        ("float a = 1.0f", "attr.a:float32=1.0"),
        ("float a = 1", "attr.a:float32=1.0"),
        ("double a = 0.1f", "attr.a:float64=0.10000000149011612"),
        ("double a = -.5e-3", "attr.a:float64=-0.0005"),
        ("float a = 1e39", "attr.a:float32"),
        ("double a = 1e400", "attr.a:float64"),
        ("float a = infinity", "attr.a:float32"),
        ("float a = 1.0L", "attr.a:float32"),
        ("int a = -3", "attr.a:int32=-3"),
        ("int a = +1'0", "attr.a:int32=10"),
        ("int a = 010", "attr.a:int32=8"),
        ("int a = 0xFF", "attr.a:int32=255"),
        ("int a = 0b101u", "attr.a:int32=5"),
        ("int a = 09", "attr.a:int32"),
        ("int a = 1.0", "attr.a:int32"),
        ("int8_t a = 200", "attr.a:int8"),
        ("unsigned a = -1", "attr.a:uint32"),
        ("int a = -1u", "attr.a:int32"),
        ("uint64_t a = 18446744073709551615ull", "attr.a:uint64=18446744073709551615"),
        ("uint64_t a = 18446744073709551615u", "attr.a:uint64=18446744073709551615"),
        ("bool a = true", "attr.a:bool=true"),
        ("bool a = 0", "attr.a:bool=0"),
        ("bool a = not true", "attr.a:bool"),
        ("int a = 2 + 1", "attr.a:int32"),
        ("int a = (2)", "attr.a:int32"),
        ("int a = kOne", "attr.a:int32"),
        ("int a = 'a'", "attr.a:int32"),
        ("std::complex<float> a = 1", "attr.a:complex64"),
        ('std::string_view a = "sum"', "attr.a:string=sum"),
        ('std::string_view a = ""', "attr.a:string="),
        (r'std::string_view a = "\n"', "attr.a:string"),
        ('std::string_view a = "x" "y"', "attr.a:string"),
        ("std::string_view a = kName", "attr.a:string"),
        ("BE::Span<const int> a = {}", "attr.a:int32[]"),
        ("BE::DType a = BE::DType::BFloat16", "attr.a:dtype=bfloat16"),
        ("BE::DType a = kDefault", "attr.a:dtype"),
        ("Mode a = Mode::slow", "attr.a:enum(fast slow)=slow"),
        ("Mode a = Mode(1)", "attr.a:enum(fast slow)"),
        ("Mode a = kMode", "attr.a:enum(fast slow)"),
    ],
)
def test_a_literal_default_argument_is_the_attribute_s(spec: Spec, param: str, token: str) -> None:
    assert spec.params(f"BE::Tensor y, {param}", before=MODE) == f"ret {token}"
    assert spec.tokens(f"{MODE}\n// @BE f ret attr.a\nvoid f(BE::Tensor y, {param}) {{}}") == f"ret {token}"
    macro = f"#define F void f(BE::Tensor y, {param})\n{MODE}\nF {{}}"
    assert spec.tokens(macro, ["f"]) == f"ret {token}"


@pytest.mark.parametrize(
    ("param", "given", "token"),
    [
        ("float a = 1", "attr.a=2", "attr.a:float32=2.0"),
        ("float a", "attr.a=2", "attr.a:float32=2.0"),
        ("double a = 1.5", "attr.a:float32", "attr.a:float32=1.5"),
        ("float a = 2.5", "attr.a:int32", "attr.a:int32"),
        ("float a = 2.5", "attr.b:float32", "attr.b:float32"),
        ("Mode a = Mode::slow", "attr.a:enum(fast)", "attr.a:enum(fast)"),
        ("Unknown a", "attr.a:string", "attr.a:string"),
        ("Unknown a", "attr.a:float16[]", "attr.a:float16[]"),
        ("BE::Span<const uint16_t> a", "attr.a:bfloat16[]", "attr.a:bfloat16[]"),
        ("std::string&& a", "attr.a:string", "attr.a:string"),
        ("Step a", "attr.a:{n:int16}", "attr.a:{n:int16}"),
        ("Step a", "attr.a", "attr.a:{rate:float32=0.5 n:int32}"),
    ],
)
def test_tokens_are_completed(spec: Spec, param: str, given: str, token: str) -> None:
    text = f"{MODE}{STEP}\n// @BE f ret {given}\nvoid f(BE::Tensor y, {param}) {{}}"
    assert spec.tokens(text) == f"ret {token}"


@pytest.mark.parametrize(
    ("param", "given", "message", "hint"),
    [
        ("float a", "attr.a=x", "'x' can't be the default of a number; of another type it is", ""),
        ("int8_t a", "attr.a=200", "'200' can't be the default of 'attr.a', which is a scalar ('int8_t')", ""),
        ("float a", "attr.a:float32=1e39", "'1e39' can't be the default of float32", ""),
        ("std::string_view a", "attr.a:int32", "is a text ('std::string_view')", "'attr.a:string'"),
        ("int a", "attr.a:string", "which is a scalar ('int')", "'attr.a:int32'"),
        ("const char* a", "attr.a:string", "which is a pointer ('const char*')", ""),
        ("BE::Span<const int> a", "attr.a:int64[]", "'BE::Span<const int>' does not hold every", "'attr.a:int32[]'"),
        ("BE::Span<const int> a", "attr.a:int32", "which is a BE::Span", "'attr.a:int32[]'"),
        ("BE::DType a", "attr.a:int32", "which is a BE::DType", "'attr.a:dtype'"),
        ("Mode a", "attr.a:enum(fast quick)", "'Mode' has no 'quick', but fast, slow", "'attr.a:enum(fast slow)'"),
        ("Mode a", "attr.a:int32", "which is an enumeration ('Mode')", "'attr.a:enum(fast slow)'"),
        ("Step a", "attr.a:{m:int32}", "'Step' has no 'm', but rate, n", "'attr.a:{rate:float32=0.5 n:int32}'"),
        ("Step a", "attr.a:{n:string}", "its 'n' is a scalar ('int')", ""),
        ("Step a", "attr.a:{n:int64}", "'n': 'int' does not hold every int64", ""),
        ("const BE::Tensor a", "arg?", "is at the position of parameter 'a', which is a const BE::Tensor", "'arg'"),
        ("std::optional<BE::Tensor> a", "arg", "which is an optional BE::Tensor", "'arg?'"),
        ("const BE::Tensors a", "arg", "which is a const BE::Tensors", "'arg...'"),
        ("const BE::Tensors a", "ret...", "makes parameter 'a' a result, but it is a const BE::Tensors", "'arg...'"),
        ("const BE::Tensor a", "arg...", "which is a const BE::Tensor", "'arg'"),
        ("int a", "arg?", "which is a scalar", "'attr.a:int32'"),
    ],
)  # fmt: skip
def test_tokens_that_contradict_the_signature(spec: Spec, param: str, given: str, message: str, hint: str) -> None:
    error = spec.error(f"{MODE}{STEP}\n// @BE f ret {given}\nvoid f(BE::Tensor y, {param}) {{}}")
    assert isinstance(error, SpecError)
    assert message in error.message
    assert not hint or error.hints[0] == f"token 2 should be {hint}"


@pytest.mark.parametrize(
    ("param", "message", "hint"),
    [
        ("const char* s", "'s' is a pointer", "take a std::string_view: a text of a call does not end with NUL"),
        ("BE::Tensor* x", "'x' is a pointer", "write const BE::Tensor*, which is null where a call has no such array"),
        ("BE::Span<float> v", "'BE::Span<float>', which has no mapping", "write BE::Span<const T>"),
        ("std::string& s", "is a reference", "take an input by value or const reference"),
        ("int outs", "an attribute can't be called outs, which is an argument of every call", ""),
        ("int be_present", "an attribute can't be called be_present, which says which of the optional arguments", ""),
        ("const BE::Tensors a, const BE::Tensors b", "'a' is a const BE::Tensors, and so is another; one takes", ""),
        ("BE::Tensors a, BE::Tensors b", "'a' is a BE::Tensors, and so is another; one takes all", ""),
    ],
)
def test_signatures_that_are_refused(spec: Spec, param: str, message: str, hint: str) -> None:
    error = spec.error(f"// @BE f\nvoid f(BE::Tensor y, {param}) {{}}")
    assert message in error.message
    assert not hint or error.hints[0].startswith(hint)


def test_a_macro_that_is_not_defined_needs_a_type_for_numbers_alone(spec: Spec) -> None:
    given = "ret attr.s:string attr.t:dtype attr.m:enum(a b)"
    assert spec.tokens(f"// @BE f_x {given}\nDEFINE(f_x)\n") == given
    assert "the type of 'attr.n' is unknown" in spec.error("// @BE f_x ret attr.n\nDEFINE(f_x)\n").message


def test_a_default_may_stand_in_the_prototype(spec: Spec) -> None:
    text = "void f(BE::Tensor y, int n = 3);\nvoid f(BE::Tensor y, int n) {}"
    assert spec.tokens(text, ["f"]) == "ret attr.n:int32=3"


def test_a_number_of_thousands_of_digits_is_no_default(spec: Spec) -> None:
    """Python converts no such text."""
    assert spec.params(f"BE::Tensor y, int n = {'9' * 5000}") == "ret attr.n:int32"
