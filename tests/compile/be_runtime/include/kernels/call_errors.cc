#include <stdexcept>
#include <string>
#include <vector>

#include "brainevent/common.h"

struct Point {
  int x, y;
};

// @BE add arg arg ret attr.scale:float32 attr.times:int32
void add(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, float scale, int32_t times) {
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = (a.data_ptr<float>()[i] + b.data_ptr<float>()[i]) * scale * times;
}

// @BE copy arg ret
void copy(const BE::Tensor x, BE::Tensor out) {
  for (size_t i = 0; i < x.nbytes(); ++i) out.data_ptr<char>()[i] = x.data_ptr<char>()[i];
}

// @BE doubled
void doubled(const BE::Tensor x, const BE::Tensor y, BE::Tensor out) {
  *out.data_ptr<float>() = *x.data_ptr<float>() + *y.data_ptr<float>();
}

// @BE pairs
void pairs(const BE::Tensor x, BE::Tensor out) {
  const Point* from = static_cast<const Point*>(x.data_ptr());
  out.data_ptr<Point>()[0] = Point{from->x, x.data_ptr<Point>()->y};
}

// Fails in the way that the number says.
// @BE fail
void fail(const BE::Tensor x, BE::Tensor out, int how) {
  std::string name = "the dose", euros;
  if (how == 0) BE_CHECK(x.size(0) == 2) << "got " << x.size(0) << ' ' << name << ' ' << 2.5f << ' ' << x.dtype();
  if (how == 1) BE_CHECK(false) << "100% of %s and %n";
  if (how == 2) throw std::runtime_error("a runtime error");
  if (how == 3) throw 42;
  if (how == 4) x.size(7);
  if (how == 5) std::vector<int>().at(3);
  if (how == 6) throw BE::CheckError("by hand");
  if (how == 7) throw std::runtime_error(std::string(100000, 'x'));
  if (how == 8) {
    volatile size_t huge = size_t(1) << 60;
    std::vector<char> room(huge);
  }
  if (how == 9)
    BE_CHECK(false) << "gr\xc3\xbc\xc3\x9f " << "\xe2\x82\xac " << "\xf0\x9f\x98\x80 "
                    << "\xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80 \xff\xfe!";
  while (how == 10 && euros.size() < 5000) euros += "\xe2\x82\xac";
  if (how == 10) throw std::runtime_error(euros);
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];
}
