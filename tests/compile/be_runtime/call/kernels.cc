// Kernels that tests of calls share. Of programs on several devices: split along b, or summed along b, or needed whole.
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <string_view>

#include "brainevent/common.h"

using BE::Tensor;

static const float* in(const Tensor& x) { return x.data_ptr<float>(); }
static float* out(Tensor& x) { return x.data_ptr<float>(); }
static void copy_all(const Tensor& x, Tensor& y) { std::memcpy(y.data_ptr(), x.data_ptr(), y.nbytes()); }

// Each element by its number.
template <typename Value>
static void fill(Tensor& y, Value value) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = static_cast<float>(value(i));
}
// Sums of n values each.
template <typename Value>
static void sums(Tensor& y, int64_t n, Value value) {
  fill(y, [](int64_t) { return 0; });
  for (int64_t i = 0; i < y.numel(); ++i)
    for (int64_t k = 0; k < n; ++k) out(y)[i] += value(i, k);
}
template <typename Step>
static void scan(const Tensor& x, Tensor& y, Step at) {
  const int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) out(y)[i * n + at(k, n)] = sum += in(x)[i * n + at(k, n)];
  }
}

// @BE cumsum arg[... n] ret[... n]
void cumsum(const Tensor x, Tensor y) { scan(x, y, [](int64_t k, int64_t) { return k; }); }
// @BE backsum arg[... n] ret[... n]
void backsum(const Tensor x, Tensor y) { scan(x, y, [](int64_t k, int64_t n) { return n - 1 - k; }); }
// @BE rows arg[b n] ret[b n] parallel[b]
void rows(const Tensor x, Tensor y) { cumsum(x, y); }
// @BE whole arg[b n] ret[b n]
void whole(const Tensor x, Tensor y) { cumsum(x, y); }
// @BE bare arg ret:like(0)
void bare(const Tensor x, Tensor y) { cumsum(x, y); }
// @BE last arg[... n] ret[n]
void last(const Tensor x, Tensor y) { fill(y, [&](int64_t i) { return in(x)[x.numel() - y.numel() + i]; }); }

// @BE wsum arg[... b n] arg[... b] ret[... n] reduce[b]
void wsum(const Tensor x, const Tensor w, Tensor y) {
  const int64_t n = x.size(-1), b = x.size(-2);
  sums(y, b, [&](int64_t i, int64_t k) { return in(x)[(i / n * b + k) * n + i % n] * in(w)[i / n * b + k]; });
}
// @BE outer arg[n] arg[b] ret[b n] parallel[b]
void outer(const Tensor g, const Tensor w, Tensor y) {
  fill(y, [&](int64_t i) { return in(w)[i / g.size(0)] * in(g)[i % g.size(0)]; });
}
// @BE dots arg[b n] arg[n] ret[b] parallel[b]
void dots(const Tensor x, const Tensor g, Tensor y) {
  sums(y, g.size(0), [&](int64_t i, int64_t k) { return in(x)[i * g.size(0) + k] * in(g)[k]; });
}
// @BE scale arg[b n] arg[n] ret[b n] parallel[b]
void scale(const Tensor x, const Tensor w, Tensor y) {
  fill(y, [&](int64_t i) { return in(x)[i] * in(w)[i % w.size(0)]; });
}
// @BE scale_w arg[b n] arg[b n] ret[n] reduce[b]
void scale_w(const Tensor x, const Tensor g, Tensor y) {
  const int64_t n = y.size(0);
  sums(y, x.size(0), [&](int64_t i, int64_t k) { return in(x)[k * n + i] * in(g)[k * n + i]; });
}

// @BE moments arg[b n] ret[b] ret[b]:float32 ret[b]:int32 parallel[b]
void moments(const Tensor x, Tensor mean, Tensor square, Tensor count) {
  const int64_t n = x.size(1);
  sums(mean, n, [&](int64_t i, int64_t k) { return in(x)[i * n + k] / n; });
  sums(square, n, [&](int64_t i, int64_t k) { return in(x)[i * n + k] * in(x)[i * n + k] / n; });
  for (int64_t i = 0; i < x.size(0); ++i) count.data_ptr<int32_t>()[i] = static_cast<int32_t>(n);
}
// @BE totals arg[b n] ret[n] ret[] reduce[b]
void totals(const Tensor x, Tensor each, Tensor all) {
  sums(each, x.size(0), [&](int64_t i, int64_t k) { return in(x)[k * each.size(0) + i]; });
  sums(all, x.numel(), [&](int64_t, int64_t k) { return in(x)[k]; });
}
// @BE spare arg[b n] scratch[b*n*4+8] ret[b n] parallel[b]
void spare(const Tensor x, BE::Workspace scratch, Tensor y) {
  BE_CHECK(scratch.size() == x.numel() * 4 + 8) << scratch.size() << " bytes for " << x.numel() << " elements";
  std::memcpy(scratch.data(), in(x), x.nbytes());
  std::memcpy(out(y), scratch.data(), x.nbytes());
}
// The extents of one device.
// @BE extents arg[b n] ret[b 2]:int32 parallel[b]
void extents(const Tensor x, Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<int32_t>()[i] = static_cast<int32_t>(x.size(i % 2));
}
// @BE affine arg[b n] ret[b n] attr.by attr.shift attr.power parallel[b]
void affine(const Tensor x, Tensor y, float by, double shift, int64_t power) {
  fill(y, [&](int64_t i) { return by * std::pow(in(x)[i], power) + shift; });
}

