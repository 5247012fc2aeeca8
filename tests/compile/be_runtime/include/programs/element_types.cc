// Element types: those that data_ptr<T>() takes for each, the error for the others, and their values on the host.
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

static_assert(std::is_same<BE::cpp_type<DType::Int64>, int64_t>::value, "");
static_assert(BE::dtype_of<const BE::float16_t> == DType::Float16, "");
static_assert(BE::dtype_of<BE::int2x4_t> == DType::Int2 && sizeof(BE::cpp_type<DType::Int2>) == 1, "a byte of four");
static_assert(BE::dtype_of<BE::float4_e2m1fnx2_t> == DType::Float4E2M1FN && BE::uint4x2_t::kCount == 2, "");
static_assert(BE::dtype_of<long long> == DType::Int64 && BE::dtype_of<unsigned long> == DType::UInt64, "");
static_assert(BE::dtype_of<volatile int> == DType::Int32, "");

static_assert(BE::dtype_size(DType::Float64) == 8 && BE::dtype_bits(DType::Float64) == 64, "constant expressions");
static_assert(BE::dtype_size(DType::Int2) == 0 && BE::dtype_bits(DType::UInt2) == 2, "");
static_assert(BE::dtype_size(DType::Invalid) == 0 && BE::dtype_bits(DType::Invalid) == 0, "");
static_assert(BE::dtype_name(DType::Bool)[0] == 'b' && sizeof(DType) == 1, "");

static_assert(std::is_trivial<BE::float8_e4m3_t>::value && std::is_standard_layout<BE::float8_e4m3_t>::value, "");
static_assert(std::is_trivial<BE::int4x2_t>::value && std::is_standard_layout<BE::int4x2_t>::value, "");
static_assert(std::is_trivially_copyable<BE::float16_t>::value && std::is_trivially_copyable<BE::complex64_t>::value,
              "");
static_assert(alignof(BE::complex64_t) == 8 && alignof(BE::complex128_t) == 16, "loaded in one piece");

static void half() {
  BE::float16_t a = 1.5f;
  BE::float16_t b = a + a * 2;
  b += a, b -= 1, b *= 2, b /= 4.0f;
  EXPECT(b == 2.5f && a < b && -a == -1.5f && a.bits == 0x3e00);
  EXPECT(static_cast<float>(BE::float16_t(2049)) == 2048.0f);  // a tie goes to even
  BE::bfloat16_t c = 1.0f / 3;
  c += c;
  EXPECT(c.bits == 0x3f2b);
}

static void small() {
  BE::float8_e4m3fn_t a = 1.5f;
  a = a + a * 2;
  EXPECT(a == 4.5f && a.bits == 0x49 && a < BE::float8_e4m3fn_t(448));
  a = 1e9f;
  EXPECT(a != a);
  BE::int4x2_t bytes[2] = {{0x2f}, {0xa5}};
  EXPECT(bytes[0].get(0) == -1 && bytes[0].get(1) == 2 && BE::load_packed(bytes, 3) == -6);
  BE::store_packed(bytes, 2, 9);
  EXPECT(bytes[1].bits == 0xa9 && bytes[0].bits == 0x2f && BE::load_packed(bytes, 2) == -7);
  BE::float4_e2m1fnx2_t pair = {};
  pair.set(1, -7.0f);
  EXPECT(pair.get(0) == 0 && pair.get(1) == -6 && pair.bits == 0xf0);
}

static void complex() {
  const BE::complex64_t z(3, 4), w(1, -2);
  const std::complex<float> sz(3, 4), sw(1, -2);
  const auto expect_equal = [](const BE::complex64_t& ours, const std::complex<float>& theirs) {
    EXPECT(std::abs(static_cast<std::complex<float>>(ours) - theirs) < 1e-6f);
  };
  expect_equal(z + w, sz + sw);
  expect_equal(z - w, sz - sw);
  expect_equal(z * w, sz * sw);
  expect_equal(z / w, sz / sw);
  expect_equal(w / z, sw / sz);
  expect_equal(2.0f * z - 1.0f, 2.0f * sz - 1.0f);
  expect_equal(-z, -sz);
  expect_equal(conj(z), std::conj(sz));
  EXPECT(norm(z) == 25 && abs(z) == 5 && z == BE::complex64_t(sz) && z != w);
  BE::complex64_t sum = 1.0f;
  sum += z, sum *= w, sum /= w, sum -= z;
  expect_equal(sum, std::complex<float>(1, 0));
  const BE::complex128_t wide(z), huge(1e300, 1e300);
  EXPECT(wide.real == 3 && wide.imag == 4 && (huge / huge).real == 1 && (huge / huge).imag == 0);
  std::complex<double> array[1] = {{5, 6}};
  EXPECT(reinterpret_cast<double*>(array)[1] == 6 && sizeof(array) == sizeof(BE::complex128_t));
}

int main() {
  errors();
  EXPECT(static_cast<int>(DType::Invalid) == 255 && BE::dtype_size(static_cast<DType>(77)) == 0);
  EXPECT_TEXT(BE::dtype_name(DType::Float4E2M1FN), "float4_e2m1fn");
  EXPECT_TEXT(BE::dtype_name(DType::Invalid), "invalid");
  EXPECT_TEXT(BE::dtype_name(static_cast<DType>(77)), "invalid");
  half();
  small();
  complex();
}
