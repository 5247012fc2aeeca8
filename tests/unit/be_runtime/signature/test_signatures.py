"""C++ parameters and tokens: what each spelling is inferred as, and what a token that is written adds to it."""

from __future__ import annotations

import pytest

from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DTYPES, DType
from be_runtime.errors import SpecError
from be_runtime.signature.cpp.params import CPP_SCALARS
from be_runtime.signature.model import Role
from tests.unit.be_runtime.signature.conftest import each, found, inferred, tokens_of

SCALARS = {
    "bool": "bool",
    "int8": "int8_t | std::int8_t | ::std::int8_t | char | signed char",
    "uint8": "uint8_t | std::uint8_t | unsigned char | char unsigned",
    "int16": "int16_t | short | short int | signed short",
    "uint16": "uint16_t | unsigned short | unsigned short int",
    "int32": "int32_t | std::int32_t | int | signed | signed int",
    "uint32": "uint32_t | unsigned | unsigned int | int unsigned",
    "int64": "int64_t | std::int64_t | long | long int | signed long | long long | long long int | ptrdiff_t | "
    "std::ptrdiff_t | intptr_t | ssize_t | long signed int long",
    "uint64": "uint64_t | std::uint64_t | unsigned long | long unsigned int | unsigned long long | size_t | "
    "std::size_t | uintptr_t",
    "float16": "BE::float16_t | __half | half",
    "bfloat16": "BE::bfloat16_t | __nv_bfloat16 | nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "std::complex<float> | std::complex< float > | ::std::complex<float> | BE::complex64_t | "
    "cuda::std::complex<float>",
    "complex128": "std::complex<double> | BE::complex128_t",
}


@pytest.mark.parametrize(("spelling", "dtype"), each(SCALARS))
@pytest.mark.parametrize("form", ["{} x", "const {} x", "{} const x", "const {}& x", "{} const & x", "volatile {} x"])
def test_scalars(spelling: str, dtype: str, form: str) -> None:
    assert inferred(f"BE::Tensor y, {form.format(spelling)}") == f"ret attr.x:{dtype}"


def test_every_type_of_the_grammar_has_a_cpp_type() -> None:
    assert set(SCALARS) == set(ATTR_TYPES)
    assert set(BY_NAME) == set(CPP_SCALARS.values())


@pytest.mark.parametrize("row", [row for row in DTYPES if row.is_for_arrays_only], ids=lambda row: row.name)
def test_a_type_for_arrays_only_is_refused_by_name(row: DType) -> None:
    for spelling in row.cpp_types:
        with pytest.raises(SpecError, match=rf"parameter 'x' is {row.name} \('{spelling}'\).*XLA has no attributes"):
            inferred(f"BE::Tensor y, {spelling} x")


SIGNATURES = {
    # Tensors, named or not.
    "arg ret": "const BE::Tensor a, BE::Tensor b | BE::Tensor const a, BE::Tensor b"
    " | const BE::Tensor& a, BE::Tensor& b | BE::Tensor const& a, BE::Tensor &b"
    " | const BE::Tensor &, BE::Tensor | BE::Tensor const, BE::Tensor &"
    " | const ::BE::Tensor a, ::BE::Tensor b | const BE :: Tensor a, BE\n::Tensor b"
    " | [[maybe_unused]] const BE::Tensor a, BE::Tensor b __attribute__((unused))"
    " | const BE::Tensor\n#ifdef X\n a\n#endif\n, BE::Tensor y",
    "ret arg": "BE::Tensor b, const BE::Tensor a",
    "ret": "BE::Tensor",
    "ret ret ret": "BE::Tensor a, BE::Tensor b, BE::Tensor c",
    # Memory, state and the stream.
    "ret scratch": "BE::Tensor y, BE::Workspace w",
    "ret scratch scratch": "BE::Tensor y, const BE::Workspace& w, BE::Workspace &",
    "ret state": "BE::Tensor y, const BE::State<Plan>& plan"
    " | BE::Tensor y, ::BE::State<std::pair<int, ops::Plan<3>>> plan",
    "ret stream": "BE::Tensor y, int64_t stream | BE::Tensor y, const int64_t stream | BE::Tensor y, long long stream"
    " | BE::Tensor y, std::int64_t stream | BE::Tensor y, cudaStream_t stream | BE::Tensor y, cudaStream_t s"
    " | BE::Tensor y, const cudaStream_t | BE::Tensor y, CUstream s | BE::Tensor y, struct cudaStream_t s",
    "stream ret": "int64_t stream, BE::Tensor y",
    "ret attr.s:int64": "BE::Tensor y, int64_t s",
    "ret attr.stream_count:int64": "BE::Tensor y, int64_t stream_count",
    # What a regular expression gets wrong.
    "ret attr.nTensors:int32": "BE::Tensor y, int nTensors",
    "ret attr.Tensor_rank:int32": "BE::Tensor y, int Tensor_rank",
    "ret attr.const_x:int32": "BE::Tensor y, int const_x",
    "ret attr.n:int32": "BE::Tensor y /* const ) , */, // const BE::Tensor z)\n int n",
    "ret attr.n:int32 attr.m:float32=2.0": "BE::Tensor y, int n = f(1, 2), float m = 2.f",
    "ret attr.n:int32 attr.m:float32": "BE::Tensor y, int n = (a < b), float m = c > d"
    " | BE::Tensor y, int n = g<int, 3>(), float m = {}",
    "ret attr.c:int8 attr.b:bool=true": "BE::Tensor y, char c = ')', bool b = true",
    "ret attr.b:bool attr.n:int32=0": 'BE::Tensor y, bool b = eq("a)", R"(b,)"), int n = 0',
    "ret attr.z:complex64 attr.n:int32=1000": "BE::Tensor y, std::complex<float> z = {1, 2}, int n = 1'000",
}


