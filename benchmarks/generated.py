"""Sources made by rule, for rows that need many files or many entry points. Pure."""

from __future__ import annotations

SUFFIXES = {"cuda": ".cu", "cpp": ".cc"}
_TERMS_A_FILE = 6
"""How many more terms each file's polynomial has than that of the file before."""


def folder_file(language: str, index: int, edition: int = 0) -> str:
    """The source of one file of a folder: two kernels and the entry point that runs one after the other.

    Parameters
    ----------
    language : {"cuda", "cpp"}
    index : int
        Of the file; a later one is larger.
    edition : int
        Another one differs in a constant.

    Examples
    --------
    >>> folder_file("cpp", 3) != folder_file("cpp", 3, edition=1)
    True
    >>> [len(folder_file("cuda", index)) for index in range(3)]
    [1179, 1299, 1419]
    """
    terms = [f"  sum = sum * v + {0.5 + power + 0.001 * edition:.3f}f;" for power in range(_TERMS_A_FILE * (index + 1))]
    values = {"index": index, "taps": 2 * index + 3, "terms": "\n".join(terms)}
    return _fill({"cuda": _CUDA_FILE, "cpp": _CPP_FILE}[language], values)


def many_entries(language: str, count: int) -> str:
    """The source of a module with so many entry points, all alike.

    Examples
    --------
    >>> many_entries("cpp", 200).count("@BE")
    200
    """
    head, entry = {"cuda": (_CUDA_SCALE, _CUDA_ENTRY), "cpp": (_CPP_SCALE, _CPP_ENTRY)}[language]
    return head + "".join(_fill(entry, {"index": index}) for index in range(count))


def _fill(template: str, values: dict[str, object]) -> str:
    """C++ has braces everywhere: a name to fill in stands between two ``@``."""
    for name, value in values.items():
        template = template.replace(f"@{name}@", str(value))
    return template


_CUDA_FILE = """\
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void polynomial_@index@_kernel(const float* x, float* y, int64_t n) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float v = x[i];
  float sum = 0.0f;
@terms@
  y[i] = sum;
}

__global__ void mean_@index@_kernel(float* y, int64_t n) {
  __shared__ float tile[256];
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? y[i] : 0.0f;
  __syncthreads();
  float sum = 0.0f;
  for (int tap = 0; tap < @taps@; ++tap) sum += tile[(threadIdx.x + tap) % 256];
  if (i < n) y[i] = sum / @taps@;
}

// @BE stage_@index@ arg ret stream
void stage_@index@(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  const int64_t n = x.numel();
  const unsigned blocks = unsigned((n + 255) / 256);
  polynomial_@index@_kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  mean_@index@_kernel<<<blocks, 256, 0, (cudaStream_t)stream>>>(y.data_ptr<float>(), n);
}
"""

_CPP_FILE = """\
#include "brainevent/common.h"

static void polynomial_@index@(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const float v = x[i];
    float sum = 0.0f;
@terms@
    y[i] = sum;
  }
}

static void mean_@index@(float* y, int64_t n) {
  for (int64_t i = 0; i + @taps@ <= n; ++i) {
    float sum = 0.0f;
    for (int tap = 0; tap < @taps@; ++tap) sum += y[i + tap];
    y[i] = sum / @taps@;
  }
}

// @BE stage_@index@ arg ret
void stage_@index@(const BE::Tensor x, BE::Tensor y) {
  polynomial_@index@(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  mean_@index@(y.data_ptr<float>(), y.numel());
}
"""

_CUDA_SCALE = """\
#include <cuda_runtime.h>

#include "brainevent/common.h"

__global__ void scale_kernel(const float* x, float* y, int64_t n, float factor) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < n) y[i] = factor * x[i];
}

static void scale(const BE::Tensor& x, BE::Tensor& y, float factor, int64_t stream) {
  const int64_t n = x.numel();
  scale_kernel<<<unsigned((n + 255) / 256), 256, 0, (cudaStream_t)stream>>>(
      x.data_ptr<float>(), y.data_ptr<float>(), n, factor);
}
"""

_CUDA_ENTRY = """
// @BE scale_@index@ arg ret stream
void scale_@index@(const BE::Tensor x, BE::Tensor y, int64_t stream) {
  scale(x, y, @index@.0f, stream);
}
"""

_CPP_SCALE = """\
#include "brainevent/common.h"

static void scale(const BE::Tensor& x, BE::Tensor& y, float factor) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = factor * x.data_ptr<float>()[i];
}
"""

_CPP_ENTRY = """
// @BE scale_@index@ arg ret
void scale_@index@(const BE::Tensor x, BE::Tensor y) {
  scale(x, y, @index@.0f);
}
"""
