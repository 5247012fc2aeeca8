#pragma once

/// \file
/// `BE::Complex`, complex numbers for host and device code.
///
/// `std::complex`, `cuComplex` and numpy's complex types have the layout of `BE::Complex`: the real part is before the
/// imaginary part. You may cast a pointer to one of these types to a pointer to `BE::Complex`, if the address is a
/// multiple of the size of the number.

#include "brainevent/dtype.h"

namespace BE {

/// The number `real + imag * i`. The alignment is the size, so a GPU reads a number with one instruction.
///
/// The operators are `+`, `-`, `*`, `/`, `==` and `!=`. One operand may be a real number. The functions are `conj(z)`,
/// `abs(z)` and `norm(z)`. `norm(z)` returns the squared absolute value. Unlike in the C standard, a product with an
/// infinite factor may be NaN.
template <class Real>
struct alignas(2 * sizeof(Real)) Complex {
  using value_type = Real;

  Real real;
  Real imag;

  Complex() noexcept = default;
  BE_HD constexpr Complex(Real real_part, Real imag_part = Real(0)) noexcept : real(real_part), imag(imag_part) {}

  /// Convert from a `Complex` with a different type `Real`.
  template <class Other>
  BE_HD constexpr explicit Complex(const Complex<Other>& other) noexcept
      : real(static_cast<Real>(other.real)), imag(static_cast<Real>(other.imag)) {}

  /// Convert from `std::complex<Real>` and similar classes, on the host.
  template <class Other, class = decltype(static_cast<Real (Other::*)() const>(&Other::real))>
  constexpr Complex(const Other& other) : real(other.real()), imag(other.imag()) {}

  /// Convert to `std::complex<Real>` and similar classes, on the host: `static_cast<std::complex<float>>(z)`.
  template <class Other, class = decltype(static_cast<Real (Other::*)() const>(&Other::real))>
  constexpr explicit operator Other() const {
    return Other(real, imag);
  }

  BE_HD constexpr Complex& operator+=(const Complex& other) noexcept { return *this = *this + other; }
  BE_HD constexpr Complex& operator-=(const Complex& other) noexcept { return *this = *this - other; }
  BE_HD constexpr Complex& operator*=(const Complex& other) noexcept { return *this = *this * other; }
  BE_HD constexpr Complex& operator/=(const Complex& other) noexcept { return *this = *this / other; }

  // Friends rather than templates, so that the other operand may be a real number.
  BE_HD friend constexpr Complex operator+(const Complex& a) noexcept { return a; }
  BE_HD friend constexpr Complex operator-(const Complex& a) noexcept { return {-a.real, -a.imag}; }
  BE_HD friend constexpr Complex operator+(const Complex& a, const Complex& b) noexcept {
    return {a.real + b.real, a.imag + b.imag};
  }
  BE_HD friend constexpr Complex operator-(const Complex& a, const Complex& b) noexcept {
    return {a.real - b.real, a.imag - b.imag};
  }
  BE_HD friend constexpr Complex operator*(const Complex& a, const Complex& b) noexcept {
    return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
  }
  /// Divide by Smith's algorithm, which does not overflow if the quotient itself can be represented.
  BE_HD friend constexpr Complex operator/(const Complex& a, const Complex& b) noexcept {
    const Real size_real = b.real < 0 ? -b.real : b.real;
    const Real size_imag = b.imag < 0 ? -b.imag : b.imag;
    if (size_real >= size_imag) {
      const Real ratio = b.imag / b.real;
      const Real denominator = b.real + b.imag * ratio;
      return {(a.real + a.imag * ratio) / denominator, (a.imag - a.real * ratio) / denominator};
    }
    const Real ratio = b.real / b.imag;
    const Real denominator = b.real * ratio + b.imag;
    return {(a.real * ratio + a.imag) / denominator, (a.imag * ratio - a.real) / denominator};
  }
  BE_HD friend constexpr bool operator==(const Complex& a, const Complex& b) noexcept {
    return a.real == b.real && a.imag == b.imag;
  }
  BE_HD friend constexpr bool operator!=(const Complex& a, const Complex& b) noexcept { return !(a == b); }

  BE_HD friend constexpr Complex conj(const Complex& a) noexcept { return {a.real, -a.imag}; }
  /// Return the squared absolute value.
  BE_HD friend constexpr Real norm(const Complex& a) noexcept { return a.real * a.real + a.imag * a.imag; }
  BE_HD friend Real abs(const Complex& a) noexcept {
#if defined(__CUDACC__)
    return ::hypot(a.real, a.imag);
#else
    return static_cast<Real>(__builtin_hypot(a.real, a.imag));
#endif
  }
};

}  // namespace BE
