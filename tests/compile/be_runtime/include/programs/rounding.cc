// Writes the float32 of each byte for every 8-bit float, and of each nibble. Then reads float32 values and writes each
// as float16, bfloat16, those two as float32 again, and the codes of the small types.
#include "brainevent/dispatch.h"
#include "expect.h"

template <class Value>
static void put(const Value& value) {
  EXPECT(fwrite(&value, sizeof(value), 1, stdout) == 1);
}

template <class Use>
static void for_each_float8(Use use) {
  for (int dtype = int(BE::DType::Float8E5M2); dtype <= int(BE::DType::Float8E8M0FNU); ++dtype)
    BE_DISPATCH_FLOAT8(static_cast<BE::DType>(dtype), T, { use(T()); });
}

int main() {
  for_each_float8([](auto element) {
    for (int code = 0; code < 256; ++code) {
      element.bits = static_cast<uint8_t>(code);
      put(static_cast<float>(element));
    }
  });
  for (uint8_t code = 0; code < 16; ++code) {
    BE::float4_e2m1fnx2_t both;
    both.bits = static_cast<uint8_t>(code << 4 | code);
    const float first = both.get(0), second = both.get(1);
    EXPECT(memcmp(&first, &second, 4) == 0);
    put(first);
  }
  float value;
  while (fread(&value, sizeof(value), 1, stdin) == 1) {
    const BE::float16_t half = value;
    const BE::bfloat16_t brain = value;
    put(half), put(brain), put(static_cast<float>(half)), put(static_cast<float>(brain));
    for_each_float8([&](auto element) {
      element = value;
      put(element.bits);
    });
    BE::float4_e2m1fnx2_t both = {};
    both.set(1, value);
    EXPECT((both.bits & 15) == 0);
    put(static_cast<uint8_t>(both.bits >> 4));
  }
}
