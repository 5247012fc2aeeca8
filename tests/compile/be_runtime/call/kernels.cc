// Kernels that tests of calls share. Of programs on several devices: split along b, or summed along b, or needed whole.
#include <cmath>
#include <complex>
#include <cstring>
#include <optional>
#include <string_view>

#include "brainevent/common.h"

static const float* in(const BE::Tensor& x) { return x.data_ptr<float>(); }
static float* out(BE::Tensor& x) { return x.data_ptr<float>(); }

template <typename Step>
static void scan(const BE::Tensor& x, BE::Tensor& y, Step at) {
  const int64_t n = x.size(-1), rows = n ? x.numel() / n : 0;
  for (int64_t i = 0; i < rows; ++i) {
    float sum = 0;
    for (int64_t k = 0; k < n; ++k) out(y)[i * n + at(k, n)] = sum += in(x)[i * n + at(k, n)];
  }
}

// @BE cumsum arg[... n] ret[... n]
void cumsum(const BE::Tensor x, BE::Tensor y) { scan(x, y, [](int64_t k, int64_t) { return k; }); }
// @BE backsum arg[... n] ret[... n]
void backsum(const BE::Tensor x, BE::Tensor y) { scan(x, y, [](int64_t k, int64_t n) { return n - 1 - k; }); }
// @BE rows arg[b n] ret[b n] parallel[b]
void rows(const BE::Tensor x, BE::Tensor y) { cumsum(x, y); }
// @BE whole arg[b n] ret[b n]
void whole(const BE::Tensor x, BE::Tensor y) { cumsum(x, y); }
// @BE bare arg ret:like(0)
void bare(const BE::Tensor x, BE::Tensor y) { cumsum(x, y); }
// @BE last arg[... n] ret[n]
void last(const BE::Tensor x, BE::Tensor y) {
  std::memcpy(out(y), in(x) + x.numel() - y.numel(), sizeof(float) * y.numel());
}

// @BE wsum arg[... b n] arg[... b] ret[... n] reduce[b]
void wsum(const BE::Tensor x, const BE::Tensor w, BE::Tensor y) {
  const int64_t n = x.size(-1), b = x.size(-2);
  for (int64_t i = 0; i < y.numel(); ++i) {
    const int64_t t = i / n;
    float sum = 0;
    for (int64_t k = 0; k < b; ++k) sum += in(x)[(t * b + k) * n + i % n] * in(w)[t * b + k];
    out(y)[i] = sum;
  }
}
// @BE outer arg[n] arg[b] ret[b n] parallel[b]
void outer(const BE::Tensor g, const BE::Tensor w, BE::Tensor y) {
  const int64_t n = g.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(w)[i / n] * in(g)[i % n];
}
// @BE dots arg[b n] arg[n] ret[b] parallel[b]
void dots(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  const int64_t n = g.size(0);
  for (int64_t i = 0; i < y.size(0); ++i) {
    out(y)[i] = 0;
    for (int64_t k = 0; k < n; ++k) out(y)[i] += in(x)[i * n + k] * in(g)[k];
  }
}

// @BE scale arg[b n] arg[n] ret[b n] parallel[b]
void scale(const BE::Tensor x, const BE::Tensor w, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[i] * in(w)[i % w.size(0)];
}
// @BE scale_w arg[b n] arg[b n] ret[n] reduce[b]
void scale_w(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  const int64_t n = y.size(0);
  for (int64_t k = 0; k < n; ++k) out(y)[k] = 0;
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i % n] += in(x)[i] * in(g)[i];
}

// @BE moments arg[b n] ret[b] ret[b]:float32 ret[b]:int32 parallel[b]
void moments(const BE::Tensor x, BE::Tensor mean, BE::Tensor square, BE::Tensor count) {
  const int64_t n = x.size(1);
  for (int64_t i = 0; i < x.size(0); ++i) {
    float sum = 0, squares = 0;
    for (int64_t k = 0; k < n; ++k) sum += in(x)[i * n + k], squares += in(x)[i * n + k] * in(x)[i * n + k];
    out(mean)[i] = sum / n, out(square)[i] = squares / n, count.data_ptr<int32_t>()[i] = static_cast<int32_t>(n);
  }
}
// @BE totals arg[b n] ret[n] ret[] reduce[b]
void totals(const BE::Tensor x, BE::Tensor sums, BE::Tensor total) {
  std::memset(out(sums), 0, sizeof(float) * sums.numel());
  *out(total) = 0;
  for (int64_t i = 0; i < x.numel(); ++i) out(sums)[i % sums.size(0)] += in(x)[i], *out(total) += in(x)[i];
}

