"""Kernels without a compiled module: raw CUDA, Numba, Warp, and operations with several kernels. Imports `load`."""
