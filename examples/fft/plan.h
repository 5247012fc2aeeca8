#pragma once

// What both fft.cc and by_hand.cc compute: one row, by a mixed-radix Stockham transform. It knows nothing of JAX.

#include <cmath>
#include <complex>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

using Complex = std::complex<float>;

// Without the care for infinities that std::complex takes.
inline Complex times(Complex a, Complex b) {
    return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
}

// Everything that depends on the length and the options alone. A length with a large prime factor p takes p times longer.
class FftPlan {
public:
    FftPlan(int64_t n, std::string_view norm, bool inverse) : n_(n), direction_(inverse ? 1.0f : -1.0f) {
        if (n < 1) throw std::invalid_argument("n is " + std::to_string(n));
        if (norm != "backward" && norm != "ortho" && norm != "forward")
            throw std::invalid_argument("norm is \"" + std::string(norm) + '"');
        if (norm == "ortho") scale_ = 1.0f / std::sqrt(static_cast<float>(n));
        else if ((norm == "backward") == inverse) scale_ = 1.0f / static_cast<float>(n);
        int64_t rest = n;
        for (int64_t radix : {4, 2, 3}) take(radix, rest);
        for (int64_t radix = 5; rest > 1; radix += 2) take(radix * radix > rest ? rest : radix, rest);
        roots_.reserve(static_cast<size_t>(n));
        for (int64_t i = 0; i < n; ++i) {
            const double angle = direction_ * 2 * 3.14159265358979323846 * static_cast<double>(i) / static_cast<double>(n);
            roots_.emplace_back(static_cast<float>(std::cos(angle)), static_cast<float>(std::sin(angle)));
        }
    }

    int64_t size() const { return n_; }

    // Transforms a row of any length, cut or filled with zeros to `size()`. `room` is as long as the result.
    void run(const Complex* from, int64_t count, Complex* to, Complex* room) const {
        Complex *now = radices_.size() % 2 == 0 ? to : room, *next = now == to ? room : to;
        for (int64_t i = 0; i < n_; ++i) now[i] = i < count ? scale_ * from[i] : Complex();
        int64_t stride = 1;
        for (const int64_t radix : radices_) {
            switch (radix) {
                case 2: pass<2>(stride, now, next); break;
                case 3: pass<3>(stride, now, next); break;
                case 4: pass_by_4(stride, now, next); break;
                case 5: pass<5>(stride, now, next); break;
                default: pass_by_any(radix, stride, now, next);
            }
            stride *= radix;
            std::swap(now, next);
        }
    }

private:
    void take(int64_t radix, int64_t& rest) {
        for (; radix > 1 && rest % radix == 0; rest /= radix) radices_.push_back(radix);
    }

    // `stride` transforms of length n / stride each become `stride * radix` shorter ones.
    template <int64_t kRadix>
    void pass(int64_t stride, const Complex* __restrict from, Complex* __restrict to) const {
        const int64_t parts = n_ / stride / kRadix, apart = n_ / kRadix;
        const Complex* turn = roots_.data();
        Complex root[kRadix];
        for (int64_t i = 0; i < kRadix; ++i) root[i] = turn[i * apart];
        for (int64_t p = 0; p < parts; ++p)
            for (int64_t q = 0; q < stride; ++q)
                for (int64_t k = 0; k < kRadix; ++k) {
                    Complex sum = from[q + stride * p];
                    for (int64_t j = 1; j < kRadix; ++j) sum += times(from[q + stride * p + apart * j], root[j * k % kRadix]);
                    to[q + stride * (kRadix * p + k)] = times(sum, turn[p * k * stride]);
                }
    }

    void pass_by_any(int64_t radix, int64_t stride, const Complex* __restrict from, Complex* __restrict to) const {
        const int64_t parts = n_ / stride / radix, apart = n_ / radix;
        const Complex* turn = roots_.data();
        for (int64_t p = 0; p < parts; ++p)
            for (int64_t q = 0; q < stride; ++q)
                for (int64_t k = 0; k < radix; ++k) {
                    Complex sum;
                    for (int64_t j = 0, power = 0; j < radix; ++j) {
                        sum += times(from[q + stride * p + apart * j], turn[power * apart]);
                        power += power + k < radix ? k : k - radix;
                    }
                    to[q + stride * (radix * p + k)] = times(sum, turn[p * k * stride]);
                }
    }

    void pass_by_4(int64_t stride, const Complex* __restrict from, Complex* __restrict to) const {
        const int64_t parts = n_ / stride / 4, apart = n_ / 4;
        for (int64_t p = 0; p < parts; ++p) {
            const Complex* turn = roots_.data();
            const Complex once = turn[p * stride], twice = turn[2 * p * stride], thrice = turn[3 * p * stride];
            const Complex* in = from + stride * p;
            Complex* out = to + stride * 4 * p;
            for (int64_t q = 0; q < stride; ++q) {
                const Complex a = in[q], b = in[q + apart], c = in[q + 2 * apart], d = in[q + 3 * apart];
                const Complex even = a + c, odd = a - c, sum = b + d, difference = b - d;
                const Complex side = {-direction_ * difference.imag(), direction_ * difference.real()};
                out[q] = even + sum;
                out[q + stride] = times(odd + side, once);
                out[q + 2 * stride] = times(even - sum, twice);
                out[q + 3 * stride] = times(odd - side, thrice);
            }
        }
    }

    int64_t n_;
    float direction_, scale_ = 1.0f;
    std::vector<int64_t> radices_;
    std::vector<Complex> roots_;
};
