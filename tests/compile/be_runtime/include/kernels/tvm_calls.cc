#include <complex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "brainevent/common.h"
#include "brainevent/parallel.h"

namespace {

void copy_text(std::string_view text, BE::Tensor out) {
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<uint8_t>()[i] = static_cast<uint8_t>(text[static_cast<size_t>(i)]);
}

}  // namespace

// @BE scaled arg[n]:float32 arg[n] ret[n] attr.by:float32=1 stream
void scaled(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, float by, int64_t stream) {
  BE_CHECK(stream == 0) << "a stream on the CPU";
  const float *p = a.data_ptr<float>(), *q = b.data_ptr<float>();
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<float>()[i] = p[i] + by * q[i];
}

// @BE last attr.first:int32 ret[1]:int64 attr.flag:bool arg[n k]:int16 attr.count:uint8
void last(int first, BE::Tensor out, bool flag, const BE::Tensor x, uint8_t count) {
  const int64_t n = x.size(0), k = x.size(1);
  out.data_ptr<int64_t>()[0] = first + 10 * flag + 100 * count + 1000 * (x.data_ptr<int16_t>()[n * k - 1]);
}

// @BE text attr.s:string ret:uint8
void text(std::string_view s, BE::Tensor out) { copy_text(s, out); }

enum class Mode { slow = 3, fast = 7 };
// @BE mode attr.mode:enum(slow fast)=fast ret[1]:int32
void mode(Mode mode, BE::Tensor out) { *out.data_ptr<int>() = static_cast<int>(mode); }

// @BE sum attr.values:float64[] attr.type:dtype=int8 attr.z:complex64 ret[4]:float64
void sum(BE::Span<const double> values, BE::DType type, std::complex<float> z, BE::Tensor out) {
  double* to = out.data_ptr<double>();
  to[0] = 0;
  for (double value : values) to[0] += value;
  to[1] = static_cast<double>(type);
  to[2] = z.real();
  to[3] = z.imag();
}

// @BE some arg?[n] arg[n] ret?[n] ret[n]
void some(std::optional<const BE::Tensor> a, const BE::Tensor b, std::optional<BE::Tensor> c, BE::Tensor d) {
  const float* from = (a ? *a : b).data_ptr<float>();
  for (int64_t i = 0; i < d.numel(); ++i) d.data_ptr<float>()[i] = 2 * from[i];
  for (int64_t i = 0; c && i < c->numel(); ++i) c->data_ptr<float>()[i] = 3 * b.data_ptr<float>()[i];
}

// @BE add_to inout[n]:float32 scalar.by:float32 scratch[4*n] ret[2 n]=0
void add_to(BE::Tensor x, BE::Scalar<float> by, BE::Workspace space, BE::Tensor zeros) {
  float* kept = static_cast<float*>(space.data());
  for (int64_t i = 0; i < x.numel(); ++i) kept[i] = x.data_ptr<float>()[i];
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] = kept[i] + *by.data();
}

// @BE asked arg ret scratch
void asked(const BE::Tensor x, BE::Tensor y, BE::Workspace space) {
  int64_t* kept = static_cast<int64_t*>(space.allocate(8 * x.numel()));
  BE::parallel_for(x.numel(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) kept[i] = x.data_ptr<int64_t>()[i];
  });
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<int64_t>()[i] = kept[x.numel() - 1 - i];
}

// @BE halves attr.h:float16 ret[1]:uint16
void halves(uint16_t h, BE::Tensor out) { *out.data_ptr<uint16_t>() = h; }

// @BE throws attr.how:int32 ret
void throws(int how, BE::Tensor) {
  BE_CHECK(how != 0) << "it is " << how;
  if (how == 1) throw std::runtime_error("no luck");
  if (how == 2) throw 1;
}

struct Point {
  int x = 0;
  int y = 0;
};
// @BE point attr.point:{x:int32=0 y:int32=0} ret[1]:int32
void point(Point point, BE::Tensor out) { *out.data_ptr<int>() = point.x; }

// @BE many arg... ret
void many(const BE::Tensors, BE::Tensor) {}
