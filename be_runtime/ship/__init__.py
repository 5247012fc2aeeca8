"""Kernels in an author's own package, and in exported programs. Imports `kernels` and `load`."""