@pytest.mark.parametrize(("params", "tokens"), each(SIGNATURES))
def test_signatures(params: str, tokens: str) -> None:
    assert inferred(params) == tokens


KINDS = {
    "attr.s:string": "std::string_view s | const std::string& s | ::std::string_view s | string_view const s",
    "attr.v:float32[]": "BE::Span<const float> v",
    "attr.v:int64[] attr.w:complex128[]": "const BE::Span<long const>& v, BE::Span<const std::complex<double>> w",
    "attr.v:uint8[]": "::BE::Span<const unsigned char> v",
    "attr.z:complex64 attr.h:float16": "BE::complex64_t z, BE::float16_t h",
    "attr.t:dtype attr.u:dtype": "BE::DType t, const BE::DType& u",
    "arg?": "std::optional<BE::Tensor> a",
    "arg? arg?": "const std::optional<const BE::Tensor>& a, std::optional< ::BE::Tensor > b",
    "arg? arg? arg?": "const BE::Tensor* a, BE::Tensor const *b, const ::BE::Tensor* const c",
    "arg... ret...": "const BE::Tensors xs, BE::Tensors ys | const BE::Tensors& xs, BE::Tensors& ys",
}


@pytest.mark.parametrize(("params", "tokens"), each(KINDS))
def test_names_of_be_with_and_without_their_namespace(params: str, tokens: str) -> None:
    assert inferred(f"BE::Tensor y, {params}") == f"ret {tokens}"
    short = params.replace("::BE::", "").replace("BE::", "")
    assert inferred(f"Tensor y, {short}", before="using namespace BE;") == f"ret {tokens}"


USING = "using namespace ::BE; | using BE::Tensor; | using  ::BE :: Tensor ; | namespace BE { class Tensor; }"


@pytest.mark.parametrize("before", USING.split(" | "))
def test_unqualified_tensors(before: str) -> None:
    assert inferred("const Tensor a, Tensor& b", before) == "arg ret"


MODE = "enum class Mode { fast, slow = 3, };"
STEP = "struct Step { float rate = 0.5; int n; };"


@pytest.mark.parametrize(
    ("definitions", "params", "tokens"),
    [
        ("namespace a { enum Mode : std::uint8_t { fast }; }", "const a::Mode& m", "attr.m:enum(fast)"),
        ("enum Mode { fast [[deprecated]], slow = (1, 2) };", "enum Mode m", "attr.m:enum(fast slow)"),
        (MODE + STEP, "Step s, Mode m", "attr.s:{rate:float32=0.5 n:int32} attr.m:enum(fast slow)"),
        ("struct S { Mode m = Mode::slow; BE::DType t{BE::DType::Int8}; };" + MODE, "S s",
         "attr.s:{m:enum(fast slow)=slow t:dtype=int8}"),
        ('struct S { std::string_view a = "b"; BE::Span<const int> v; bool c{true}; double d = f(); };', "const S s",
         "attr.s:{a:string=b v:int32[] c:bool=true d:float64}"),
        ('struct S { std::string_view a = "b c"; std::string b = "}"; };', "const S s", "attr.s:{a:string b:string}"),
        ("struct S {\n  int n;  // the number\n};", "S s", "attr.s:{n:int32}"),
    ],
)  # fmt: skip
def test_types_that_the_source_defines(definitions: str, params: str, tokens: str) -> None:
    assert inferred(f"BE::Tensor y, {params}", definitions) == f"ret {tokens}"


