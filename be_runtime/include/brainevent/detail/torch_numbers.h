#pragma once

/// \file
/// `at::Half`, `at::BFloat16` and `c10::complex`, for brainevent/torch_compat.h.

#include <complex>
#include <limits>
#include <type_traits>

#include "brainevent/complex.h"
#include "brainevent/half.h"

// A separate class: authors overload functions for it in addition to CUDA's, such as atomicAdd and __shfl_down_sync.
// Every operator is declared, since a conversion to float and one to CUDA's type make a built-in one ambiguous.
#define BE_INTERNAL_TORCH_HALF(NAME, STORED, LOWEST, MAX, MIN, EPSILON, INFINITE, QUIET, DIGITS)          \
  namespace c10 {                                                                                                      \
  struct alignas(2) NAME {                                                                                             \
    struct from_bits_t {};                                                                                             \
    uint16_t x;                                                                                                        \
    NAME() = default;                                                                                                  \
    BE_HD constexpr NAME(uint16_t bits, from_bits_t) noexcept : x(bits) {}                                             \
    static BE_HD constexpr from_bits_t from_bits() noexcept { return {}; }                                             \
    BE_HD NAME(float value) noexcept : x(::BE::internal::bits_as<uint16_t>(::BE::STORED(value))) {}                    \
    BE_HD NAME(const ::BE::STORED& value) noexcept : x(::BE::internal::bits_as<uint16_t>(value)) {}                    \
    BE_HD operator float() const noexcept { return static_cast<float>(::BE::internal::bits_as<::BE::STORED>(x)); }     \
    BE_HD operator ::BE::STORED() const noexcept { return ::BE::internal::bits_as<::BE::STORED>(x); }                  \
  };                                                                                                                   \
  BE_HD inline NAME operator-(const NAME& a) noexcept { return NAME(-static_cast<float>(a)); }                         \
  BE_INTERNAL_TORCH_ARITHMETIC(NAME, +, +=)                                                                            \
  BE_INTERNAL_TORCH_ARITHMETIC(NAME, -, -=)                                                                            \
  BE_INTERNAL_TORCH_ARITHMETIC(NAME, *, *=)                                                                            \
  BE_INTERNAL_TORCH_ARITHMETIC(NAME, /, /=)                                                                            \
  BE_INTERNAL_TORCH_COMPARISON(NAME, ==)                                                                               \
  BE_INTERNAL_TORCH_COMPARISON(NAME, !=)                                                                               \
  BE_INTERNAL_TORCH_COMPARISON(NAME, <)                                                                                \
  BE_INTERNAL_TORCH_COMPARISON(NAME, <=)                                                                               \
  BE_INTERNAL_TORCH_COMPARISON(NAME, >)                                                                                \
  BE_INTERNAL_TORCH_COMPARISON(NAME, >=)                                                                               \
  }                                                                                                                    \
  template <>                                                                                                          \
  class std::numeric_limits<::c10::NAME> : public std::numeric_limits<float> {                                         \
   public:                                                                                                             \
    static constexpr int digits = DIGITS;                                                                              \
    static constexpr ::c10::NAME lowest() { return {LOWEST, ::c10::NAME::from_bits()}; }                               \
    static constexpr ::c10::NAME max() { return {MAX, ::c10::NAME::from_bits()}; }                                     \
    static constexpr ::c10::NAME min() { return {MIN, ::c10::NAME::from_bits()}; }                                     \
    static constexpr ::c10::NAME epsilon() { return {EPSILON, ::c10::NAME::from_bits()}; }                             \
    static constexpr ::c10::NAME infinity() { return {INFINITE, ::c10::NAME::from_bits()}; }                           \
    static constexpr ::c10::NAME quiet_NaN() { return {QUIET, ::c10::NAME::from_bits()}; }                             \
  };

#define BE_INTERNAL_TORCH_NUMBER class T, class = ::std::enable_if_t<::std::is_arithmetic_v<T>>

/// With an integer the result keeps the 16 bits; with a float or a double it has the type of the other operand.
#define BE_INTERNAL_TORCH_ARITHMETIC(NAME, OP, ASSIGN)                                                                 \
  BE_HD inline NAME operator OP(const NAME& a, const NAME& b) noexcept {                                               \
    return NAME(static_cast<float>(a) OP static_cast<float>(b));                                                       \
  }                                                                                                                    \
  template <BE_INTERNAL_TORCH_NUMBER>                                                                                  \
  BE_HD inline ::std::conditional_t<::std::is_integral_v<T>, NAME, T> operator OP(const NAME& a, T b) noexcept {       \
    using Result = ::std::conditional_t<::std::is_integral_v<T>, float, T>;                                            \
    return static_cast<Result>(a) OP static_cast<Result>(b);                                                           \
  }                                                                                                                    \
  template <BE_INTERNAL_TORCH_NUMBER>                                                                                  \
  BE_HD inline ::std::conditional_t<::std::is_integral_v<T>, NAME, T> operator OP(T a, const NAME& b) noexcept {       \
    using Result = ::std::conditional_t<::std::is_integral_v<T>, float, T>;                                            \
    return static_cast<Result>(a) OP static_cast<Result>(b);                                                           \
  }                                                                                                                    \
  BE_HD inline NAME& operator ASSIGN(NAME& a, float b) noexcept { return a = NAME(static_cast<float>(a) OP b); }

