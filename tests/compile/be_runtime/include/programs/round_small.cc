// Writes the float32 of each byte for every 8-bit float, and of each nibble; then reads float32 values and writes the
// codes of each.
#include "brainevent/dispatch.h"
#include "expect.h"

constexpr BE::DType kFirst = BE::DType::Float8E5M2, kLast = BE::DType::Float8E8M0FNU;

template <class Use>
static void for_each_float8(Use use) {
  for (int dtype = static_cast<int>(kFirst); dtype <= static_cast<int>(kLast); ++dtype)
    BE_DISPATCH_FLOAT8(static_cast<BE::DType>(dtype), T, { use(T()); });
}

int main() {
  for_each_float8([](auto element) {
    for (int code = 0; code < 256; ++code) {
      element.bits = static_cast<uint8_t>(code);
      const float value = element;
      EXPECT(fwrite(&value, 4, 1, stdout) == 1);
    }
  });
  for (uint8_t code = 0; code < 16; ++code) {
    BE::float4_e2m1fnx2_t both;
    both.bits = static_cast<uint8_t>(code << 4 | code);
    const float value = both.get(0);
    EXPECT(memcmp(&value, &static_cast<const float&>(both.get(1)), 4) == 0 && fwrite(&value, 4, 1, stdout) == 1);
  }
  float value;
  while (fread(&value, sizeof(value), 1, stdin) == 1) {
    for_each_float8([&](auto element) {
      element = value;
      EXPECT(fwrite(&element.bits, 1, 1, stdout) == 1);
    });
    BE::float4_e2m1fnx2_t both = {};
    both.set(1, value);
    EXPECT((both.bits & 15) == 0 && fputc(both.bits >> 4, stdout) != EOF);
  }
}
