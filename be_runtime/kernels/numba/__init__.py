"""Numba's kernels: what those for CPU and GPU share. Imports `load`."""
