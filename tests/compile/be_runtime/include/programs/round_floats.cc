// Reads float32 values and writes each as float16, bfloat16, and each of those as float32 again.
#include "brainevent/dtypes.h"
#include "expect.h"

int main() {
  float value;
  while (fread(&value, sizeof(value), 1, stdin) == 1) {
    const BE::float16_t half = value;
    const BE::bfloat16_t brain = value;
    const float back[] = {half, brain};
    EXPECT(fwrite(&half, 2, 1, stdout) + fwrite(&brain, 2, 1, stdout) + fwrite(back, 4, 2, stdout) == 4);
  }
}
