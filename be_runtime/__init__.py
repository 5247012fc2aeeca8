"""Run your own CUDA and C++ kernels from JAX.

Hand a kernel's source to a load function, and call it inside ``jax.jit`` with ``jax.ffi.ffi_call``. Importing this
package creates no file and starts no process. ``__init__.pyi`` declares the public names for type checkers.
"""

from importlib import import_module

from be_runtime import api, control  # noqa: F401 - every program needs api
from be_toolchain import __version__

config = control

_HOMES = {
    "be_runtime.api": "load_cpp_dir load_cpp_file load_cpp_inline load_cuda_dir load_cuda_file load_cuda_inline",
    "be_runtime.api.both": "load_dir load_file load_inline",
    "be_runtime.call.function": "KernelFunction",
    "be_runtime.call.gradcheck": "gradcheck",
    "be_runtime.checks": "Finding Findings",
    "be_runtime.control": (
        "clear_backends clear_cache debug export_prebuilt get_backend get_cache_dir list_registered_targets "
        "print_diagnostics register_ffi_target set_backend set_cache_dir set_compute_capabilities unwatch watch "
        "write_compile_commands"
    ),
    "be_runtime.errors": (
        "ArgumentError BenchmarkDataFnNotProvidedError BeRuntimeError BrainEventError BuildError BuildTimeoutError "
        "CacheError CUDANotInstalledError DeviceCodeWarning DuplicateEntryPointError EntryPointNotFoundError "
        "ExitWarning FindingError FindingWarning GatherWarning GeneratorError GpuArchDetectionError GradientError "
        "HostCompilerIncompatibleError KernelExecutionError KernelFallbackExhaustedError KernelLoadError "
        "KernelNotAvailableError KernelRegistrationError KernelToolchainError LoadError MathError "
        "NvccNotFoundError RegistrationError SourceNotFoundError SpecError StreamWarning TransformError "
        "UnsupportedArchError UnsupportedOperationError"
    ),
    "be_runtime.kernels.benchmark": "BenchmarkConfig BenchmarkRecord BenchmarkResult benchmark_function",
    "be_runtime.kernels.cubin": "cubin_kernel",
    "be_runtime.kernels.cutile": "cutile_kernel",
    "be_runtime.kernels.dispatch": "FallbackWarning KernelEntry",
    "be_runtime.kernels.hip": "hip_kernel",
    "be_runtime.kernels.numba.callable": "numba_cuda_callable",
    "be_runtime.kernels.numba.cpu": "numba_kernel",
    "be_runtime.kernels.numba.gpu": "numba_cuda_kernel",
    "be_runtime.kernels.operation": "XLACustomKernel",
    "be_runtime.kernels.operations": (
        "defjvp general_batching_rule get_all_primitive_names get_primitives_by_tags get_registry"
    ),
    "be_runtime.kernels.raw": "cuda_kernel",
    "be_runtime.kernels.tvm_ffi": "load_tvm_ffi tvm_ffi_function",
    "be_runtime.kernels.cute": "cute_kernel",
    "be_runtime.kernels.warp": "jaxinfo_to_warpinfo jaxtype_to_warptype warp_kernel",
    "be_runtime.load.module": "CompiledModule LoadedModule ModuleInfo",
    "be_runtime.load.platforms": "LoadedPlatformModule PlatformModule",
    "be_runtime.notebook": "load_ipython_extension unload_ipython_extension",
    "be_runtime.report": "ModuleReport",
    "be_runtime.ship.package": "package_kernels",
    "be_runtime.ship.programs": "ExportedProgram LoadedProgram export load_exported",
    "be_runtime.signature.grammar": "normalize_tokens",
    "be_runtime.tune.triton": "triton_kernel",
    "be_runtime.tune.tuned": "Tuned autotune",
    "be_toolchain.errors": (
        "CompilationError HeaderNotFoundError HostCompilerNotFoundError KernelCompilationError KernelError"
    ),
}
"""Public names by their modules, which are imported on first use; every program needs the modules above."""

__all__ = ["__version__", "config"]
__all__ += [name for home, names in _HOMES.items() if home != "be_runtime.notebook" for name in names.split()]


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    home = next((home for home, names in _HOMES.items() if name in names.split()), "")
    if not home:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, whether they are imported or not."""
    return list(__all__)