UNCERTAIN = {
    "Mode m": f"int mode; | enum Mode {{ X(a) }}; | enum Mode {{}}; | {MODE}namespace b {{ enum Mode {{ c }}; }}"
    " | #define NAMES a, b\nenum Mode { NAMES }; | enum Mode {\n a,\n#ifdef X\n b\n#endif\n};"
    " | struct Mode { /* # */ int n; };\n#if 0\nstruct Mode { int m; };\n#endif",
    "Mode& m": MODE,
    "std::vector<Mode> m": MODE,
}
MEMBERS = (
    *("{ int n }", "{}", "{ int* n; }", "{ int n[3]; }", "{ int a, b; }", "{ int n : 3; }", "{ Mode(); int n; }"),
    *("{ public: int n; }", "{ const int n; }", "{ static int n; }", "{ struct { int n; } m; }", "{ int& n; }"),
    *("{ Other n; }", "{ Mode n; }", "{ int; }", "{ std::string s; int n(); }", ": Base { int n; }"),
    *("{ BE::Tensor x; }", "{ std::complex<float> const z; }"),
)


@pytest.mark.parametrize(
    ("definitions", "param"), [*each(UNCERTAIN), *((f"struct Mode {body};", "Mode m") for body in MEMBERS)]
)
def test_types_that_are_not_certain_need_their_tokens(definitions: str, param: str) -> None:
    with pytest.raises(SpecError, match="has no mapping"):
        tokens_of(f"{definitions}\n// @BE f\nvoid f(BE::Tensor y, {param}) {{}}")
    token = "attr.m:enum(a b)" if "enum" in definitions else "attr.m:{n:int32}"
    assert tokens_of(f"{definitions}\n// @BE f ret {token}\nvoid f(BE::Tensor y, {param}) {{}}") == f"ret {token}"


DEFAULTS = {
    ":float32=1.0": "float a = 1.0f | float a = 1",
    ":float64=0.10000000149011612": "double a = 0.1f",
    ":float64=-0.0005": "double a = -.5e-3",
    ":float32": "float a = 1e39 | float a = infinity | float a = 1.0L",
    ":float64": "double a = 1e400",
    ":int32=-3": "int a = -3",
    ":int32=10": "int a = +1'0",
    ":int32=8": "int a = 010",
    ":int32=255": "int a = 0xFF",
    ":int32=5": "int a = 0b101u",
    ":int32": "int a = 09 | int a = 1.0 | int a = -1u | int a = 2 + 1 | int a = (2) | int a = kOne | int a = 'a'",
    ":int8": "int8_t a = 200",
    ":uint32": "unsigned a = -1",
    ":uint64=18446744073709551615": "uint64_t a = 18446744073709551615ull | uint64_t a = 18446744073709551615u",
    ":bool=true": "bool a = true",
    ":bool=0": "bool a = 0",
    ":bool": "bool a = not true",
    ":complex64": "std::complex<float> a = 1",
    ":string=sum": 'std::string_view a = "sum"',
    ":string=": 'std::string_view a = ""',
    ":string": r'std::string_view a = "\n" | std::string_view a = "x" "y" | std::string_view a = kName',
    ":int32[]": "BE::Span<const int> a = {}",
    ":dtype=bfloat16": "BE::DType a = BE::DType::BFloat16",
    ":dtype": "BE::DType a = kDefault",
    ":enum(fast slow)=slow": "Mode a = Mode::slow",
    ":enum(fast slow)": "Mode a = Mode(1) | Mode a = kMode",
}


@pytest.mark.parametrize(("param", "token"), each(DEFAULTS))
def test_a_literal_default_argument_is_the_attribute_s(param: str, token: str) -> None:
    tokens = f"ret attr.a{token}"
    assert inferred(f"BE::Tensor y, {param}", before=MODE) == tokens
    assert tokens_of(f"{MODE}\n// @BE f ret attr.a\nvoid f(BE::Tensor y, {param}) {{}}") == tokens
    assert tokens_of(f"#define F void f(BE::Tensor y, {param})\n{MODE}\nF {{}}", ["f"]) == tokens


