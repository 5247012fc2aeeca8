"""C++ parameters: what each spelling is inferred as, and why some are not."""

from __future__ import annotations

import pytest

from be_runtime.dtypes import ATTR_TYPES, BY_NAME, DTYPES, DType
from be_runtime.errors import SpecError
from be_runtime.spec.cpp.cpp_params import CPP_SCALARS
from tests.unit.be_runtime.spec.conftest import Spec

SCALARS = {
    "bool": "bool",
    "int8": "int8_t, std::int8_t, ::std::int8_t, char, signed char",
    "uint8": "uint8_t, std::uint8_t, unsigned char, char unsigned",
    "int16": "int16_t, short, short int, signed short",
    "uint16": "uint16_t, unsigned short, unsigned short int",
    "int32": "int32_t, std::int32_t, int, signed, signed int",
    "uint32": "uint32_t, unsigned, unsigned int, int unsigned",
    "int64": "int64_t, std::int64_t, long, long int, signed long, long long, long long int, ptrdiff_t, std::ptrdiff_t, "
    "intptr_t, ssize_t, long signed int long",
    "uint64": "uint64_t, std::uint64_t, unsigned long, long unsigned int, unsigned long long, size_t, std::size_t, "
    "uintptr_t",
    "float16": "BE::float16_t, __half, half",
    "bfloat16": "BE::bfloat16_t, __nv_bfloat16, nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "std::complex<float>, std::complex< float >, ::std::complex<float>, BE::complex64_t, "
    "cuda::std::complex<float>",
    "complex128": "std::complex<double>, BE::complex128_t",
}
SPELLINGS = [(spelling, dtype) for dtype, spellings in SCALARS.items() for spelling in spellings.split(", ")]


@pytest.mark.parametrize(("spelling", "dtype"), SPELLINGS)
@pytest.mark.parametrize("form", ["{} x", "const {} x", "{} const x", "const {}& x", "{} const & x", "volatile {} x"])
def test_scalars(spec: Spec, spelling: str, dtype: str, form: str) -> None:
    assert spec.params(f"BE::Tensor y, {form.format(spelling)}") == f"ret attr.x:{dtype}"


def test_every_type_of_the_grammar_has_a_cpp_type() -> None:
    assert set(SCALARS) == set(ATTR_TYPES)
    assert set(BY_NAME) == set(CPP_SCALARS.values())


@pytest.mark.parametrize("row", [row for row in DTYPES if row.is_for_arrays_only], ids=lambda row: row.name)
def test_a_type_for_arrays_only_is_refused_by_name(spec: Spec, row: DType) -> None:
    for spelling in row.cpp_types:
        with pytest.raises(SpecError, match=rf"parameter 'x' is {row.name} \('{spelling}'\).*XLA has no attributes"):
            spec.params(f"BE::Tensor y, {spelling} x")


@pytest.mark.parametrize(
    ("params", "tokens"),
    [
        # Tensors, named or not.
        ("const BE::Tensor a, BE::Tensor b", "arg ret"),
        ("BE::Tensor const a, BE::Tensor b", "arg ret"),
        ("const BE::Tensor& a, BE::Tensor& b", "arg ret"),
        ("BE::Tensor const& a, BE::Tensor &b", "arg ret"),
        ("const BE::Tensor &, BE::Tensor", "arg ret"),
        ("BE::Tensor const, BE::Tensor &", "arg ret"),
        ("const ::BE::Tensor a, ::BE::Tensor b", "arg ret"),
        ("const BE :: Tensor a, BE\n::Tensor b", "arg ret"),
        ("[[maybe_unused]] const BE::Tensor a, BE::Tensor b __attribute__((unused))", "arg ret"),
        ("BE::Tensor b, const BE::Tensor a", "ret arg"),
        ("BE::Tensor", "ret"),
        ("BE::Tensor a, BE::Tensor b, BE::Tensor c", "ret ret ret"),
        # Memory and state.
        ("BE::Tensor y, BE::Workspace w", "ret scratch"),
        ("BE::Tensor y, const BE::Workspace& w, BE::Workspace &", "ret scratch scratch"),
        ("BE::Tensor y, const BE::State<Plan>& plan", "ret state"),
        ("BE::Tensor y, ::BE::State<std::pair<int, ops::Plan<3>>> plan", "ret state"),
        # The stream.
        ("BE::Tensor y, int64_t stream", "ret stream"),
        ("BE::Tensor y, const int64_t stream", "ret stream"),
        ("BE::Tensor y, std::int64_t stream", "ret stream"),
        ("BE::Tensor y, long long stream", "ret stream"),
        ("int64_t stream, BE::Tensor y", "stream ret"),
        ("BE::Tensor y, cudaStream_t stream", "ret stream"),
        ("BE::Tensor y, cudaStream_t s", "ret stream"),
        ("BE::Tensor y, const cudaStream_t", "ret stream"),
        ("BE::Tensor y, CUstream s", "ret stream"),
        ("BE::Tensor y, int64_t s", "ret attr.s:int64"),
        ("BE::Tensor y, int64_t stream_count", "ret attr.stream_count:int64"),
        # What a regular expression gets wrong.
        ("BE::Tensor y, int nTensors", "ret attr.nTensors:int32"),
        ("BE::Tensor y, int Tensor_rank", "ret attr.Tensor_rank:int32"),
        ("BE::Tensor y, int const_x", "ret attr.const_x:int32"),
        ("BE::Tensor y /* const ) , */, // const BE::Tensor z)\n int n", "ret attr.n:int32"),
        ("BE::Tensor y, int n = 3", "ret attr.n:int32=3"),
        ("BE::Tensor y, int n = f(1, 2), float m = 2.f", "ret attr.n:int32 attr.m:float32=2.0"),
        ("BE::Tensor y, int n = (a < b), float m = c > d", "ret attr.n:int32 attr.m:float32"),
        ("BE::Tensor y, int n = g<int, 3>(), float m = {}", "ret attr.n:int32 attr.m:float32"),
        ("BE::Tensor y, char c = ')', bool b = true", "ret attr.c:int8 attr.b:bool=true"),
        ('BE::Tensor y, bool b = eq("a)", R"(b,)"), int n = 0', "ret attr.b:bool attr.n:int32=0"),
        ("BE::Tensor y, std::complex<float> z = {1, 2}, int n = 1'000", "ret attr.z:complex64 attr.n:int32=1000"),
        ("const BE::Tensor\n#ifdef X\n a\n#endif\n, BE::Tensor y", "arg ret"),
        ("BE::Tensor y, struct cudaStream_t s", "ret stream"),
    ],
)
def test_parameter_lists(spec: Spec, params: str, tokens: str) -> None:
    assert spec.params(params) == tokens


