"""Numba's CPU kernels, called without Python. Imports `kernels.numba`."""
