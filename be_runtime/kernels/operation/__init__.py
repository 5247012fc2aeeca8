"""Operations with several kernels, and their rules under transformations; see `be_runtime.XLACustomKernel`."""