enum class Mode { add, subtract };
struct Pair {
  double a;
  int8_t b;
};
// @BE mixed arg[b n] ret[b n] attr.name attr.weights attr.mode attr.pair attr.hole parallel[b]
void mixed(const Tensor x, Tensor y, std::string_view name, BE::Span<const float> weights, Mode mode, Pair pair,
           float hole) {
  BE_CHECK(hole != hole && mode == Mode::add);
  float sum = static_cast<float>(name.size() + pair.a + pair.b);
  for (float each : weights) sum += each;
  fill(y, [&](int64_t i) { return in(x)[i] + sum; });
}
// @BE add_to arg[b n] arg[b n] ret[b n] parallel[b]
void add_to(const Tensor total, const Tensor x, Tensor y) {
  BE_CHECK(total.data_ptr() == y.data_ptr()) << "not in place";
  fill(y, [&](int64_t i) { return out(y)[i] + in(x)[i]; });
}
// @BE table arg[a] arg[b] ret[a b] parallel[a b]
void table(const Tensor x, const Tensor w, Tensor y) { outer(w, x, y); }
// Each part gives its first row, so the sum is that of the parts' first rows, for elements of any type.
// @BE firsts arg[b n] ret[n] reduce[b]
void firsts(const Tensor x, Tensor y) { copy_all(x, y); }
// @BE copy arg[b n] ret[b n] parallel[b]
void copy(const Tensor x, Tensor y) { copy_all(x, y); }

static int calls = 0, order = 0;
// @BE note arg[b] ret[b] parallel[b]
void note(const Tensor x, Tensor y) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  copy_all(x, y);
}
// @BE noted arg[] ret[]:int32
void noted(const Tensor, Tensor y) { *y.data_ptr<int32_t>() = __atomic_exchange_n(&calls, 0, __ATOMIC_SEQ_CST); }
// @BE adds arg[n]:float32 arg[k]:float32 ret[n]:float32 ret[2]:int32 scratch[4*n]
void adds(const Tensor x, const Tensor w, Tensor y, Tensor sizes, BE::Workspace scratch) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  std::memcpy(scratch.data(), in(x), x.nbytes());
  fill(y, [&](int64_t i) { return scratch.data_as<float>()[i] + in(w)[0]; });
  sizes.data_ptr<int32_t>()[0] = x.numel_checked_int(), sizes.data_ptr<int32_t>()[1] = w.numel_checked_int();
}

// Of derivatives: linear ones, others, and those that are rules.

