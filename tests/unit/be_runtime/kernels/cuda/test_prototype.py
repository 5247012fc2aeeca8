"""What a kernel takes, read from its source."""

from __future__ import annotations

import pytest

from be_runtime.errors import EntryPointNotFoundError, SpecError
from be_runtime.kernels.cuda.describe import KernelParam
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype

SOURCE = """
// __global__ void commented(float* x);
#define UNUSED 1
template <typename T, int N = 4> __device__ T helper(T x) { return x; }
namespace ops {
template <class T, unsigned N, typename U>
__global__ void __launch_bounds__(256, 2) scale(const T* __restrict__ x, U const *y, T* out, const U by, long long n) {}
}
extern "C" __global__ void plain(const unsigned char* mask, const void* any, double *out, bool flag, float by = 1) {}
__global__ void declared(const __nv_bfloat16* x, __half* y);
__device__ void not_a_kernel(float* x) {}
__global__ void takes_struct(const float* x, float* y, Config config) {}
__global__ void takes_table(const float** x, float* y) {}
"""


def shown(params: tuple[KernelParam, ...]) -> list[tuple[str, str, str]]:
    return [
        (
            param.name,
            ("const*" if param.is_const else "*") if param.is_pointer else "scalar",
            param.dtype.name if param.dtype is not None else "any",
        )
        for param in params
    ]


def test_template_types_are_put_in():
    found = read_prototype(SOURCE, parse_name("ops::scale<float, 8u, int>"))
    assert shown(found) == [
        ("x", "const*", "float32"),
        ("y", "const*", "int32"),
        ("out", "*", "float32"),
        ("by", "scalar", "int32"),
        ("n", "scalar", "int64"),
    ]


def test_plain_kernel():
    assert shown(read_prototype(SOURCE, parse_name("plain"))) == [
        ("mask", "const*", "uint8"),
        ("any", "const*", "any"),
        ("out", "*", "float64"),
        ("flag", "scalar", "bool"),
        ("by", "scalar", "float32"),
    ]


def test_declaration_and_16_bit_floats():
    assert shown(read_prototype(SOURCE, parse_name("declared"))) == [
        ("x", "const*", "bfloat16"),
        ("y", "*", "float16"),
    ]


@pytest.mark.parametrize("name", ["commented", "missing"])
def test_missing_kernel_lists_what_there_is(name: str):
    with pytest.raises(EntryPointNotFoundError, match=r"no function .*\nhint: its kernels are: .*plain.*scale"):
        read_prototype(SOURCE, parse_name(name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("not_a_kernel", "is not a __global__ function"),
        ("scale", r"is a template: name an instance, such as name='scale<float>'"),
        ("plain<int>", "is not a template"),
        ("takes_struct", "the scalar Config config can't be passed"),
        ("takes_table", "can't be passed"),
        ("a b", "is not a kernel name"),
        ("f(int)", "is not a kernel name"),
    ],
)
def test_what_cannot_be_launched_is_refused(name: str, message: str):
    with pytest.raises(SpecError, match=message):
        read_prototype(SOURCE, parse_name(name))


def test_template_arguments_are_cut_outside_of_brackets():
    assert parse_name("f<std::pair<int, float>, (1, 2)>").arguments == ("std::pair<int, float>", "(1, 2)")


TWICE = """
namespace v1 { template <class T> __global__ void scale(const T* x, T* y, int by) {} }
namespace v2 { template <class T> __global__ void scale(const T* x, T* y, float by) {} }
namespace lib { inline namespace now { __global__ void add(float* y, int n); } }
namespace lib { inline namespace now { __global__ void add(float *out, const int count) {} } }
__global__ void both(double* y) {}
namespace v1 { __global__ void both(float* y) {} }
template <class T> __global__ void mixed(T* y) {}
__global__ void mixed(double* y) {}
__global__ void over(float* y) {}
__global__ void over(double* y) {}
#ifdef SWAPPED
__global__ void chosen(float* y, int rows, int columns) {}
#else
__global__ void chosen(float* y, int columns, int rows) {}
#endif
"""


@pytest.mark.parametrize(
    ("name", "last"),
    [
        ("v1::scale<float>", ("by", "scalar", "int32")),
        ("v2::scale<float>", ("by", "scalar", "float32")),
        ("::v2 :: scale<float>", ("by", "scalar", "float32")),
        ("lib::add", ("count", "scalar", "int32")),
        ("lib::now::add", ("count", "scalar", "int32")),
        ("add", ("count", "scalar", "int32")),
        ("alias::add", ("count", "scalar", "int32")),
        ("both", ("y", "*", "float64")),
        ("v1::both", ("y", "*", "float32")),
        ("mixed", ("y", "*", "float64")),
        ("mixed<int>", ("y", "*", "int32")),
    ],
)
def test_the_kernel_of_a_namespace(name: str, last: tuple[str, str, str]):
    assert shown(read_prototype(TWICE, parse_name(name)))[-1] == last


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("scale<float>", r"::v1::scale\(.*int by\), ::v2::scale\(.*float by\)\nhint: write the namespace"),
        ("alias::scale<float>", r"::v1::scale\(.*int by\), ::v2::scale\(.*float by\)\nhint: write the namespace"),
        ("over", r"::over\(float\* y\), ::over\(double\* y\)\nhint: give each of them a name"),
        ("chosen", r"int rows, int columns\), .*int columns, int rows\)\nhint: give each of them a name"),
    ],
)
def test_a_name_that_several_kernels_fit_is_refused(name: str, message: str):
    with pytest.raises(SpecError, match=rf"{name} may be any of: .*{message}"):
        read_prototype(TWICE, parse_name(name))
