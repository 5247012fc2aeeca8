"""Numba CPU kernels, called without Python. Imports `kernels.numba`."""