GIVEN = {
    "arg ret stream": "const BE::Tensor x, BE::Tensor y, int64_t stream",
    # The C++ type of a written type is the author's choice if it holds every value, and so is the attribute's name.
    "ret attr.a:float32": "BE::Tensor y, double a",
    "ret attr.alpha:float64": "BE::Tensor y, double a | BE::Tensor y, double",
    "ret attr.bits:bfloat16": "BE::Tensor y, uint16_t bits",
    "ret attr.z:complex64": "BE::Tensor y, std::complex<double> z",
    "ret attr.n:int64": "BE::Tensor y, float n",
    "ret attr.n:uint8": "BE::Tensor y, int16_t n",
    "ret attr.n:bool": "BE::Tensor y, int n",
    "ret attr.n:int8": "BE::Tensor y, char n",
    "ret attr.a:int32": "BE::Tensor y, float a = 2.5",
    "ret attr.b:float32": "BE::Tensor y, float a = 2.5",
    "ret attr.a:bfloat16[]": "BE::Tensor y, BE::Span<const uint16_t> a",
    "ret scratch[64] state": "BE::Tensor y, BE::Workspace w, BE::State<P> s",
    "ret scratch state": "BE::Tensor y, MyWorkspace w, MyState s",
    # A tensor that is not const may still only be read, and a default argument need not be an attribute.
    "arg ret": "BE::Tensor x, BE::Tensor y | Tensor x, Tensor y",
    "ret": "BE::Tensor y, int n = 3",
    "ret stream": "BE::Tensor y, cudaStream_t s | BE::Tensor y, int64_t anything | BE::Tensor y, uintptr_t s"
    " | BE::Tensor y, void* s",
    # Types that only a compiler knows.
    "arg ret attr.n:int32": "MyTensor x, MyTensor y, MyScalar n | auto x, BE::Tensor y, const auto& n",
    "ret attr.n:int32": "BE::Tensor y, ...",
    "ret attr.a:enum(fast)": "BE::Tensor y, Mode a = Mode::slow",
    "ret attr.a:string": "BE::Tensor y, Unknown a | BE::Tensor y, std::string&& a",
    "ret attr.a:float16[]": "BE::Tensor y, Unknown a",
    "ret attr.a:{n:int16}": "BE::Tensor y, Step a",
}
COMPLETED = [
    ("const BE::Tensor x, BE::Tensor y, int64_t stream", "args rets ctx.stream", "arg ret stream"),
    ("BE::Tensor y, int64_t s, float a, const BE::Tensor x", "ret stream attr.a arg", "ret stream attr.a:float32 arg"),
    ("BE::Tensor y, float a, int64_t b", "ret attrs.a attr.b:int32", "ret attr.a:float32 attr.b:int32"),
    ("BE::Tensor y, __half h", "ret attr.h", "ret attr.h:float16"),
    ("BE::Tensor y, int64_t stream", "ret attr.stream", "ret attr.stream:int64"),
    ("BE::Tensor y, int n = 3", "ret attr.n", "ret attr.n:int32=3"),
    ("BE::Tensor y, int n = 3, float m = 1", "ret attr.n", "ret attr.n:int32=3"),
    ("BE::Tensor y, float a = 1", "ret attr.a=2", "ret attr.a:float32=2.0"),
    ("BE::Tensor y, float a", "ret attr.a=2", "ret attr.a:float32=2.0"),
    ("BE::Tensor y, double a = 1.5", "ret attr.a:float32", "ret attr.a:float32=1.5"),
    ("BE::Tensor y, Step a", "ret attr.a", "ret attr.a:{rate:float32=0.5 n:int32}"),
]


@pytest.mark.parametrize(
    ("params", "given", "tokens"), [*((params, given, given) for params, given in each(GIVEN)), *COMPLETED]
)
def test_tokens_that_fit_are_completed(params: str, given: str, tokens: str) -> None:
    text = f"void f({params}) {{}}"
    assert tokens_of(f"{MODE}{STEP}{text}", {"f": given.split()}) == tokens
    assert tokens_of(f"{MODE}{STEP}\n// @BE f {given}\n{text}") == tokens


def test_defaults_may_stand_in_the_prototype_and_have_as_many_digits_as_python_converts() -> None:
    assert inferred(f"BE::Tensor y, int n = {'9' * 5000}") == "ret attr.n:int32"
    text = "void f(BE::Tensor y, int n = 3);\nvoid f(BE::Tensor y, int n) {}"
    assert tokens_of(text, {"f": ["ret"]}) == "ret"
    assert tokens_of(text, ["f"]) == "ret attr.n:int32=3"


def test_parameters_carry_their_cpp_names() -> None:
    (entry,) = found("void f(const BE::Tensor x, BE::Tensor, int64_t s) {}", {"f": ["arg", "ret", "stream"]})
    assert {param.role: param.name for param in entry.params} == {Role.ARG: "x", Role.RET: "", Role.STREAM: "s"}


def test_a_call_of_a_template_is_not_refused() -> None:
    tokens = ["ret", "attr.n:int32"]
    assert tokens_of("template <class T> void f(BE::Tensor y, T n) {}", {"f": tokens}) == " ".join(tokens)