// @BE spare arg[b n] scratch[b*n*4+8] ret[b n] parallel[b]
void spare(const BE::Tensor x, BE::Workspace scratch, BE::Tensor y) {
  BE_CHECK(scratch.size() == x.numel() * 4 + 8) << scratch.size() << " bytes for " << x.numel() << " elements";
  std::memcpy(scratch.data(), in(x), sizeof(float) * x.numel());
  std::memcpy(out(y), scratch.data(), sizeof(float) * x.numel());
}
// The extents of one device.
// @BE extents arg[b n] ret[b 2]:int32 parallel[b]
void extents(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.size(0); ++i)
    for (int64_t k = 0; k < 2; ++k) y.data_ptr<int32_t>()[2 * i + k] = static_cast<int32_t>(x.size(k));
}

// @BE affine arg[b n] ret[b n] attr.by attr.shift attr.power parallel[b]
void affine(const BE::Tensor x, BE::Tensor y, float by, double shift, int64_t power) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    float value = 1;
    for (int64_t p = 0; p < power; ++p) value *= in(x)[i];
    out(y)[i] = by * value + static_cast<float>(shift);
  }
}

enum class Mode { add, subtract };
struct Pair {
  double a;
  int8_t b;
};
// @BE mixed arg[b n] ret[b n] attr.name attr.weights attr.mode attr.pair attr.hole parallel[b]
void mixed(const BE::Tensor x, BE::Tensor y, std::string_view name, BE::Span<const float> weights, Mode mode, Pair pair,
           float hole) {
  BE_CHECK(hole != hole && mode == Mode::add);
  float sum = static_cast<float>(name.size() + pair.a + pair.b);
  for (float each : weights) sum += each;
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] = in(x)[i] + sum;
}

// @BE add_to arg[b n] arg[b n] ret[b n] parallel[b]
void add_to(const BE::Tensor total, const BE::Tensor x, BE::Tensor y) {
  BE_CHECK(total.data_ptr() == y.data_ptr()) << "not in place";
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] += in(x)[i];
}

// @BE table arg[a] arg[b] ret[a b] parallel[a b]
void table(const BE::Tensor x, const BE::Tensor w, BE::Tensor y) {
  const int64_t b = w.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[i / b] * in(w)[i % b];
}

// Each part gives its first row, so the sum is that of the parts' first rows, for elements of any type.
// @BE firsts arg[b n] ret[n] reduce[b]
void firsts(const BE::Tensor x, BE::Tensor y) { std::memcpy(y.data_ptr(), x.data_ptr(), y.nbytes()); }

// @BE copy arg[b n] ret[b n] parallel[b]
void copy(const BE::Tensor x, BE::Tensor y) { std::memcpy(y.data_ptr(), x.data_ptr(), x.nbytes()); }

static int calls = 0;
// @BE note arg[b] ret[b] parallel[b]
void note(const BE::Tensor x, BE::Tensor y) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  std::memcpy(out(y), in(x), sizeof(float) * x.numel());
}
// @BE noted arg[] ret[]:int32
void noted(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<int32_t>() = __atomic_exchange_n(&calls, 0, __ATOMIC_SEQ_CST); }

// Of derivatives: linear ones, others, and those that are rules.

// @BE matvec arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y, float alpha) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.size(0); ++i) out(y)[i] = 0;
  for (int64_t i = 0; i < a.numel(); ++i) out(y)[i / k] += alpha * in(a)[i] * in(x)[i % k];
}
// @BE matvec_t arg[n k] arg[n] ret[k] attr.alpha:float32
void matvec_t(const BE::Tensor a, const BE::Tensor g, BE::Tensor y, float alpha) {
  const int64_t k = y.size(0);
  for (int64_t j = 0; j < k; ++j) out(y)[j] = 0;
  for (int64_t i = 0; i < a.numel(); ++i) out(y)[i % k] += alpha * in(a)[i] * in(g)[i / k];
}
// @BE product_of arg[n] arg[k] ret[n k] attr.alpha:float32
void product_of(const BE::Tensor g, const BE::Tensor x, BE::Tensor y, float alpha) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = alpha * in(g)[i / k] * in(x)[i % k];
}

// @BE cube arg[... n] ret[... n]
void cube(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] = in(x)[i] * in(x)[i] * in(x)[i];
}
// @BE cube_bwd arg[... n] arg[... n] ret[... n]
void cube_bwd(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] = 3 * in(x)[i] * in(x)[i] * in(g)[i];
}
// @BE cube_fwd arg[... n] ret[... n] ret[... n]
void cube_fwd(const BE::Tensor x, BE::Tensor y, BE::Tensor slope) {
  cube(x, y);
  for (int64_t i = 0; i < x.numel(); ++i) out(slope)[i] = 3 * in(x)[i] * in(x)[i];
}
// @BE times arg[... n] arg[... n] ret[... n]
void times(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[i] * in(g)[i];
}
// @BE floor arg[... n] ret[... n]:int32
void floor(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<int32_t>()[i] = static_cast<int32_t>(in(x)[i]);
}

