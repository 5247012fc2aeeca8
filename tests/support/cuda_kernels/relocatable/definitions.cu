// What caller.cu calls; it has no entry point.
__device__ float bias = 0.5f;

__device__ float elsewhere(float x) { return 10.0f * x; }