@pytest.mark.parametrize(
    "before",
    [
        "using namespace BE;",
        "using namespace ::BE;",
        "using BE::Tensor;",
        "using  ::BE :: Tensor ;",
        "namespace BE { class Tensor; }",
    ],
)
def test_unqualified_tensors(spec: Spec, before: str) -> None:
    assert spec.params("const Tensor a, Tensor& b", before) == "arg ret"


def test_unqualified_scalars_of_be(spec: Spec) -> None:
    assert spec.params("Tensor y, complex64_t z, float16_t h", "using namespace BE;") == (
        "ret attr.z:complex64 attr.h:float16"
    )


@pytest.mark.parametrize("before", ["using namespace BE::detail;", "using namespace BEE;", "// using namespace BE;"])
def test_an_unqualified_tensor_needs_using(spec: Spec, before: str) -> None:
    error = spec.error(f"{before}\nvoid f(Tensor y) {{}}", ["f"])
    assert "'Tensor', which has no mapping" in error.message
    assert "BE::Tensor" in error.hints[0]


@pytest.mark.parametrize(
    ("params", "reason", "caret"),
    [
        ("BE::Tensor y, float* x", "parameter 'x' is a pointer ('float*')", "float* x"),
        ("BE::Tensor y, const float* __restrict__ x", "parameter 'x' is a pointer", "const float* __restrict__ x"),
        ("BE::Tensor* y", "parameter 'y' is a pointer ('BE::Tensor*')", "BE::Tensor* y"),
        ("BE::Tensor y, void* stream", "parameter 'stream' is a pointer", "void* stream"),
        ("BE::Tensor y, float*", "the parameter 'float*' is a pointer", "float*"),
        ("BE::Tensor y, void (*f)(int)", "is a pointer", "void (*f)(int)"),
        ("BE::Tensor y, float x[4]", "parameter 'x' is an array ('float[4]')", "float x[4]"),
        ("BE::Tensor y, float& x", "parameter 'x' is a reference to a non-const scalar", "float& x"),
        ("BE::Tensor y, BE::Tensor&& x", "parameter 'x' is an rvalue reference", "BE::Tensor&& x"),
        ("BE::Tensor y, ...", "is variadic", "..."),
        ("BE::Tensor y, long double x", "'long double', which has no mapping", "long double x"),
        ("BE::Tensor y, std::vector<int> x = {}", "'std::vector<int>', which has no mapping", "std::vector<int> x"),
        (
            "BE::Tensor y, std::map<int, float> x",
            "'std::map<int, float>', which has no mapping",
            "std::map<int, float> x",
        ),
        ("BE::Tensor y, MyType x", "'MyType', which has no mapping", "MyType x"),
        ("BE::Tensor y, BE::Span<const int", "'BE::Span<const int', which has no mapping", "BE::Span<const int"),
        ("BE::Tensor y, auto x", "'auto', which has no mapping", "auto x"),
        ("BE::Tensor y, decltype(1) x", "has no mapping", "decltype(1) x"),
        ("BE::Tensor y, cuFloatComplex x", "'cuFloatComplex', which has no mapping", "cuFloatComplex x"),
        ("BE::Tensor y, int", "has no name, and an attribute needs one", "int"),
        ("BE::Tensor y, unsigned long", "has no name", "unsigned long"),
        ("BE::Tensor y, const std::int32_t", "has no name", "const std::int32_t"),
        ("BE::Tensor y, int stream", "parameter 'stream' has type 'int'", "int stream"),
        ("BE::Tensor y, cudaStream_t s, int64_t stream", "a second stream parameter", "int64_t stream"),
        ("const BE::Tensor x", "no parameter is an output", "f"),
        ("", "no parameter is an output", "f"),
        ("void", "no parameter is an output", "f"),
    ],
)
def test_what_can_not_be_inferred(spec: Spec, params: str, reason: str, caret: str) -> None:
    error = spec.error(f"void f({params}) {{}}", ["f"])
    assert isinstance(error, SpecError)
    assert error.message.startswith("f: ")
    assert reason in error.message
    assert spec.caret(error) == caret


def test_a_parameter_across_lines_is_underlined_to_the_end_of_its_line(spec: Spec) -> None:
    error = spec.error("void f(BE::Tensor y,\n       float\n       *x) {}", ["f"])
    assert error.span is not None
    assert (error.span.line, error.span.column) == (2, 8)
    assert spec.caret(error) == "float"
