"""What a kernel takes, read from its source."""

from __future__ import annotations

from pathlib import Path

from be_runtime.kernels.cuda.describe import KernelParam
from be_runtime.kernels.cuda.prototype import parse_name, read_prototype
from tests.unit.be_runtime.generate.golden_files import answer, check_golden

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
namespace v1 { template <class T> __global__ void twice(const T* x, T* y, int by) {} }
namespace v2 { template <class T> __global__ void twice(const T* x, T* y, float by) {} }
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
NAMES = """
ops::scale<float, 8u, int>; plain; declared; both; v1::both; mixed; mixed<int>
v1::twice<float>; v2::twice<float>; ::v2 :: twice<float>; lib::add; lib::now::add; add; alias::add
commented; missing; not_a_kernel; scale; plain<int>; takes_struct; takes_table; a b; f(int)
twice<float>; alias::twice<float>; over; chosen
"""


def shown(name: str) -> str:
    def one(param: KernelParam) -> str:
        kind = ("const*" if param.is_const else "*") if param.is_pointer else ""
        return f"{param.dtype.name if param.dtype is not None else 'any'}{kind} {param.name}"

    return ", ".join(map(one, read_prototype(SOURCE, parse_name(name))))


def test_parameters_of_kernels_or_why_they_can_not_be_launched():
    names = [name.strip() for name in NAMES.strip().replace("\n", ";").split(";")]
    rows = "".join(f"{name}\n  {answer(shown, name)}\n" for name in names)
    check_golden(Path(__file__).parent / "golden" / "prototypes.txt", rows)


def test_template_arguments_are_cut_outside_of_brackets():
    assert parse_name("f<std::pair<int, float>, (1, 2)>").arguments == ("std::pair<int, float>", "(1, 2)")
