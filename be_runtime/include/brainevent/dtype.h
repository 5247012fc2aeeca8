#pragma once

/// \file
/// `BE::DType`, the element types of arrays.

#include <stddef.h>
#include <stdint.h>

// The differences between compilers.

/// Marks a function for the host and, under a CUDA compiler, for the device.
#if defined(__CUDACC__)
#define BE_HD __host__ __device__
#else
#define BE_HD
#endif

/// Defined while code for the GPU is being generated.
#if defined(__CUDA_ARCH__)
#define BE_DEVICE_PASS 1
#endif

/// Marks a function on an error path: it is not inlined, and placed apart from hot code.
#define BE_COLD __attribute__((cold, noinline))

/// A function that the handler defines once for all objects of a module.
#define BE_INTERNAL_HIDDEN extern "C" __attribute__((visibility("hidden")))

/// The element types, a row each, in the groups of brainevent/dispatch_macros.h:
///
/// `X(enumerator of DType, its value, C++ type, numpy's name, bits, enumerator of XLA_FFI_DataType, its value, ...)`
///
/// with the arguments after `X` in place of the dots. If several elements share a byte, the C++ type is that byte. All
/// facts about the types, here and in native/handler.cc, follow from these rows; a test compares them with
/// be_runtime/dtypes.py. Values below 31 are free for a new type, once.
#define BE_INTERNAL_BOOL_TYPES(X, ...) \
  X(Bool, 12, bool, bool, 8, PRED, 1, __VA_ARGS__)

#define BE_INTERNAL_HALF_TYPES(X, ...)                              \
  X(Float16, 0, ::BE::float16_t, float16, 16, F16, 10, __VA_ARGS__) \
  X(BFloat16, 3, ::BE::bfloat16_t, bfloat16, 16, BF16, 16, __VA_ARGS__)

#define BE_INTERNAL_FLOATING_TYPES(X, ...)                \
  X(Float32, 1, float, float32, 32, F32, 11, __VA_ARGS__) \
  X(Float64, 2, double, float64, 64, F64, 12, __VA_ARGS__)

#define BE_INTERNAL_INDEX_TYPES(X, ...)                \
  X(Int32, 6, int32_t, int32, 32, S32, 4, __VA_ARGS__) \
  X(Int64, 7, int64_t, int64, 64, S64, 5, __VA_ARGS__)

#define BE_INTERNAL_INTEGRAL_TYPES(X, ...)                 \
  X(Int8, 4, int8_t, int8, 8, S8, 2, __VA_ARGS__)          \
  X(Int16, 5, int16_t, int16, 16, S16, 3, __VA_ARGS__)     \
  BE_INTERNAL_INDEX_TYPES(X, __VA_ARGS__)                  \
  X(UInt8, 8, uint8_t, uint8, 8, U8, 6, __VA_ARGS__)       \
  X(UInt16, 9, uint16_t, uint16, 16, U16, 7, __VA_ARGS__)  \
  X(UInt32, 10, uint32_t, uint32, 32, U32, 8, __VA_ARGS__) \
  X(UInt64, 11, uint64_t, uint64, 64, U64, 9, __VA_ARGS__)

#define BE_INTERNAL_COMPLEX_TYPES(X, ...)                                  \
  X(Complex64, 13, ::BE::complex64_t, complex64, 64, C64, 15, __VA_ARGS__) \
  X(Complex128, 14, ::BE::complex128_t, complex128, 128, C128, 18, __VA_ARGS__)

#define BE_INTERNAL_FLOAT8_TYPES(X, ...)                                                                      \
  X(Float8E5M2, 15, ::BE::float8_e5m2_t, float8_e5m2, 8, F8E5M2, 19, __VA_ARGS__)                             \
  X(Float8E4M3FN, 16, ::BE::float8_e4m3fn_t, float8_e4m3fn, 8, F8E4M3FN, 20, __VA_ARGS__)                     \
  X(Float8E4M3B11FNUZ, 17, ::BE::float8_e4m3b11fnuz_t, float8_e4m3b11fnuz, 8, F8E4M3B11FNUZ, 23, __VA_ARGS__) \
  X(Float8E5M2FNUZ, 18, ::BE::float8_e5m2fnuz_t, float8_e5m2fnuz, 8, F8E5M2FNUZ, 24, __VA_ARGS__)             \
  X(Float8E4M3FNUZ, 19, ::BE::float8_e4m3fnuz_t, float8_e4m3fnuz, 8, F8E4M3FNUZ, 25, __VA_ARGS__)             \
  X(Float8E4M3, 20, ::BE::float8_e4m3_t, float8_e4m3, 8, F8E4M3, 28, __VA_ARGS__)                             \
  X(Float8E3M4, 21, ::BE::float8_e3m4_t, float8_e3m4, 8, F8E3M4, 29, __VA_ARGS__)                             \
  X(Float8E8M0FNU, 22, ::BE::float8_e8m0fnu_t, float8_e8m0fnu, 8, F8E8M0FNU, 33, __VA_ARGS__)

