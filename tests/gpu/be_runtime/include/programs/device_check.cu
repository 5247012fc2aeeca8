// A BE_CHECK that fails in a kernel ends it, and the process can't use the device any more.
#include "device.h"
#include "expect.h"

__global__ void fill(int* out, int count) {
  BE_CHECK(count <= 32) << "count is " << count;
  out[threadIdx.x] = count;
}

int main() {
  const DeviceArray<int> out(std::vector<int>(32));
  fill<<<1, 32>>>(out.data(), 32);
  BE_CHECK_KERNEL_LAUNCH_SYNC();
  EXPECT(out.fetch()[31] == 32);
  fill<<<1, 32>>>(out.data(), 33);
  EXPECT(thrown_by<BE::CudaError>([] { BE_CHECK_KERNEL_LAUNCH_SYNC(); }).code() == cudaErrorAssert);
}
