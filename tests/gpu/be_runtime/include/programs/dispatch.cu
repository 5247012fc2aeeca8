// Complex numbers in kernels; modules of the tests go through the dispatch macros.
#include "brainevent/dispatch.h"

#include <complex>

#include "device.h"
#include "expect.h"

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
  complex_numbers<float>();
  complex_numbers<double>();
  const auto half = thrown_by<BE::CheckError>([] { BE_CHECK(false) << BE::float16_t(1.5f) << BE::bfloat16_t(2.0f); });
  EXPECT(strstr(half.what(), "1.52") != nullptr);
}