// @BE pick arg[n] arg[k]:int32 ret[k]:like(0)
void pick(const BE::Tensor x, const BE::Tensor at, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[at.data_ptr<int32_t>()[i]];
}
// @BE place arg[n] arg[k]:int32 arg[k] ret[n]:like(0)
void place(const BE::Tensor x, const BE::Tensor at, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = 0;
  for (int64_t i = 0; i < g.numel(); ++i) out(y)[at.data_ptr<int32_t>()[i]] += in(g)[i];
}

// @BE product arg?[n] arg[n] arg...[n] ret[n]
void product(const std::optional<BE::Tensor>& w, const BE::Tensor x, const BE::Tensors rest, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    out(y)[i] = w ? in(*w)[i] * in(x)[i] : in(x)[i];
    for (const BE::Tensor& each : rest) out(y)[i] *= in(each)[i];
  }
}
// @BE shifted arg[... n] arg?[... n] ret[... n] attr.by:float32=3
void shifted(const BE::Tensor x, const BE::Tensor* add, BE::Tensor y, float by) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = by * in(x)[i] + (add ? in(*add)[i] : 0);
}
// The default is not that of `shifted`, so that a rule which is not given the call's shows.
// @BE shifted_bwd arg[... n] arg?[... n] arg[... n] ret[... n] ret[... n] attr.by:float32=1
void shifted_bwd(const BE::Tensor x, const BE::Tensor* add, const BE::Tensor g, BE::Tensor dx, BE::Tensor dadd,
                 float by) {
  for (int64_t i = 0; i < g.numel(); ++i) out(dx)[i] = by * in(g)[i], out(dadd)[i] = in(g)[i];
}
// @BE total arg...[n]:float32 ret[n]:float32
void total(const BE::Tensors xs, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = 0;
  for (const BE::Tensor& x : xs)
    for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] += in(x)[i];
}
// @BE weighted arg[n] ret[n] attr.weights
void weighted(const BE::Tensor x, BE::Tensor y, BE::Span<const float> weights) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = weights[i] * in(x)[i];
}

// Of calls from Python.

// @BE twice arg ret:like(0)
void twice(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] = 2 * in(x)[i];
}
// @BE doubled arg[]:float32 ret[]:float32
void doubled(const BE::Tensor x, BE::Tensor y) { twice(x, y); }
// @BE scaled arg ret:like(0) attr.by
void scaled(const BE::Tensor x, BE::Tensor y, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) out(y)[i] = by * in(x)[i];
}
// @BE repeat arg ret ret:int32
void repeat(const BE::Tensor x, BE::Tensor y, BE::Tensor size) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[i % x.numel()];
  size.data_ptr<int32_t>()[0] = static_cast<int32_t>(y.numel());
}
// @BE pairs arg[n] ret[n/2 2]
void pairs(const BE::Tensor x, BE::Tensor y) { std::memcpy(out(y), in(x), x.nbytes()); }
// @BE bins arg[n] ret[attr.count ceil(n/attr.count)-n//n] attr.count
void bins(const BE::Tensor x, BE::Tensor y, int count) {
  for (int64_t i = 0; i < y.numel(); ++i) out(y)[i] = in(x)[0] + static_cast<float>(count);
}
enum class Speed { fast, slow };
// @BE choose arg[] ret[]:int32 attr.mode
void choose(const BE::Tensor, BE::Tensor y, Speed mode) { *y.data_ptr<int32_t>() = static_cast<int32_t>(mode); }
// @BE sign arg[] ret[]:float32 attr.self
void sign(const BE::Tensor, BE::Tensor y, std::complex<float> self) { *out(y) = std::copysign(1.0f, self.imag()); }
static int order = 0;
// @BE stamp arg[] ret[]:int32
void stamp(const BE::Tensor, BE::Tensor y) { *y.data_ptr<int32_t>() = order++; }
// @BE adds arg[n]:float32 arg[k]:float32 ret[n]:float32 ret[2]:int32 scratch[4*n]
void adds(const BE::Tensor x, const BE::Tensor w, BE::Tensor y, BE::Tensor sizes, BE::Workspace scratch) {
  __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
  float* copy = scratch.data_as<float>();
  for (int64_t i = 0; i < x.numel(); ++i) copy[i] = in(x)[i] + in(w)[0];
  std::memcpy(out(y), copy, y.nbytes());
  sizes.data_ptr<int32_t>()[0] = x.numel_checked_int(), sizes.data_ptr<int32_t>()[1] = w.numel_checked_int();
}
