"""Operations with a kernel for each platform, and their rules under transformations: `be_runtime.XLACustomKernel`."""
