"""brainevent's names for kernels, of 0.2.1 and 0.3.0, and what a program that catches its errors counts on."""

from __future__ import annotations

from pathlib import Path

import pytest

import be_runtime

TOOLCHAIN = ("GpuArchDetectionError", "HeaderNotFoundError", "NvccNotFoundError", "UnsupportedArchError")
ERRORS = {
    "BrainEventError": ("BenchmarkDataFnNotProvidedError", "KernelError", "MathError", "UnsupportedOperationError"),
    "CompilationError": ("HostCompilerIncompatibleError",),
    "KernelCompilationError": ("CompilationError",),
    "KernelError": (
        *("CUDANotInstalledError", "KernelCompilationError", "KernelExecutionError", "KernelFallbackExhaustedError"),
        *("KernelLoadError", "KernelNotAvailableError", "KernelRegistrationError", "KernelToolchainError"),
    ),
    "KernelToolchainError": ("HostCompilerNotFoundError", *TOOLCHAIN),
}
"""By what catches them there."""
OTHERS = (
    *("BenchmarkConfig", "BenchmarkRecord", "BenchmarkResult", "benchmark_function", "print_diagnostics"),
    *("CompiledModule", "load_cpp_file", "load_cpp_inline", "load_cuda_dir", "load_cuda_file", "load_cuda_inline"),
    *("KernelEntry", "XLACustomKernel", "defjvp", "general_batching_rule", "normalize_tokens"),
    *("get_all_primitive_names", "get_primitives_by_tags", "get_registry"),
    *("clear_cache", "config", "get_cache_dir", "set_cache_dir", "list_registered_targets", "register_ffi_target"),
    *("jaxinfo_to_warpinfo", "jaxtype_to_warptype", "numba_cuda_callable", "numba_cuda_kernel", "numba_kernel"),
)


def test_every_name_is_here_and_an_error_is_caught_by_what_catches_it_there():
    """The package lists them, also those that are imported on first use; the modules that it is made of are none."""
    for parent, names in ERRORS.items():
        for name in names:
            assert issubclass(getattr(be_runtime, name), getattr(be_runtime, parent)), name
    assert {*ERRORS, *OTHERS, "warp_kernel"} <= set(be_runtime.__all__)
    assert sorted(dir(be_runtime)) == sorted(be_runtime.__all__)
    assert be_runtime.config.set_backend is be_runtime.set_backend
    assert be_runtime.config.get_backend("tpu") is None


SOURCE = """
#include "brainevent/common.h"
// @BE f arg[n] ret[n] %s
void f(const BE::Tensor x, BE::Tensor y) {}
"""


def test_a_bad_declaration_is_a_kernel_error_and_no_compiler_a_toolchain_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("BE_CXX", str(tmp_path / "none"))
    monkeypatch.setenv("BE_CACHE_DIR", str(tmp_path))
    for name, more, error in (("b", "bogus", be_runtime.KernelError), ("n", "", be_runtime.KernelToolchainError)):
        with pytest.raises(error):
            be_runtime.load_cpp_inline(name, SOURCE % more, build_directory=str(tmp_path))


def test_an_operation_tells_its_defaults_and_what_it_lacks():
    operation = be_runtime.XLACustomKernel("names")
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


def test_diagnostics_say_compilers_cache_and_targets(
    tmp_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    be_runtime.print_diagnostics()
    said = capsys.readouterr().out
    assert "C++ compiler" in said
    assert f"cache: {tmp_cache}, 0 entries" in said
    assert f"registered targets: {', '.join(be_runtime.list_registered_targets()) or 'none'}" in said
