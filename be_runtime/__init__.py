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
    from be_runtime.findings import Finding, Findings
    from be_runtime.kernels.cuda.raw import cuda_kernel
    from be_runtime.kernels.numba.callable.cuda_callable import numba_cuda_callable
    from be_runtime.kernels.numba.cpu.cpu_kernel import numba_kernel
    from be_runtime.kernels.numba.gpu.numba_cuda import numba_cuda_kernel
    from be_runtime.kernels.operation.any_primitive import defjvp, general_batching_rule
    from be_runtime.kernels.operation.backends import FallbackWarning, KernelEntry
    from be_runtime.kernels.operation.benchmark import (
        BenchmarkConfig,
        BenchmarkRecord,
        BenchmarkResult,
        benchmark_function,
    )
    from be_runtime.kernels.operation.operation import (
        XLACustomKernel,
        get_all_primitive_names,
        get_primitives_by_tags,
        get_registry,
    )
    from be_runtime.kernels.warp_kernels import jaxinfo_to_warpinfo, jaxtype_to_warptype, warp_kernel
    from be_runtime.reports.module_report import ModuleReport
    from be_runtime.ship.package import package_kernels
    from be_runtime.ship.programs.exported import ExportedProgram, export
    from be_runtime.ship.programs.loaded import LoadedProgram, load_exported
    from be_runtime.spec.grammar import normalize_tokens
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
    "BenchmarkConfig": "kernels.operation.benchmark",
    "BenchmarkRecord": "kernels.operation.benchmark",
    "BenchmarkResult": "kernels.operation.benchmark",
    "ExportedProgram": "ship.programs.exported",
    "FallbackWarning": "kernels.operation.backends",
    "Finding": "findings",
    "Findings": "findings",
    "KernelEntry": "kernels.operation.backends",
    "KernelFunction": "call.function",
    "LoadedProgram": "ship.programs.loaded",
    "ModuleReport": "reports.module_report",
    "Tuned": "tune.tuned",
    "XLACustomKernel": "kernels.operation.operation",
    "autotune": "tune.tuned",
    "benchmark_function": "kernels.operation.benchmark",
    "cuda_kernel": "kernels.cuda.raw",
    "defjvp": "kernels.operation.any_primitive",
    "export": "ship.programs.exported",
    "general_batching_rule": "kernels.operation.any_primitive",
    "get_all_primitive_names": "kernels.operation.operation",
    "get_primitives_by_tags": "kernels.operation.operation",
    "get_registry": "kernels.operation.operation",
    "gradcheck": "call.gradcheck",
    "jaxinfo_to_warpinfo": "kernels.warp_kernels",
    "jaxtype_to_warptype": "kernels.warp_kernels",
    "load_exported": "ship.programs.loaded",
    "load_ipython_extension": "notebook.magics",
    "normalize_tokens": "spec.grammar",
    "numba_cuda_callable": "kernels.numba.callable.cuda_callable",
    "numba_cuda_kernel": "kernels.numba.gpu.numba_cuda",
    "numba_kernel": "kernels.numba.cpu.cpu_kernel",
    "package_kernels": "ship.package",
    "unload_ipython_extension": "notebook.magics",
    "warp_kernel": "kernels.warp_kernels",
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
