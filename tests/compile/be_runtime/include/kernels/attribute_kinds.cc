#include <complex>
#include <optional>
#include <string>
#include <string_view>
#include <string.h>
#include "brainevent/common.h"
#include "brainevent/dispatch.h"

#define T int
#define N 3

template <class Values>
void copy(const Values& values, BE::Tensor& out) {
  BE_CHECK(values.size() * sizeof(*values.data()) == out.nbytes()) << values.size();
  memcpy(out.data_ptr(), values.data(), out.nbytes());
}

// @BE text
void text(std::string_view s, BE::Tensor out) { copy(s, out); }
// @BE owned ret attr.s:string attr.end:string=.
void owned(BE::Tensor out, const std::string& s, std::string end) { copy(s + end, out); }
// @BE of_int8
void of_int8(BE::Tensor out, BE::Span<const int8_t> v) { copy(v, out); }
// @BE of_uint64
void of_uint64(BE::Tensor out, const BE::Span<const unsigned long long>& v) { copy(v, out); }
// @BE of_float32
void of_float32(BE::Tensor out, const BE::Span<float const> v) { copy(v, out); }
// @BE of_float64
void of_float64(BE::Tensor out, BE::Span<const double> v) {
  double* to = out.data_ptr<double>();
  for (double each : v) *to++ = each;
}
// @BE of_bool
void of_bool(BE::Tensor out, BE::Span<const bool> v) { copy(v, out); }
// @BE of_float16 ret attr.v:float16[]
void of_float16(BE::Tensor out, BE::Span<const uint16_t> v) { copy(v, out); }
// @BE of_bfloat16
void of_bfloat16(BE::Tensor out, BE::Span<const BE::bfloat16_t> v) { copy(v, out); }
// @BE of_complex64
void of_complex64(BE::Tensor out, BE::Span<const std::complex<float>> v) { copy(v, out); }
// @BE of_complex128
void of_complex128(BE::Tensor out, BE::Span<const BE::complex128_t> v) { copy(v, out); }

namespace kinds {
enum class Mode : unsigned char { slow = 7, fast = 1, fastest };
enum Plain { kOne = 1, kTwo };
struct Step {
  float rate = 0.5f;
  int n;
  Mode mode{Mode::slow};
  std::string_view name = "step";
  bool last;
  BE::DType type = BE::DType::Float64;
};

// @BE mode
void mode(BE::Tensor out, Mode m, Plain p) {
  out.data_ptr<int32_t>()[0] = static_cast<int>(m), out.data_ptr<int32_t>()[1] = p;
}
// @BE step
void step(const Step& s, BE::Tensor out, const Step other) {
  const Step* all[] = {&s, &other};
  float* to = out.data_ptr<float>();
  for (const Step* each : all) {
    *to++ = each->rate, *to++ = each->n, *to++ = static_cast<int>(each->mode);
    *to++ = each->name.size(), *to++ = each->last, *to++ = static_cast<int>(each->type);
  }
}
}  // namespace kinds
struct Defaults {
  double a = 1.5;
  int8_t b = -2;
  std::complex<float> untouched{3, 4};
};
// @BE all_default ret attr.d:{a:float64=1.5 b:int8=-2}
void all_default(BE::Tensor out, Defaults d) {
  double* to = out.data_ptr<double>();
  to[0] = d.a, to[1] = d.b, to[2] = d.untouched.imag();
}
// @BE numbers ret attr.v:{at:int64[] z:complex64}
struct Numbers {
  BE::Span<const int64_t> at;
  std::complex<float> z;
};
void numbers(BE::Tensor out, Numbers v) {
  out.data_ptr<float>()[0] = v.at[v.at.size() - 1], out.data_ptr<float>()[1] = v.z.imag();
}
// @BE dtype
void dtype(BE::Tensor out, BE::DType t, BE::DType u = BE::DType::BFloat16) {
  out.data_ptr<int32_t>()[0] = static_cast<int>(BE::dtype_size(t)), out.data_ptr<int32_t>()[1] = u == BE::DType::BFloat16;
}

