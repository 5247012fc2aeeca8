"""Operations with several kernels and rules under transformations; see `be_runtime.XLACustomKernel`."""
