"""Numba CUDA kernels as device code for the launcher. Imports `kernels.cuda` and `kernels.numba`."""