// @BE scaled
void scaled(const BE::Tensor x, BE::Tensor out, float alpha = 0.1f, int n = -3, bool flip = true, double beta = 1e300) {
  double* to = out.data_ptr<double>();
  to[0] = alpha, to[1] = n, to[2] = flip, to[3] = beta;
}
// @BE limits
void limits(BE::Tensor out, int64_t a = -9'223'372'036'854'775'807 - 1, uint64_t b = 18446744073709551615u,
            int8_t c = -128) {
  out.data_ptr<double>()[0] = a, out.data_ptr<double>()[1] = b, out.data_ptr<double>()[2] = c;
}
// @BE spelled ret attr.a:int64=-9223372036854775808 attr.b:float16=1.5 attr.c:bfloat16=0.1 attr.d:float32=inf
void spelled(BE::Tensor out, int64_t a, uint16_t b, uint16_t c, float d) {
  double* to = out.data_ptr<double>();
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}
// @BE named
void named(BE::Tensor out, kinds::Mode m = kinds::Mode::fast, std::string_view s = "sum") {
  out.data_ptr<int32_t>()[0] = static_cast<int>(m), out.data_ptr<int32_t>()[1] = s == "sum";
}

float first(const BE::Tensor* x) { return x == nullptr ? -1 : x->data_ptr<float>()[0]; }
// @BE optional arg? arg arg? ret attr.scale attr.zeta
void optional(std::optional<BE::Tensor> a, const BE::Tensor b, const BE::Tensor* c, BE::Tensor out, float scale = 1,
              int zeta = 0) {
  float* to = out.data_ptr<float>();
  to[0] = first(a ? &*a : nullptr), to[1] = first(&b) * scale, to[2] = first(c), to[3] = zeta;
}
// @BE inferred_optional
void inferred_optional(const std::optional<const BE::Tensor>& a, BE::Tensor out, BE::Tensor const* b) {
  out.data_ptr<float>()[0] = first(a ? &*a : nullptr), out.data_ptr<float>()[1] = first(b);
}
// @BE sums
void sums(const BE::Tensors xs, const BE::Tensor last, BE::Tensors outs, int64_t stream, BE::Tensor count) {
  for (size_t i = 0; i < outs.size(); ++i)
    outs[i].data_ptr<float>()[0] = xs[i].data_ptr<float>()[0] + last.data_ptr<float>()[0];
  count.data_ptr<float>()[0] = xs.size();
}
// @BE mixed arg? arg... arg ret... ret
void mixed(const BE::Tensor* a, const BE::Tensors& many, const BE::Tensor b, BE::Tensors outs, BE::Tensor& out) {
  float* to = out.data_ptr<float>();
  to[0] = first(a), to[1] = many.size(), to[2] = first(&b), to[3] = outs.size();
  for (BE::Tensor& each : outs) each.data_ptr<float>()[0] = 1;
  for (const BE::Tensor& each : many) to[1] += 10 * each.data_ptr<float>()[0];
}
// @BE far arg... ret
void far(const BE::Tensors xs, BE::Tensor out) { out.data_ptr<float>()[0] = xs[3].data_ptr<float>()[0]; }
// @BE shaped arg?[n] arg...[n k] ret...[k] ret[n]
void shaped(std::optional<BE::Tensor>, const BE::Tensors, BE::Tensors, BE::Tensor) {}

static void halve(uint64_t of, BE::Tensor& y) {
  y.data_ptr<uint32_t>()[0] = uint32_t(of >> 32), y.data_ptr<uint32_t>()[1] = uint32_t(of);
}
// @BE halves ret[2]:uint32 attr.of:uint64
void halves(BE::Tensor y, uint64_t of) { halve(of, y); }
struct Large {
  uint64_t k;
};
// @BE halves_of ret[2]:uint32 attr.o
void halves_of(BE::Tensor y, Large o) { halve(o.k, y); }

// Declared axes.
static const float* in(const BE::Tensor& x) { return x.data_ptr<float>(); }
static float sum(const BE::Tensor& x) {
  float sum = 0;
  for (int64_t i = 0; i < x.numel(); ++i) sum += in(x)[i];
  return sum;
}

// @BE matvec arg[n k] arg[k] ret[n]
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.size(0); ++i) y.at<float>(i) = in(a)[i * x.size(0)] * sum(x);
}

// @BE cross arg[... 3] arg ret[... 3]
void cross(const BE::Tensor x, const BE::Tensor other, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = in(x)[i] + in(other)[0];
}

// @BE total arg[n] ret[]
void total(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = sum(x); }

// @BE halves_in_pairs arg[n] ret[n/2 2]
void halves_in_pairs(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = sum(x); }
// @BE bins arg[n] ret[attr.count ceil(n/attr.count)-n//n] attr.count
void bins(const BE::Tensor, BE::Tensor, int count) { BE_CHECK(count > 0); }
