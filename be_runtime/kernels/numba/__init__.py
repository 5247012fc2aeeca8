"""Numba kernels: the parts that CPU and GPU kernels share. Imports `load`."""
