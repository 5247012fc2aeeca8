"""brainevent's names for kernels, of 0.2.1 and 0.3.0, and what a program that catches its errors counts on."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime
from be_runtime import XLACustomKernel

PARENTS = {
    "BrainEventError": "",
    "BenchmarkDataFnNotProvidedError": "BrainEventError",
    "CUDANotInstalledError": "KernelError",
    "CompilationError": "KernelCompilationError",
    "GpuArchDetectionError": "KernelToolchainError",
    "HeaderNotFoundError": "KernelToolchainError",
    "HostCompilerIncompatibleError": "CompilationError",
    "HostCompilerNotFoundError": "KernelToolchainError",
    "KernelCompilationError": "KernelError",
    "KernelError": "BrainEventError",
    "KernelExecutionError": "KernelError",
    "KernelFallbackExhaustedError": "KernelError",
    "KernelLoadError": "KernelError",
    "KernelNotAvailableError": "KernelError",
    "KernelRegistrationError": "KernelError",
    "KernelToolchainError": "KernelError",
    "MathError": "BrainEventError",
    "NvccNotFoundError": "KernelToolchainError",
    "UnsupportedArchError": "KernelToolchainError",
    "UnsupportedOperationError": "BrainEventError",
}
OTHERS = {
    "BenchmarkConfig",
    "BenchmarkRecord",
    "BenchmarkResult",
    "CompiledModule",
    "KernelEntry",
    "XLACustomKernel",
    "benchmark_function",
    "clear_cache",
    "config",
    "defjvp",
    "general_batching_rule",
    "get_all_primitive_names",
    "get_cache_dir",
    "get_primitives_by_tags",
    "get_registry",
    "jaxinfo_to_warpinfo",
    "jaxtype_to_warptype",
    "list_registered_targets",
    "load_cpp_file",
    "load_cpp_inline",
    "load_cuda_dir",
    "load_cuda_file",
    "load_cuda_inline",
    "normalize_tokens",
    "numba_cuda_callable",
    "numba_cuda_kernel",
    "numba_kernel",
    "print_diagnostics",
    "register_ffi_target",
    "set_cache_dir",
}


@pytest.mark.parametrize("name", PARENTS)
def test_an_error_is_caught_by_what_catches_it_there(name: str):
    assert issubclass(getattr(be_runtime, name), getattr(be_runtime, PARENTS[name] or "BrainEventError"))


def test_every_other_name_is_here():
    assert set(be_runtime.__all__) >= OTHERS


SOURCE = """
#include "brainevent/common.h"
// @BE f arg[n] ret[n] %s
void f(const BE::Tensor x, BE::Tensor y) {}
"""


def test_a_bad_declaration_is_a_kernel_error(tmp_path: Path):
    with pytest.raises(be_runtime.KernelError):
        be_runtime.load_cpp_inline("bad", SOURCE % "bogus", build_directory=str(tmp_path))


def test_no_compiler_is_a_toolchain_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_CXX", str(tmp_path / "none"))
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    with pytest.raises(be_runtime.KernelToolchainError):
        be_runtime.load_cpp_inline("none", SOURCE % "", build_directory=str(tmp_path))


def test_an_operation_tells_its_defaults_and_what_it_lacks():
    operation = XLACustomKernel("names")
    assert operation.defaults == {}
    operation.def_kernel("a", "cpu", lambda outs: lambda x: [x])
    operation.def_kernel("b", "gpu", lambda outs: lambda x: [x])
    assert operation.defaults == {"cpu": "a", "gpu": "b"}
    with pytest.raises(be_runtime.KernelNotAvailableError):
        operation.set_default("cpu", "b")
    with pytest.raises(be_runtime.BenchmarkDataFnNotProvidedError):
        operation.benchmark("cpu")
    operation.def_tags("one", "two")
    assert "names" in be_runtime.get_primitives_by_tags({"two"})
    assert "names" not in be_runtime.get_primitives_by_tags({"two", "three"})
    assert be_runtime.get_registry()["names"] is operation
