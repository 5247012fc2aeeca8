// One attribute of every scalar type; each is stored as it is, through a kernel, in a result of its type.
#include <cuda_runtime.h>

#include <complex>

#include "brainevent/common.h"
#include "brainevent/dispatch.h"

template <class T>
__global__ void store_kernel(T* place, T value) {
  *place = value;
}

template <class T>
void store(BE::Tensor& place, T value, int64_t stream) {
  store_kernel<T><<<1, 1, 0, (cudaStream_t)stream>>>(place.data_ptr<T>(), value);
}

// @BE integers
void integers(BE::Tensor o_b, BE::Tensor o_i8, BE::Tensor o_i16, BE::Tensor o_i32, BE::Tensor o_i64, BE::Tensor o_u8,
              BE::Tensor o_u16, BE::Tensor o_u32, BE::Tensor o_u64, bool b, int8_t i8, int16_t i16, int32_t i32,
              int64_t i64, uint8_t u8, uint16_t u16, uint32_t u32, uint64_t u64, int64_t stream) {
  store(o_b, b, stream);
  store(o_i8, i8, stream);
  store(o_i16, i16, stream);
  store(o_i32, i32, stream);
  store(o_i64, i64, stream);
  store(o_u8, u8, stream);
  store(o_u16, u16, stream);
  store(o_u32, u32, stream);
  store(o_u64, u64, stream);
}

// The stream first, attributes among the results: the order of the tokens is free.
// @BE floats stream attr.f64 ret ret attr.f32 ret ret attr.f16:float16 attr.bf16:bfloat16
void floats(int64_t stream, double f64, BE::Tensor o_f64, BE::Tensor o_f32, float f32, BE::Tensor o_f16,
            BE::Tensor o_bf16, BE::float16_t f16, uint16_t bf16) {
  store(o_f64, f64, stream);
  store(o_f32, f32, stream);
  store(o_f16, f16, stream);
  store(o_bf16, bf16, stream);
}

// @BE complexes ret ret attr.c64 attr.c128:complex128 stream
void complexes(BE::Tensor o_c64, BE::Tensor o_c128, std::complex<float> c64, BE::complex128_t c128, int64_t stream) {
  store(o_c64, BE::complex64_t(c64), stream);
  store(o_c128, c128, stream);
}
