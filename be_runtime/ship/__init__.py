"""Kernels in an author's package, and in exported programs. Imports `kernels` and `load`."""
