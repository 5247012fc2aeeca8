#pragma once

/// \file
/// The DType of each C++ type, and the C++ types through which the elements of a buffer may be read and written.
///
/// Names of types only: `brainevent/dtypes.h` defines those that are no built-in ones.

#include <stddef.h>
#include <stdint.h>

#include "brainevent/dtype.h"
#include "brainevent/type_names.h"

namespace BE {
namespace internal {

template <class T>
struct DTypeOf;

#define BE_INTERNAL_DTYPE_OF(dtype, number, type, ...) \
  template <>                                          \
  struct DTypeOf<type> {                               \
    static constexpr DType value = DType::dtype;       \
  };
BE_INTERNAL_ELEMENT_TYPES(BE_INTERNAL_DTYPE_OF, )

// CUDA's own: those of 16 bits, in C++ sources that include its headers, and those of 8 beside ours.
#if !defined(__CUDACC__)
BE_INTERNAL_DTYPE_OF(Float16, , ::__half, )
BE_INTERNAL_DTYPE_OF(BFloat16, , ::__nv_bfloat16, )
#endif
BE_INTERNAL_DTYPE_OF(Float8E5M2, , ::__nv_fp8_e5m2, )
BE_INTERNAL_DTYPE_OF(Float8E4M3FN, , ::__nv_fp8_e4m3, )
BE_INTERNAL_DTYPE_OF(Float8E8M0FNU, , ::__nv_fp8_e8m0, )
#undef BE_INTERNAL_DTYPE_OF

/// Of `long` and `long long` one is int64_t. This is the other, where it is as wide.
template <class T>
struct OtherInt64;
template <>
struct OtherInt64<long> {
  using type = long long;
  using unsigned_type = unsigned long long;
};
template <>
struct OtherInt64<long long> {
  using type = long;
  using unsigned_type = unsigned long;
};

template <>
struct DTypeOf<OtherInt64<int64_t>::type> {
  static constexpr DType value = sizeof(long) == 8 ? DType::Int64 : DType::Int32;
};
template <>
struct DTypeOf<OtherInt64<int64_t>::unsigned_type> {
  static constexpr DType value = sizeof(long) == 8 ? DType::UInt64 : DType::UInt32;
};

template <class T>
struct DTypeOf<const T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<volatile T> : DTypeOf<T> {};
template <class T>
struct DTypeOf<const volatile T> : DTypeOf<T> {};

// ---- Which buffers a T* may point into ------------------------------------------------------------------------------

/// DTypes as a set: a bit for each. Every set holds `Invalid`, since a placeholder has no elements to misread.
using DTypeSet = uint32_t;

template <class... DTypes>
constexpr DTypeSet dtype_set(DTypes... dtypes) noexcept {
  return ((DTypeSet{1} << static_cast<unsigned>(dtypes)) | ... | (DTypeSet{1} << 31));
}

constexpr DTypeSet kEveryDType = ~DTypeSet{0};
constexpr DTypeSet kNoDType = dtype_set();

/// The complex type of which two such numbers are one.
constexpr DTypeSet pairs_of(DTypeSet reals) noexcept {
  if (reals == dtype_set(DType::Float32)) return dtype_set(DType::Complex64);
  return reals == dtype_set(DType::Float64) ? dtype_set(DType::Complex128) : kNoDType;
}

/// The rules for a type, tried from the highest rank down.
template <int kRank>
struct Rule : Rule<kRank - 1> {};
template <>
struct Rule<0> {};

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
auto members_of(Rule<3>) -> Members<decltype(T::x), decltype(T::y), decltype(T::z), decltype(T::w)>;
template <class T>
auto members_of(Rule<2>) -> Members<decltype(T::x), decltype(T::y), decltype(T::z)>;
template <class T>
auto members_of(Rule<1>) -> Members<decltype(T::x), decltype(T::y)>;
template <class T>
auto members_of(Rule<0>) -> Members<decltype(T::x)>;

// Where a T* may point. C++ lets the bytes of every object be read through the first three.
constexpr DTypeSet pointed_into(const volatile void*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile char*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile unsigned char*) noexcept { return kEveryDType; }
constexpr DTypeSet pointed_into(const volatile signed char*) noexcept { return dtype_set(DType::Int8, DType::Bool); }
constexpr DTypeSet pointed_into(const volatile uint16_t*) noexcept {
  return dtype_set(DType::UInt16, DType::Float16, DType::BFloat16);
}
// CUDA's vectors, whose elements have no names. Its __nv_fp4_e2m1 isn't among them: it has a byte for each element.
#define BE_INTERNAL_CUDA_VECTOR(type, dtype) \
  constexpr DTypeSet pointed_into(const volatile ::type*) noexcept { return dtype_set(DType::dtype); }
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x2_e5m2, Float8E5M2)
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x4_e5m2, Float8E5M2)
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x2_e4m3, Float8E4M3FN)
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x4_e4m3, Float8E4M3FN)
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x2_e8m0, Float8E8M0FNU)
BE_INTERNAL_CUDA_VECTOR(__nv_fp8x4_e8m0, Float8E8M0FNU)
BE_INTERNAL_CUDA_VECTOR(__nv_fp4x2_e2m1, Float4E2M1FN)
BE_INTERNAL_CUDA_VECTOR(__nv_fp4x4_e2m1, Float4E2M1FN)
#undef BE_INTERNAL_CUDA_VECTOR
template <class T>
constexpr DTypeSet pointed_into(T* const volatile*) noexcept {
  return kNoDType;
}
template <class T>
constexpr DTypeSet pointed_into(const volatile T*) noexcept;
template <class T, size_t kSize>
constexpr DTypeSet pointed_into(const volatile T (*)[kSize]) noexcept {
  return pointed_into(static_cast<const volatile T*>(nullptr));
}

