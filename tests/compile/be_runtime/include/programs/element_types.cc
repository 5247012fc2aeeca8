// The types that data_ptr<T>() takes for each element type, and the error for the others.
#include <array>
#include <complex>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "brainevent/common.h"
#include "expect.h"

using BE::DType;

// Whether a T* may point to the elements of these types, and to none of the others.
template <class T, class... DTypes>
constexpr bool fits(DTypes... dtypes) {
  return BE::internal::kPointedInto<T> == BE::internal::dtype_set(dtypes...);
}
template <class T>
constexpr bool fits_all = BE::internal::kPointedInto<T> == BE::internal::kEveryDType;

static_assert(fits<float>(DType::Float32) && fits<const float>(DType::Float32) && fits<double>(DType::Float64), "");
static_assert(fits<int16_t>(DType::Int16) && fits<int>(DType::Int32) && fits<volatile int64_t>(DType::Int64), "");
static_assert(fits<long>(DType::Int64) && fits<long long>(DType::Int64) && fits<size_t>(DType::UInt64), "");
static_assert(fits<unsigned long long>(DType::UInt64) && fits<unsigned>(DType::UInt32) && fits<bool>(DType::Bool), "");
static_assert(fits<int8_t>(DType::Int8, DType::Bool), "as numpy stores a bool");
static_assert(fits<uint16_t>(DType::UInt16, DType::Float16, DType::BFloat16), "their bits");
static_assert(fits_all<void> && fits_all<const void> && fits_all<char> && fits_all<uint8_t> && fits_all<std::byte>, "");
static_assert(fits<BE::float16_t>(DType::Float16) && fits<BE::bfloat16_t>(DType::BFloat16), "");
static_assert(fits<__half>(DType::Float16) && fits<__nv_bfloat16>(DType::BFloat16), "CUDA's, by name");
static_assert(fits<BE::float8_e4m3_t>(DType::Float8E4M3) && fits<BE::int4x2_t>(DType::Int4), "");
static_assert(fits<__nv_fp8_e4m3>(DType::Float8E4M3FN) && fits<__nv_fp8x4_e8m0>(DType::Float8E8M0FNU), "CUDA's, by name");
static_assert(fits<__nv_fp4x2_e2m1>(DType::Float4E2M1FN), "");
#if defined(__FLT16_MANT_DIG__)
static_assert(fits<_Float16>(DType::Float16), "");
#endif

#include "brainevent/dispatch.h"  // now that their names were enough
struct Half2 {
  BE::float16_t x, y;
};
static_assert(fits<Half2>(DType::Float16) && fits<BE::float16_t>(DType::Float16), "");

struct Fp8x2 {
  BE::float8_e5m2_t x, y;
};
static_assert(fits<Fp8x2>(DType::Float8E5M2) && fits<BE::float8_e5m2_t[4]>(DType::Float8E5M2), "");
static_assert(fits<BE::uint2x4_t>(DType::UInt2) && fits<std::array<BE::uint2x4_t, 4>>(DType::UInt2), "");

// Complex numbers are no vectors of reals; two reals are a complex number.
static_assert(fits<BE::complex64_t>(DType::Complex64) && fits<BE::complex128_t>(DType::Complex128), "");
static_assert(fits<std::complex<float>>(DType::Complex64) && fits<std::complex<double>>(DType::Complex128), "");
static_assert(!fits<std::complex<int>>(DType::Int32), "");

struct Float2 {
  float x, y;
};
struct Float3 {
  float x, y, z;
};
struct Short4 {
  int16_t x, y, z, w;
};
union Both {
  Float2 members;
  float x;
};
struct Array {
  double values[2];
  double& operator[](int i) { return values[i]; }
};
typedef float Simd __attribute__((vector_size(16)));
static_assert(fits<Float2>(DType::Float32, DType::Complex64) && fits<Float3>(DType::Float32), "");
static_assert(fits<Short4>(DType::Int16), "");
static_assert(fits<Simd>(DType::Float32, DType::Complex64) && fits<float[3]>(DType::Float32), "");
static_assert(fits<std::array<int, 3>>(DType::Int32) && fits<Array>(DType::Float64, DType::Complex128), "");
static_assert(fits<const float[2][3]>(DType::Float32), "");

enum class Kind : int32_t { kFirst };
static_assert(fits<Kind>(DType::Int32), "");

struct Declared;
struct Mixed {
  float x;
  int y;
};
struct Longer {
  float x, y;
  int more;
};
class Hidden {
  [[maybe_unused]] float x, y;
};
static_assert(fits<Mixed>() && fits<Longer>() && fits<Hidden>() && fits<Declared>() && fits<Both>(), "");
static_assert(fits<float*>() && fits<const char*>() && fits<void (*)()>() && fits<decltype(nullptr)>(), "");
static_assert(fits<long double>() && fits<wchar_t>() && fits<char16_t>() && fits<std::vector<float>>(), "");

// A const tensor gives pointers to const.
using In = const BE::Tensor&;
using Out = BE::Tensor&;
template <class T, class Actual>
constexpr bool is(Actual&&) {
  return std::is_same<T, Actual>::value;
}
static void constness(In in, Out out) {
  EXPECT(is<const float*>(in.data_ptr<float>()) && is<const float*>(in.data_ptr<const float>()));
  EXPECT(is<float*>(out.data_ptr<float>()) && is<const float*>(out.data_ptr<const float>()));
  EXPECT(is<const void*>(in.data_ptr()) && is<const void*>(in.data()) && is<const void*>(in.data_ptr<void>()));
  EXPECT(is<void*>(out.data_ptr()) && is<void*>(out.data()) && is<void*>(out.data_ptr<void>()));
}

static void errors() {
  float data[2];
  const int64_t dims[] = {2};
  BE::Tensor out(data, DType::Float32, 1, dims);
  const BE::Tensor in = out;
  constness(in, out);
  const char* const advice =
      "; ask for the type of its elements, or convert the array (data_ptr() without a type is a void*)";
  const auto text = [&](const char* type) {
    static char all[300];
    snprintf(all, sizeof(all), "data_ptr<%s>() of a float32 tensor%s", type, advice);
    return all;
  };
  EXPECT_THROWS(in.data_ptr<double>(), text("double"));
  EXPECT_THROWS(out.data_ptr<bool>(), text("bool"));
  EXPECT_THROWS(out.data_ptr<Mixed>(), text("Mixed"));
  const auto error = thrown_by<BE::AccessError>([&] { (void)in.data_ptr<const int[3]>(); });
  EXPECT(strstr(error.what(), "const int") != nullptr && error.data() == data && error.dtype() == DType::Float32);
  BE::Tensor none;
  EXPECT(none.data_ptr<float>() == nullptr && none.data_ptr<Mixed>() == nullptr);
}

int main() {
  errors();
}