#define BE_INTERNAL_PACKED_TYPES(X, ...)                       \
  X(Int2, 23, ::BE::int2x4_t, int2, 2, S2, 26, __VA_ARGS__)    \
  X(UInt2, 24, ::BE::uint2x4_t, uint2, 2, U2, 27, __VA_ARGS__) \
  X(Int4, 25, ::BE::int4x2_t, int4, 4, S4, 21, __VA_ARGS__)    \
  X(UInt4, 26, ::BE::uint4x2_t, uint4, 4, U4, 22, __VA_ARGS__) \
  X(Float4E2M1FN, 27, ::BE::float4_e2m1fnx2_t, float4_e2m1fn, 4, F4E2M1FN, 32, __VA_ARGS__)

/// The types that attributes can also have.
#define BE_INTERNAL_SCALAR_TYPES(X, ...)     \
  BE_INTERNAL_BOOL_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_HALF_TYPES(X, __VA_ARGS__)     \
  BE_INTERNAL_FLOATING_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_INTEGRAL_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_COMPLEX_TYPES(X, __VA_ARGS__)

/// All element types.
#define BE_INTERNAL_ELEMENT_TYPES(X, ...)  \
  BE_INTERNAL_SCALAR_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_FLOAT8_TYPES(X, __VA_ARGS__) \
  BE_INTERNAL_PACKED_TYPES(X, __VA_ARGS__)

/// Lists the names of rows in one text, which begins with a comma and a space.
#define BE_INTERNAL_LISTED(dtype, value, type, name, ...) ", " #name

// The C++ types of elements that C++ lacks. Declarations only: `<cuda_fp16.h>` and `<cuda_bf16.h>` add a third
// of a second to each build. A declaration is enough for a pointer; `brainevent/dtypes.h`, or CUDA's own headers,
// define the types.

struct __half;
struct __nv_bfloat16;
struct __nv_fp8_e5m2;
struct __nv_fp8_e4m3;
struct __nv_fp8_e8m0;

/// CUDA's vectors, whose elements have no names. Its __nv_fp4_e2m1 isn't among them: it has a byte for each element.
#define BE_INTERNAL_CUDA_VECTORS(ROW)   \
  ROW(__nv_fp8x2_e5m2, Float8E5M2)    \
  ROW(__nv_fp8x4_e5m2, Float8E5M2)    \
  ROW(__nv_fp8x2_e4m3, Float8E4M3FN)  \
  ROW(__nv_fp8x4_e4m3, Float8E4M3FN)  \
  ROW(__nv_fp8x2_e8m0, Float8E8M0FNU) \
  ROW(__nv_fp8x4_e8m0, Float8E8M0FNU) \
  ROW(__nv_fp4x2_e2m1, Float4E2M1FN)  \
  ROW(__nv_fp4x4_e2m1, Float4E2M1FN)
#define BE_INTERNAL_DECLARED(type, dtype) struct type;
BE_INTERNAL_CUDA_VECTORS(BE_INTERNAL_DECLARED)

namespace BE {

#if defined(__CUDACC__)
using float16_t = ::__half;
using bfloat16_t = ::__nv_bfloat16;
#else
struct float16_t;
struct bfloat16_t;
#endif

template <class Real>
struct Complex;

/// A complex number of two `float`s. `brainevent/complex.h` defines the class.
using complex64_t = Complex<float>;
/// A complex number of two `double`s. `brainevent/complex.h` defines the class.
using complex128_t = Complex<double>;

struct float8_e5m2_t;
struct float8_e4m3fn_t;
struct float8_e4m3b11fnuz_t;
struct float8_e5m2fnuz_t;
struct float8_e4m3fnuz_t;
struct float8_e4m3_t;
struct float8_e3m4_t;
struct float8_e8m0fnu_t;

struct int2x4_t;
struct uint2x4_t;
struct int4x2_t;
struct uint4x2_t;
struct float4_e2m1fnx2_t;

/// The element type of an array. The values never change, because compiled modules contain the values.
enum class DType : uint8_t {
#define BE_INTERNAL_ENUMERATOR(dtype, value, ...) dtype = value,
  BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_ENUMERATOR, )
  Invalid = 255,
};

