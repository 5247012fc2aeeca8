"""Host functions as XLA FFI targets: Numba's CPU kernels, called without Python, and Python that launches on a stream.

See `be_runtime.numba_kernel` and `be_runtime.numba_cuda_callable`.
"""
