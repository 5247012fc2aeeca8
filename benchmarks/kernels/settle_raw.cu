// One thread for each element, without any beyond.
__global__ void settle(const float* x, float* y, long long steps) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  float v = x[i];
  for (long long s = 0; s < steps; ++s) v -= 0.001f * v * v * v;
  y[i] = v;
}
