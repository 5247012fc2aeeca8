"""CUDA kernels that XLA launches with no Python and no host code of the author's: Numba's, and raw CUDA C++.

The functions are imported on their first use, so that `import be_runtime` stays as fast as it is.
"""
