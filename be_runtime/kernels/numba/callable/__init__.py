"""Python functions that launch several Numba CUDA kernels on XLA's stream. Imports `kernels.numba.cpu`."""