/// A vector of `Part`s: into buffers of them, and of pairs of them.
template <class Part>
constexpr DTypeSet vector_of(size_t size) noexcept {
  const DTypeSet parts = pointed_into(static_cast<const volatile Part*>(nullptr));
  return size % (2 * sizeof(Part)) == 0 ? parts | pairs_of(parts) : parts;
}

/// The element of a DType.
template <class T, DType kDType = DTypeOf<T>::value>
constexpr DTypeSet by_rule(Rule<4>) noexcept {
  return dtype_set(kDType);
}

/// `float4`, `__half2`, and whatever else has nothing but an x, a y and so on, all of one type.
template <class T, class Found = decltype(members_of<T>(Rule<3>()))>
constexpr DTypeSet by_rule(Rule<3>) noexcept {
  return Found::size == sizeof(T) ? vector_of<typename Found::type>(sizeof(T)) : kNoDType;
}

/// `std::complex` and its like.
template <class T, class Real = typename ValueOf<decltype(static_cast<const T*>(nullptr)->real())>::type,
          class = decltype(static_cast<const T*>(nullptr)->imag())>
constexpr DTypeSet by_rule(Rule<2>) noexcept {
  const DTypeSet reals = pointed_into(static_cast<const volatile Real*>(nullptr));
  return sizeof(T) == 2 * sizeof(Real) ? pairs_of(reals) : kNoDType;
}

/// A compiler's own vectors, and classes that hold nothing but an array, such as `std::array`.
template <class T, class Part = typename ValueOf<decltype((*static_cast<T*>(nullptr))[0])>::type>
constexpr DTypeSet by_rule(Rule<1>) noexcept {
  return __is_trivially_copyable(T) && sizeof(T) % sizeof(Part) == 0 ? vector_of<Part>(sizeof(T)) : kNoDType;
}

/// A compiler's own 16-bit floats, told by how many bits they keep.
template <class T>
constexpr DTypeSet by_number(decltype(static_cast<T>(0.5f))*) noexcept {
  if (sizeof(T) != 2 || static_cast<float>(static_cast<T>(0.5f)) != 0.5f) return kNoDType;
  const float finest = 1.0009765625f;
  return dtype_set(static_cast<float>(static_cast<T>(finest)) == finest ? DType::Float16 : DType::BFloat16);
}
template <class T>
constexpr DTypeSet by_number(...) noexcept {
  return kNoDType;
}
template <class T>
constexpr DTypeSet by_rule(Rule<0>) noexcept {
  if constexpr (__is_class(T) || __is_union(T)) {
    return kNoDType;
  } else {
    return by_number<T>(nullptr);
  }
}

template <class T>
constexpr DTypeSet pointed_into(const volatile T*) noexcept {
  if constexpr (__is_enum(T)) {
    return pointed_into(static_cast<const volatile __underlying_type(T)*>(nullptr));
  } else {
    return by_rule<T>(Rule<4>());
  }
}

/// The element types of the buffers that a `T*` may point into.
template <class T>
constexpr DTypeSet kPointedInto = pointed_into(static_cast<const volatile T*>(nullptr));

}  // namespace internal
}  // namespace BE
