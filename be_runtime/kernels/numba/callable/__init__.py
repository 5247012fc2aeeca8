"""Python that launches several Numba CUDA kernels on XLA's stream. Imports `kernels.numba.cpu`."""
