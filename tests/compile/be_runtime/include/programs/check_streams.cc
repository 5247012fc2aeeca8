// With <ostream> in the source, BE_CHECK prints whatever a stream prints.
#include <complex>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "brainevent/common.h"
#include "expect.h"

namespace user {

struct Point {
  int x, y;
};
std::ostream& operator<<(std::ostream& stream, const Point& point) {
  return stream << '(' << point.x << ", " << point.y << ')';
}

enum class Mode { Fast };
std::ostream& operator<<(std::ostream& stream, Mode) { return stream << "fast"; }

struct Generic {};
template <class Stream>
Stream& operator<<(Stream& stream, const Generic&) {
  stream << "generic";
  return stream;
}

}  // namespace user

int main() {
  EXPECT_PRINTED(user::Point({1, 2}), "(1, 2)");
  EXPECT_PRINTED(user::Mode::Fast, "fast");
  EXPECT_PRINTED(user::Generic(), "generic");
  EXPECT_PRINTED(std::string("string"), "string");
  EXPECT_PRINTED(std::string_view("view of", 4), "view");
  EXPECT_PRINTED(std::complex<float>(1, -2), "(1,-2)");
  EXPECT_PRINTED(std::runtime_error("reason"), "reason");
  EXPECT_PRINTED(std::vector<bool>(1, true)[0], "1");
  EXPECT_PRINTED(uint8_t{7}, "7");
  const auto error = thrown_by<BE::CheckError>([] { BE_CHECK(false) << "one" << std::endl << "two" << std::flush; });
  EXPECT(std::string(error.what()).find("one\ntwo") != std::string::npos);
}
