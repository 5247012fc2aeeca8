"""One operation, a kernel for each platform, and its rules under transformations; see `be_runtime.XLACustomKernel`."""
