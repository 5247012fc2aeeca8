"""Raw CUDA kernels, and the launcher of all kernels that consist of device code. Imports `load`."""
