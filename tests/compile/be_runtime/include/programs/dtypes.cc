#include <complex>
#include <type_traits>

#include "brainevent/dtypes.h"
#include "expect.h"

using BE::DType;

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
  EXPECT(static_cast<int>(DType::Invalid) == 255 && BE::dtype_size(static_cast<DType>(77)) == 0);
  EXPECT_TEXT(BE::dtype_name(DType::Float4E2M1FN), "float4_e2m1fn");
  EXPECT_TEXT(BE::dtype_name(DType::Invalid), "invalid");
  EXPECT_TEXT(BE::dtype_name(static_cast<DType>(77)), "invalid");
  half();
  small();
  complex();
}
