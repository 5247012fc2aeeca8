"""The load functions, which compile sources and register the entry points of the module."""

from be_runtime.api.cpp import load_cpp_dir, load_cpp_file, load_cpp_inline
from be_runtime.api.cuda import load_cuda_dir, load_cuda_file, load_cuda_inline

__all__ = [
    "load_cpp_dir",
    "load_cpp_file",
    "load_cpp_inline",
    "load_cuda_dir",
    "load_cuda_file",
    "load_cuda_inline",
]
