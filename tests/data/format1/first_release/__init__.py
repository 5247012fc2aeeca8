from be_runtime import package_kernels

ops = package_kernels(__name__)