// @BE matvec arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1
void matvec(const Tensor a, const Tensor x, Tensor y, float alpha) {
  sums(y, x.size(0), [&](int64_t i, int64_t k) { return alpha * in(a)[i * x.size(0) + k] * in(x)[k]; });
}
// @BE matvec_t arg[n k] arg[n] ret[k] attr.alpha:float32
void matvec_t(const Tensor a, const Tensor g, Tensor y, float alpha) {
  sums(y, g.size(0), [&](int64_t i, int64_t k) { return alpha * in(a)[k * y.size(0) + i] * in(g)[k]; });
}
// @BE product_of arg[n] arg[k] ret[n k] attr.alpha:float32
void product_of(const Tensor g, const Tensor x, Tensor y, float alpha) {
  fill(y, [&](int64_t i) { return alpha * in(g)[i / x.size(0)] * in(x)[i % x.size(0)]; });
}
// @BE cube arg[... n] ret[... n]
void cube(const Tensor x, Tensor y) { fill(y, [&](int64_t i) { return in(x)[i] * in(x)[i] * in(x)[i]; }); }
// @BE cube_bwd arg[... n] arg[... n] ret[... n]
void cube_bwd(const Tensor x, const Tensor g, Tensor y) {
  fill(y, [&](int64_t i) { return 3 * in(x)[i] * in(x)[i] * in(g)[i]; });
}
// @BE cube_fwd arg[... n] ret[... n] ret[... n]
void cube_fwd(const Tensor x, Tensor y, Tensor slope) {
  cube(x, y);
  fill(slope, [&](int64_t i) { return 3 * in(x)[i] * in(x)[i]; });
}
// @BE times arg[... n] arg[... n] ret[... n]
void times(const Tensor x, const Tensor g, Tensor y) { fill(y, [&](int64_t i) { return in(x)[i] * in(g)[i]; }); }
// @BE floor arg[... n] ret[... n]:int32
void floor(const Tensor x, Tensor y) { std::memset(y.data_ptr(), static_cast<int>(in(x)[0]), y.nbytes()); }
// @BE pick arg[n] arg[k]:int32 ret[k]:like(0)
void pick(const Tensor x, const Tensor at, Tensor y) {
  fill(y, [&](int64_t i) { return in(x)[at.data_ptr<int32_t>()[i]]; });
}
// @BE place arg[n] arg[k]:int32 arg[k] ret[n]:like(0)
void place(const Tensor x, const Tensor at, const Tensor g, Tensor y) {
  sums(y, g.numel(), [&](int64_t i, int64_t k) { return at.data_ptr<int32_t>()[k] == i ? in(g)[k] : 0; });
}
// @BE product arg?[n] arg[n] arg...[n] ret[n]
void product(const std::optional<Tensor>& w, const Tensor x, const BE::Tensors rest, Tensor y) {
  fill(y, [&](int64_t i) { return w ? in(*w)[i] * in(x)[i] : in(x)[i]; });
  for (const Tensor& each : rest) fill(y, [&](int64_t i) { return out(y)[i] * in(each)[i]; });
}
// @BE shifted arg[... n] arg?[... n] ret[... n] attr.by:float32=3
void shifted(const Tensor x, const Tensor* add, Tensor y, float by) {
  fill(y, [&](int64_t i) { return by * in(x)[i] + (add ? in(*add)[i] : 0); });
}
// The default is not that of `shifted`, so that a rule which is not given the call's shows.
// @BE shifted_bwd arg[... n] arg?[... n] arg[... n] ret[... n] ret[... n] attr.by:float32=1
void shifted_bwd(const Tensor x, const Tensor* add, const Tensor g, Tensor dx, Tensor dadd, float by) {
  fill(dx, [&](int64_t i) { return by * in(g)[i]; });
  copy_all(g, dadd);
}
// @BE total arg...[n]:float32 ret[n]:float32
void total(const BE::Tensors xs, Tensor y) {
  sums(y, xs.size(), [&](int64_t i, int64_t k) { return in(xs[k])[i]; });
}
// @BE weighted arg[n] ret[n] attr.weights
void weighted(const Tensor x, Tensor y, BE::Span<const float> weights) {
  fill(y, [&](int64_t i) { return weights[i] * in(x)[i]; });
}

// Of calls from Python.

// @BE scaled arg ret:like(0) attr.by
void scaled(const Tensor x, Tensor y, float by) { fill(y, [&](int64_t i) { return by * in(x)[i]; }); }
// @BE twice arg ret:like(0)
void twice(const Tensor x, Tensor y) { scaled(x, y, 2); }
// @BE doubled arg[]:float32 ret[]:float32
void doubled(const Tensor x, Tensor y) { scaled(x, y, 2); }
// @BE repeat arg ret ret:int32
void repeat(const Tensor x, Tensor y, Tensor size) {
  fill(y, [&](int64_t i) { return in(x)[i % x.numel()]; });
  *size.data_ptr<int32_t>() = y.numel_checked_int();
}
// @BE pairs arg[n] ret[n/2 2]
void pairs(const Tensor x, Tensor y) { copy_all(x, y); }
// @BE bins arg[n] ret[attr.count ceil(n/attr.count)-n//n] attr.count
void bins(const Tensor, Tensor y, int count) { fill(y, [&](int64_t) { return count; }); }
enum class Speed { fast, slow };
// @BE choose arg[] ret[]:int32 attr.mode
void choose(const Tensor, Tensor y, Speed mode) { *y.data_ptr<int32_t>() = static_cast<int32_t>(mode); }
// @BE sign arg[] ret[]:float32 attr.self
void sign(const Tensor, Tensor y, std::complex<float> self) { *out(y) = std::copysign(1.0f, self.imag()); }
// @BE stamp arg[] ret[]:int32
void stamp(const Tensor, Tensor y) { *y.data_ptr<int32_t>() = order++; }