#define BE_INTERNAL_TORCH_COMPARISON(NAME, OP)                                                                         \
  BE_HD inline bool operator OP(const NAME& a, const NAME& b) noexcept {                                               \
    return static_cast<float>(a) OP static_cast<float>(b);                                                             \
  }                                                                                                                    \
  template <BE_INTERNAL_TORCH_NUMBER>                                                                                  \
  BE_HD inline bool operator OP(const NAME& a, T b) noexcept {                                                         \
    return static_cast<double>(static_cast<float>(a)) OP static_cast<double>(b);                                       \
  }                                                                                                                    \
  template <BE_INTERNAL_TORCH_NUMBER>                                                                                  \
  BE_HD inline bool operator OP(T a, const NAME& b) noexcept {                                                         \
    return static_cast<double>(a) OP static_cast<double>(static_cast<float>(b));                                       \
  }

BE_INTERNAL_TORCH_HALF(Half, float16_t, 0xfbff, 0x7bff, 0x0400, 0x1400, 0x7c00, 0x7e00, 11)
BE_INTERNAL_TORCH_HALF(BFloat16, bfloat16_t, 0xff7f, 0x7f7f, 0x0080, 0x3c00, 0x7f80, 0x7fc0, 8)

namespace c10 {

/// A complex number with torch's member names.
template <class T>
struct alignas(2 * sizeof(T)) complex {
  using value_type = T;

  T real_ = T(0);
  T imag_ = T(0);

  constexpr complex() = default;
  BE_HD constexpr complex(const T& re, const T& im = T(0)) noexcept : real_(re), imag_(im) {}
  template <class U>
  BE_HD constexpr explicit complex(const complex<U>& other) noexcept
      : real_(static_cast<T>(other.real_)), imag_(static_cast<T>(other.imag_)) {}
  BE_HD constexpr complex(const ::BE::Complex<T>& z) noexcept : real_(z.real), imag_(z.imag) {}
  BE_HD constexpr operator ::BE::Complex<T>() const noexcept { return {real_, imag_}; }

  BE_HD constexpr T real() const noexcept { return real_; }
  BE_HD constexpr T imag() const noexcept { return imag_; }
  BE_HD constexpr void real(T value) noexcept { real_ = value; }
  BE_HD constexpr void imag(T value) noexcept { imag_ = value; }

#define BE_INTERNAL_TORCH_COMPLEX(OP, ASSIGN)                                                        \
  BE_HD friend constexpr complex operator OP(const complex& a, const complex& b) noexcept {          \
    return ::BE::Complex<T>(a.real_, a.imag_) OP ::BE::Complex<T>(b.real_, b.imag_);                 \
  }                                                                                                  \
  BE_HD constexpr complex& operator ASSIGN(const complex& b) noexcept { return *this = *this OP b; }
  BE_INTERNAL_TORCH_COMPLEX(+, +=)
  BE_INTERNAL_TORCH_COMPLEX(-, -=)
  BE_INTERNAL_TORCH_COMPLEX(*, *=)
  BE_INTERNAL_TORCH_COMPLEX(/, /=)
#undef BE_INTERNAL_TORCH_COMPLEX

  BE_HD friend constexpr complex operator-(const complex& a) noexcept { return {-a.real_, -a.imag_}; }
  BE_HD friend constexpr bool operator==(const complex& a, const complex& b) noexcept {
    return a.real_ == b.real_ && a.imag_ == b.imag_;
  }
  BE_HD friend constexpr bool operator!=(const complex& a, const complex& b) noexcept { return !(a == b); }
};

}  // namespace c10

// In torch's namespaces, for calls with the name of a namespace.
namespace std {
template <class T>
BE_HD constexpr c10::complex<T> conj(const c10::complex<T>& z) {
  return {z.real_, -z.imag_};
}
template <class T>
BE_HD T abs(const c10::complex<T>& z) {
  return abs(::BE::Complex<T>(z));
}
template <class T>
BE_HD constexpr T real(const c10::complex<T>& z) {
  return z.real_;
}
template <class T>
BE_HD constexpr T imag(const c10::complex<T>& z) {
  return z.imag_;
}
}  // namespace std

namespace BE::internal {
BE_INTERNAL_DTYPE_OF(Float16, , ::c10::Half, )
BE_INTERNAL_DTYPE_OF(BFloat16, , ::c10::BFloat16, )
}  // namespace BE::internal