/// Return the number of bits of one element, or 0 for `Invalid`.
BE_HD constexpr size_t dtype_bits(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_BITS(dtype, value, type, name, bits, ...) \
  case DType::dtype: return bits;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_BITS, )
    case DType::Invalid: break;
  }
  return 0;
}

/// Return the number of bytes of one element, or 0 for `Invalid` and for types of 2 or 4 bits.
BE_HD constexpr size_t dtype_size(DType dtype) noexcept { return dtype_bits(dtype) / 8; }

/// Return numpy's name of the type, such as `"float32"`, or `"invalid"` for `Invalid`. The text is never freed.
BE_HD constexpr const char* dtype_name(DType dtype) noexcept {
  switch (dtype) {
#define BE_INTERNAL_NAME(dtype, value, type, name, ...) \
  case DType::dtype: return #name;
    BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_NAME, )
    case DType::Invalid: break;
  }
  return "invalid";
}

// The DType of each C++ type, and the C++ types through which the elements of a buffer may be read and written.

namespace internal {

template <class T>
struct DTypeOf;

#define BE_INTERNAL_DTYPE_OF(dtype, number, type, ...) \
  template <>                                          \
  struct DTypeOf<type> {                               \
    static constexpr DType value = DType::dtype;       \
  };
BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_DTYPE_OF, )

// CUDA's own types: 16-bit types in C++ sources that include its headers, and 8-bit types in addition to this
// library's.
#if !defined(__CUDACC__)
BE_INTERNAL_DTYPE_OF(Float16, , ::__half, )
BE_INTERNAL_DTYPE_OF(BFloat16, , ::__nv_bfloat16, )
#endif
BE_INTERNAL_DTYPE_OF(Float8E5M2, , ::__nv_fp8_e5m2, )
BE_INTERNAL_DTYPE_OF(Float8E4M3FN, , ::__nv_fp8_e4m3, )
BE_INTERNAL_DTYPE_OF(Float8E8M0FNU, , ::__nv_fp8_e8m0, )

// As wide as long, which is int64_t on every system that JAX runs on.
BE_INTERNAL_DTYPE_OF(Int64, , long long, )
BE_INTERNAL_DTYPE_OF(UInt64, , unsigned long long, )

template <class T>
struct DTypeOf<const T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<volatile T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<const volatile T> : DTypeOf<T> {};

/// DTypes as a set, for the buffers that a T* may point into: a bit for each. Every set holds `Invalid`, since a
/// placeholder has no elements to misread.
using DTypeSet = uint32_t;

template <class... DTypes>
constexpr DTypeSet dtype_set(DTypes... dtypes) noexcept {
  return ((DTypeSet{1} << static_cast<unsigned>(dtypes)) | ... | (DTypeSet{1} << 31));
}

constexpr DTypeSet kEveryDType = ~DTypeSet{0};
constexpr DTypeSet kNoDType = dtype_set();

/// Return the complex type that consists of two such numbers.
constexpr DTypeSet pairs_of(DTypeSet reals) noexcept {
  if (reals == dtype_set(DType::Float32)) return dtype_set(DType::Complex64);
  return reals == dtype_set(DType::Float64) ? dtype_set(DType::Complex128) : kNoDType;
}

/// The ranks of functions for a type, tried from the highest rank down.
template <int kRank>
struct Rank : Rank<kRank - 1> {};
template <>
struct Rank<0> {};

template <class T>
struct ValueOf {
  using type = T;
};
template <class T>
struct ValueOf<T&> {
  using type = T;
};

/// The x, y, z and w of a vector.
template <class First, class... Others>
struct Members {
  using type = First;
  static constexpr size_t size = (__is_same(First, Others) && ...) ? sizeof(First) * (1 + sizeof...(Others)) : 0;
};
template <class T>
auto members_of(Rank<3>) -> Members<decltype(T::x), decltype(T::y), decltype(T::z), decltype(T::w)>;
template <class T>
auto members_of(Rank<2>) -> Members<decltype(T::x), decltype(T::y), decltype(T::z)>;
template <class T>
auto members_of(Rank<1>) -> Members<decltype(T::x), decltype(T::y)>;
template <class T>
auto members_of(Rank<0>) -> Members<decltype(T::x)>;

// The elements to which a T* may point. In C++, the first three types may read the bytes of every object.
constexpr DTypeSet pointed_into(const volatile void*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile char*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile unsigned char*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile signed char*) noexcept { return dtype_set(DType::Int8, DType::Bool); }
constexpr DTypeSet pointed_into(const volatile uint16_t*) noexcept {
  return dtype_set(DType::UInt16, DType::Float16, DType::BFloat16);
}
#define BE_INTERNAL_CUDA_VECTOR(type, dtype) \
  constexpr DTypeSet pointed_into(const volatile ::type*) noexcept { return dtype_set(DType::dtype); }
