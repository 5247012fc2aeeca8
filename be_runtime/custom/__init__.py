"""One operation, several kernels, picked for the platform; see `be_runtime.XLACustomKernel`."""
