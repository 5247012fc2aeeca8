"""Kernels that need no module of their own: raw CUDA, Numba, Warp, and operations of several. Imports `load`."""
