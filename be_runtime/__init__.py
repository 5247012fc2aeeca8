"""Run your own CUDA and C++ kernels from JAX.

Hand a kernel's source to a load function, and call it inside ``jax.jit`` with ``jax.ffi.ffi_call``. Importing this
package creates no file and starts no process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from be_runtime import control as config
from be_runtime.api import load_cpp_dir, load_cpp_file, load_cpp_inline, load_cuda_dir, load_cuda_file, load_cuda_inline
from be_runtime.control import (
    clear_backends,
    clear_cache,
    debug,
    export_prebuilt,
    get_backend,
    get_cache_dir,
    list_registered_targets,
    print_diagnostics,
    register_ffi_target,
    set_backend,
    set_cache_dir,
    set_compute_capabilities,
    unwatch,
    watch,
    write_compile_commands,
)
from be_runtime.errors import (
    ArgumentError,
    BenchmarkDataFnNotProvidedError,
    BeRuntimeError,
    BrainEventError,
    BuildError,
    BuildTimeoutError,
    CacheError,
    CUDANotInstalledError,
    DuplicateEntryPointError,
    EntryPointNotFoundError,
    FindingError,
    FindingWarning,
    GatherWarning,
    GeneratorError,
    GpuArchDetectionError,
    GradientError,
    HostCompilerIncompatibleError,
    KernelExecutionError,
    KernelFallbackExhaustedError,
    KernelLoadError,
    KernelNotAvailableError,
    KernelRegistrationError,
    KernelToolchainError,
    LoadError,
    MathError,
    NvccNotFoundError,
    RegistrationError,
    SourceNotFoundError,
    SpecError,
    StreamWarning,
    TransformError,
    UnsupportedArchError,
    UnsupportedOperationError,
)
from be_runtime.load.module import CompiledModule, LoadedModule, ModuleInfo
from be_toolchain import __version__
from be_toolchain.errors import (
    CompilationError,
    HeaderNotFoundError,
    HostCompilerNotFoundError,
    KernelCompilationError,
    KernelError,
)

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction
    from be_runtime.call.gradcheck import gradcheck
    from be_runtime.checks import Finding, Findings
    from be_runtime.kernels.benchmark import BenchmarkConfig, BenchmarkRecord, BenchmarkResult, benchmark_function
    from be_runtime.kernels.dispatch import FallbackWarning, KernelEntry
    from be_runtime.kernels.numba.callable import numba_cuda_callable
    from be_runtime.kernels.numba.cpu import numba_kernel
    from be_runtime.kernels.numba.gpu import numba_cuda_kernel
    from be_runtime.kernels.operation import (
        XLACustomKernel,
        defjvp,
        general_batching_rule,
        get_all_primitive_names,
        get_primitives_by_tags,
        get_registry,
    )
    from be_runtime.kernels.raw import cuda_kernel
    from be_runtime.kernels.warp import jaxinfo_to_warpinfo, jaxtype_to_warptype, warp_kernel
    from be_runtime.report import ModuleReport
    from be_runtime.ship.package import package_kernels
    from be_runtime.ship.programs import ExportedProgram, LoadedProgram, export, load_exported
    from be_runtime.signature.grammar import normalize_tokens
    from be_runtime.tune.tuned import Tuned, autotune

__all__ = [
    "ArgumentError",
    "BeRuntimeError",
    "BenchmarkConfig",
    "BenchmarkDataFnNotProvidedError",
    "BenchmarkRecord",
    "BenchmarkResult",
    "BrainEventError",
    "BuildError",
    "BuildTimeoutError",
    "CUDANotInstalledError",
    "CacheError",
    "CompilationError",
    "CompiledModule",
    "DuplicateEntryPointError",
    "EntryPointNotFoundError",
    "ExportedProgram",
    "FallbackWarning",
    "Finding",
    "FindingError",
    "FindingWarning",
    "Findings",
    "GatherWarning",
    "GeneratorError",
    "GpuArchDetectionError",
    "GradientError",
    "HeaderNotFoundError",
    "HostCompilerIncompatibleError",
    "HostCompilerNotFoundError",
    "KernelCompilationError",
    "KernelEntry",
    "KernelError",
    "KernelExecutionError",
    "KernelFallbackExhaustedError",
    "KernelFunction",
    "KernelLoadError",
    "KernelNotAvailableError",
    "KernelRegistrationError",
    "KernelToolchainError",
    "LoadError",
    "LoadedModule",
    "LoadedProgram",
    "MathError",
    "ModuleInfo",
    "ModuleReport",
    "NvccNotFoundError",
    "RegistrationError",
    "SourceNotFoundError",
    "SpecError",
    "StreamWarning",
    "TransformError",
    "Tuned",
    "UnsupportedArchError",
    "UnsupportedOperationError",
    "XLACustomKernel",
    "__version__",
    "autotune",
    "benchmark_function",
    "clear_backends",
    "clear_cache",
    "config",
    "cuda_kernel",
    "debug",
    "defjvp",
    "export",
    "export_prebuilt",
    "general_batching_rule",
    "get_all_primitive_names",
    "get_backend",
    "get_cache_dir",
    "get_primitives_by_tags",
    "get_registry",
    "gradcheck",
    "jaxinfo_to_warpinfo",
    "jaxtype_to_warptype",
    "list_registered_targets",
    "load_cpp_dir",
    "load_cpp_file",
    "load_cpp_inline",
    "load_cuda_dir",
    "load_cuda_file",
    "load_cuda_inline",
    "load_exported",
    "normalize_tokens",
    "numba_cuda_callable",
    "numba_cuda_kernel",
    "numba_kernel",
    "package_kernels",
    "print_diagnostics",
    "register_ffi_target",
    "set_backend",
    "set_cache_dir",
    "set_compute_capabilities",
    "unwatch",
    "warp_kernel",
    "watch",
    "write_compile_commands",
]

_LATER = {
    "BenchmarkConfig": "kernels.benchmark",
    "BenchmarkRecord": "kernels.benchmark",
    "BenchmarkResult": "kernels.benchmark",
    "ExportedProgram": "ship.programs",
    "FallbackWarning": "kernels.dispatch",
    "Finding": "checks",
    "Findings": "checks",
    "KernelEntry": "kernels.dispatch",
    "KernelFunction": "call.function",
    "LoadedProgram": "ship.programs",
    "ModuleReport": "report",
    "Tuned": "tune.tuned",
    "XLACustomKernel": "kernels.operation",
    "autotune": "tune.tuned",
    "benchmark_function": "kernels.benchmark",
    "cuda_kernel": "kernels.raw",
    "defjvp": "kernels.operation",
    "export": "ship.programs",
    "general_batching_rule": "kernels.operation",
    "get_all_primitive_names": "kernels.operation",
    "get_primitives_by_tags": "kernels.operation",
    "get_registry": "kernels.operation",
    "gradcheck": "call.gradcheck",
    "jaxinfo_to_warpinfo": "kernels.warp",
    "jaxtype_to_warptype": "kernels.warp",
    "load_exported": "ship.programs",
    "load_ipython_extension": "notebook",
    "normalize_tokens": "signature.grammar",
    "numba_cuda_callable": "kernels.numba.callable",
    "numba_cuda_kernel": "kernels.numba.gpu",
    "numba_kernel": "kernels.numba.cpu",
    "package_kernels": "ship.package",
    "unload_ipython_extension": "notebook",
    "warp_kernel": "kernels.warp",
}
"""Names that are imported on their first use, and their modules."""


def __getattr__(name: str) -> object:
    """Import it from its module on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names, also those that are imported on first use."""
    return list(__all__)
