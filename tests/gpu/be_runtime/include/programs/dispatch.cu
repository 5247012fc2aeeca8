// Kernels instantiated by the dispatch macros, for every element type.
#include "brainevent/dispatch.h"

#include <complex>

#include "device.h"
#include "expect.h"

template <class T>
__global__ void doubled(const T* in, T* out) {
  out[threadIdx.x] = in[threadIdx.x] + in[threadIdx.x];
}

template <>
__global__ void doubled<bool>(const bool* in, bool* out) {
  out[threadIdx.x] = in[threadIdx.x];
}

template <class T>
static double number(const T& value) {
  return static_cast<double>(static_cast<float>(value));
}
template <class T>
static double number(const BE::Complex<T>& value) {
  return value.real;
}

// The entry point of a module: everything it knows comes from the tensors.
static void run(const BE::Tensor in, BE::Tensor out, int64_t stream) {
  BE_DISPATCH_ALL(in.dtype(), scalar_t, {
    doubled<scalar_t><<<1, static_cast<int>(in.numel()), 0, (cudaStream_t)stream>>>(
        static_cast<const scalar_t*>(in.data_ptr()), static_cast<scalar_t*>(out.data_ptr()));
  });
  BE_CHECK_KERNEL_LAUNCH();
}

template <class T>
static void doubles() {
  T values[] = {static_cast<T>(1.0f), static_cast<T>(3.0f)};
  const DeviceArray<T> in(values, 2), out(values, 2);
  const int64_t dims[] = {2};
  run(BE::Tensor(in.data(), BE::dtype_of<T>, 1, dims), BE::Tensor(out.data(), BE::dtype_of<T>, 1, dims), 0);
  out.fetch_to(values);
  const bool is_bool = BE::dtype_of<T> == BE::DType::Bool;
  EXPECT(number(values[0]) == (is_bool ? 1 : 2) && number(values[1]) == (is_bool ? 1 : 6));
}

template <class... Ts>
static void doubles_of() {
  (doubles<Ts>(), ...);
}

template <class T>
__global__ void complex_arithmetic(const T* in, T* out) {
  const T a = in[0], b = in[1];
  out[0] = a + b;
  out[1] = a - b;
  out[2] = a * b;
  out[3] = a / b;
  out[4] = conj(a) + 1;
  out[5] = T(abs(a), norm(b));
  out[6] = a;
  out[6] *= b;
}

template <class T>
static void complex_numbers() {
  using Number = BE::Complex<T>;
  using Standard = std::complex<T>;
  const Standard a(1.5, -2), b(-0.25, 4);
  const DeviceArray<Number> in({Number(a), Number(b)});
  const DeviceArray<Number> out(std::vector<Number>(7));
  complex_arithmetic<<<1, 1>>>(in.data(), out.data());
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  const Standard expected[] = {a + b, a - b, a * b, a / b, std::conj(a) + T(1), {std::abs(a), std::norm(b)}, a * b};
  const auto result = out.fetch();
  for (int i = 0; i < 7; ++i) EXPECT(std::abs(static_cast<Standard>(result[i]) - expected[i]) < 1e-5);
}

int main() {
  doubles_of<bool, BE::float16_t, BE::bfloat16_t, float, double, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t,
             uint32_t, uint64_t, BE::complex64_t, BE::complex128_t>();
  complex_numbers<float>();
  complex_numbers<double>();
  const auto half = thrown_by<BE::CheckError>([] { BE_CHECK(false) << BE::float16_t(1.5f) << BE::bfloat16_t(2.0f); });
  EXPECT(strstr(half.what(), "1.52") != nullptr);
}
