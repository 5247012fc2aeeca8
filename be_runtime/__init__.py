"""Run your own CUDA and C++ kernels from JAX.

Hand a kernel's source to a load function, and call it inside ``jax.jit`` with ``jax.ffi.ffi_call``. Importing this
package creates no file and starts no process.
"""

from be_toolchain import __version__

from .api import (
    load_cpp_dir,
    load_cpp_file,
    load_cpp_inline,
    load_cuda_dir,
    load_cuda_file,
    load_cuda_inline,
)
from .control import (
    clear_cache,
    get_cache_dir,
    list_registered_targets,
    register_ffi_target,
    set_cache_dir,
    set_compute_capabilities,
)
from .errors import (
    ArgumentError,
    BeRuntimeError,
    BuildError,
    BuildTimeoutError,
    CacheError,
    DuplicateEntryPointError,
    EntryPointNotFoundError,
    LoadError,
    RegistrationError,
    SourceNotFoundError,
    SpecError,
)
from .module import CompiledModule

__all__ = [
    "ArgumentError",
    "BeRuntimeError",
    "BuildError",
    "BuildTimeoutError",
    "CacheError",
    "CompiledModule",
    "DuplicateEntryPointError",
    "EntryPointNotFoundError",
    "LoadError",
    "RegistrationError",
    "SourceNotFoundError",
    "SpecError",
    "__version__",
    "clear_cache",
    "get_cache_dir",
    "list_registered_targets",
    "load_cpp_dir",
    "load_cpp_file",
    "load_cpp_inline",
    "load_cuda_dir",
    "load_cuda_file",
    "load_cuda_inline",
    "register_ffi_target",
    "set_cache_dir",
    "set_compute_capabilities",
]
