// Kernels for arrays of any element type; those for small types too.
#include <string.h>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"

// @BE copy arg ret
void copy(const BE::Tensor x, BE::Tensor out) {
  BE_CHECK(x.nbytes() == out.nbytes() && x.dtype() == out.dtype()) << "other elements";
  memcpy(out.data_ptr<uint8_t>(), x.data_ptr<uint8_t>(), x.nbytes());
}

// What the kernel sees: dtype, ndim, numel, nbytes, whether the address is aligned, then shape and strides.
// @BE describe
void describe(const BE::Tensor& x, BE::Tensor& out) {
  int32_t* to = out.data_ptr<int32_t>();
  *to++ = static_cast<int32_t>(x.dtype());
  *to++ = x.ndim();
  *to++ = x.numel_checked_int();
  *to++ = static_cast<int32_t>(x.nbytes());
  *to++ = reinterpret_cast<uintptr_t>(x.data_ptr()) % 16 == 0;
  for (int i = 0; i < x.ndim(); ++i) *to++ = x.shape(i);
  for (int i = 0; i < x.ndim(); ++i) *to++ = x.stride(i);
}

// @BE element_size
void element_size(const BE::Tensor& x, BE::Tensor& out) { *out.data_ptr<int32_t>() = x.element_size(); }

// @BE twice
void twice(const BE::Tensor x, BE::Tensor out) {
  BE_DISPATCH_ALL(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<T>()[i] = x.data_ptr<T>()[i] + x.data_ptr<T>()[i];
  });
}
// @BE twice_float8
void twice_float8(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_FLOAT8(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<T>()[i] = x.data_ptr<T>()[i] + x.data_ptr<T>()[i];
  });
}

// Results between the arguments, of another type and another shape each.
// @BE parts ret arg ret ret
void parts(BE::Tensor sum, const BE::Tensor x, BE::Tensor negative, BE::Tensor count) {
  float total = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    total += x.at<float>(i);
    negative.at<bool>(i) = x.at<float>(i) < 0;
  }
  *sum.data_ptr<float>() = total;
  *count.data_ptr<int32_t>() = x.numel_checked_int();
}

// @BE fill
void fill(BE::Tensor out) {
  for (int64_t i = 0; i < out.numel(); ++i) out.at<float>(i) = 7.0f + i;
}
// @BE count_elements
void count_elements(const BE::Tensor a, const BE::Tensor b, BE::Tensor out) {
  *out.data_ptr<int32_t>() = 1000 + a.numel_checked_int() + 10 * b.numel_checked_int();
}
// @BE reject
void reject(const BE::Tensor, BE::Tensor) { BE_CHECK(false) << "was called"; }

// @BE as_int8
void as_int8(const BE::Tensor& x, BE::Tensor& out) { *out.data_ptr<int8_t>() = *x.data_ptr<int8_t>(); }

// @BE unpack
void unpack(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_PACKED(x.dtype(), T, {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = BE::load_packed(x.data_ptr<T>(), i);
  });
}
// @BE reverse
void reverse(const BE::Tensor& x, BE::Tensor& out) {
  BE_DISPATCH_PACKED(x.dtype(), T, {
    memset(out.data_ptr(), 0xa5, out.nbytes());
    const int64_t n = x.numel();
    for (int64_t i = 0; i < n; ++i) BE::store_packed(out.data_ptr<T>(), n - 1 - i, BE::load_packed(x.data_ptr<T>(), i));
  });
}
// Of each byte, the first element only.
// @BE firsts
void firsts(const BE::Tensor& x, BE::Tensor& out) {
  for (size_t i = 0; i < x.nbytes(); ++i) {
    BE_DISPATCH_PACKED(x.dtype(), T, { out.data_ptr<float>()[i] = x.data_ptr<T>()[i].get(0); });
  }
}
