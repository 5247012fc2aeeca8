"""The headers under nvcc, without a device: the GPU tests' programs, and sources as people write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support import requirements

ROOT = Path(__file__).resolve().parents[4]
INCLUDE = ROOT / "be_runtime" / "include"
PROGRAMS = ROOT / "tests" / "gpu" / "be_runtime" / "include" / "programs"
EXPECT = ROOT / "tests" / "compile" / "be_runtime" / "include" / "programs"
pytestmark = pytest.mark.full

STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror")

RUNTIME = "#include <cuda_runtime.h>\n"
COMMON = '#include "brainevent/common.h"\n'
# Half precision with the declarations of common.h alone, the definitions from CUDA's header.
HALF = """
template <class T>
__global__ void twice(const T* in, T* out) { *out = *in + *in; }

void entry(const BE::Tensor in, const BE::Tensor indptr, BE::Tensor out, int64_t stream) {
    BE_DISPATCH_FLOATING_AND_HALF(in.dtype(), scalar_t, {
        if (in.numel() == 0) return;
        twice<scalar_t><<<1, 1, 0, reinterpret_cast<cudaStream_t>(stream)>>>(
            in.data_ptr<const scalar_t>(), out.data_ptr<scalar_t>());
    });
    BE_DISPATCH_SIGNED_INDEX_PAIR(in.dtype(), indptr.dtype(), IndexT, OffsetT, {
        cudaMemsetAsync(out.data_ptr(), 0, sizeof(IndexT) * sizeof(OffsetT), reinterpret_cast<cudaStream_t>(stream));
    });
}
"""
# CUDA's own types that data_ptr<T>() takes, before or after ours, and a const tensor on the device. CUDA's headers of
# small elements do not pass our warnings.
TYPE_HEADERS = """
#include <cuComplex.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda/std/complex>
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter"
#include <cuda_fp4.h>
#include <cuda_fp8.h>
#pragma GCC diagnostic pop
"""
TYPES = """
template <class T, class... DTypes>
constexpr bool fits(DTypes... dtypes) {
  return BE::internal::kPointedInto<T> == BE::internal::dtype_set(dtypes...);
}
using BE::DType;
static_assert(fits<float4>(DType::Float32, DType::Complex64) && fits<float3>(DType::Float32), "");
static_assert(fits<cuFloatComplex>(DType::Float32, DType::Complex64) && fits<longlong2>(DType::Int64), "");
static_assert(fits<cuDoubleComplex>(DType::Float64, DType::Complex128) && fits<uint4>(DType::UInt32), "");
static_assert(fits<__half>(DType::Float16) && fits<__half2>(DType::Float16), "");
static_assert(fits<__nv_bfloat16>(DType::BFloat16) && fits<__nv_bfloat162>(DType::BFloat16), "");
static_assert(fits<short2>(DType::Int16) && fits<ushort4>(DType::UInt16, DType::Float16, DType::BFloat16), "");
static_assert(fits<char4>(DType::Int8, DType::Bool), "");
static_assert(fits<cuda::std::complex<float>>(DType::Complex64), "");

__global__ void copy(const BE::Tensor in, BE::Tensor out) {
  const float4* from = in.data_ptr<float4>();
  *out.data_ptr<float4>() = *from;
}
static_assert(fits<__nv_fp8_e4m3>(DType::Float8E4M3FN) && fits<__nv_fp8x4_e4m3>(DType::Float8E4M3FN), "");
static_assert(fits<__nv_fp8_e5m2>(DType::Float8E5M2) && fits<__nv_fp8x2_e5m2>(DType::Float8E5M2), "");
static_assert(fits<__nv_fp8_e8m0>(DType::Float8E8M0FNU) && fits<__nv_fp4x2_e2m1>(DType::Float4E2M1FN), "");
static_assert(fits<__nv_fp4_e2m1>(), "it has a byte for each element");

__global__ void convert(const BE::Tensor in, BE::Tensor out) {
  const __nv_fp8_e4m3 theirs = in.data_ptr<__nv_fp8_e4m3>()[0];
  BE::float8_e4m3fn_t ours = float(theirs) * BE::load_packed(in.data_ptr<BE::int4x2_t>(), 1);
  out.data_ptr<__nv_fp8_storage_t>()[0] = ours.bits;
  out.data_ptr<int64_t>()[1] = int64_t(in.element_size() + in.nbytes());
}
"""
CHECKS = """
#include <ostream>
static_assert(BE::kMaxDim == BE::Tensor::kMaxDims, "");

__device__ int inner(int i) { BE_CHECK(i < 3) << "i is " << i; return i; }
__host__ __device__ int both(int i) { BE_CHECK(i < 3); return i; }
void host(int i) { BE_CHECK(i < 3) << "i is " << i << std::endl; }
__global__ void checked(const BE::Tensor x, int* out) {
  BE_CHECK(x.ndim() == 1 && out != nullptr) << "ndim is " << x.ndim();
  for (int i = 0; i < 3; ++i) BE_CHECK(i >= 0), out[i] = both(inner(i));
}
"""
SOURCES = {
    "runtime before": RUNTIME + COMMON + CHECKS,
    "runtime after": COMMON + RUNTIME + CHECKS,
    "half after": COMMON + "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" + HALF,
    "half before": "#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n" + COMMON + HALF,
    "types after": '#include "brainevent/dispatch.h"\n' + COMMON + TYPE_HEADERS + TYPES,
    "types before": TYPE_HEADERS + '#include "brainevent/dispatch.h"\n' + COMMON + TYPES,
}


def compile_device(source: Path, folder: Path, *flags: str) -> None:
    nvcc = requirements.nvcc()
    assert nvcc is not None
    includes = [f"-I{path}" for path in (INCLUDE, PROGRAMS, EXPECT)]
    command = (nvcc, *flags, *STRICT, *includes, "-c", str(source), "-o", str(folder / "object.o"))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("standard", "arch"), [("c++17", "sm_75"), ("c++17", "sm_90"), ("c++20", "sm_90")])
@pytest.mark.parametrize("name", ["cuda_common", "tensor", "device_check", "dispatch", "errors"])
def test_programs_of_the_gpu_tier_compile(name: str, standard: str, arch: str, tmp_path: Path):
    compile_device(PROGRAMS / f"{name}.cu", tmp_path, f"-std={standard}", f"-arch={arch}")


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_compiles(name: str, tmp_path: Path):
    source = tmp_path / "kernel.cu"
    source.write_text(SOURCES[name])
    compile_device(source, tmp_path, "-std=c++17", "-arch=sm_90")
