"""Raw CUDA kernels, and the launcher of all kernels that come as device code. Imports `load`."""