BE_INTERNAL_CUDA_VECTORS(BE_INTERNAL_CUDA_VECTOR)
template <class T>
constexpr DTypeSet pointed_into(T* const volatile*) noexcept { return kNoDType; }
template <class T>
constexpr DTypeSet pointed_into(const volatile T*) noexcept;
template <class T, size_t kSize>
constexpr DTypeSet pointed_into(const volatile T (*)[kSize]) noexcept {
  return pointed_into(static_cast<const volatile T*>(nullptr));
}

/// The DTypes for a vector of `Part`s: buffers of `Part`s, and of pairs of `Part`s.
template <class Part>
constexpr DTypeSet vector_of(size_t size) noexcept {
  const DTypeSet parts = pointed_into(static_cast<const volatile Part*>(nullptr));
  return size % (2 * sizeof(Part)) == 0 ? parts | pairs_of(parts) : parts;
}

/// The element of a DType.
template <class T, DType kDType = DTypeOf<T>::value>
constexpr DTypeSet by_rule(Rank<4>) noexcept { return dtype_set(kDType); }

/// `float4`, `__half2` and other classes whose only members are x, y and so on, all of one type.
template <class T, class Found = decltype(members_of<T>(Rank<3>()))>
constexpr DTypeSet by_rule(Rank<3>) noexcept {
  return Found::size == sizeof(T) ? vector_of<typename Found::type>(sizeof(T)) : kNoDType;
}

/// `std::complex` and similar classes.
template <class T, class Real = typename ValueOf<decltype(static_cast<const T*>(nullptr)->real())>::type,
          class = decltype(static_cast<const T*>(nullptr)->imag())>
constexpr DTypeSet by_rule(Rank<2>) noexcept {
  const DTypeSet reals = pointed_into(static_cast<const volatile Real*>(nullptr));
  return sizeof(T) == 2 * sizeof(Real) ? pairs_of(reals) : kNoDType;
}

/// A compiler's own vectors, and classes that hold nothing but an array, such as `std::array`.
template <class T, class Part = typename ValueOf<decltype((*static_cast<T*>(nullptr))[0])>::type>
constexpr DTypeSet by_rule(Rank<1>) noexcept {
  return __is_trivially_copyable(T) && sizeof(T) % sizeof(Part) == 0 ? vector_of<Part>(sizeof(T)) : kNoDType;
}

/// A compiler's own 16-bit floats, distinguished by the number of bits that they keep.
template <class T>
constexpr DTypeSet by_number(decltype(static_cast<T>(0.5f))*) noexcept {
  if (sizeof(T) != 2 || static_cast<float>(static_cast<T>(0.5f)) != 0.5f) return kNoDType;
  const float finest = 1.0009765625f;
  return dtype_set(static_cast<float>(static_cast<T>(finest)) == finest ? DType::Float16 : DType::BFloat16);
}
template <class T>
constexpr DTypeSet by_number(...) noexcept { return kNoDType; }
template <class T>
constexpr DTypeSet by_rule(Rank<0>) noexcept {
  if constexpr (__is_class(T) || __is_union(T)) return kNoDType;
  else return by_number<T>(nullptr);
}

template <class T>
constexpr DTypeSet pointed_into(const volatile T*) noexcept {
  if constexpr (__is_enum(T)) return pointed_into(static_cast<const volatile __underlying_type(T)*>(nullptr));
  else return by_rule<T>(Rank<4>());
}

/// The element types of the buffers that a `T*` may point into.
template <class T>
constexpr DTypeSet kPointedInto = pointed_into(static_cast<const volatile T*>(nullptr));

// The bits of a float, and their rounding.

template <class To, class From>
BE_HD inline To bits_as(From value) noexcept {
  static_assert(sizeof(To) == sizeof(From), "the same bits");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

/// Drop the lowest `count` bits, 1 to 31, rounding to nearest and ties to even. A carry into the exponent is correct.
BE_HD constexpr uint32_t shift_right_rounded(uint32_t value, int count) noexcept {
  const uint32_t kept = value >> count;
  const uint32_t dropped = value & ((uint32_t{1} << count) - 1);
  const uint32_t half = uint32_t{1} << (count - 1);
  return kept + (dropped > half || (dropped == half && (kept & 1) != 0) ? 1 : 0);
}

}  // namespace internal
}  // namespace BE
