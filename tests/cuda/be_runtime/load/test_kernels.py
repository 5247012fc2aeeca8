"""Every kernel that the tests on a device run compiles, for an architecture that need not be here, and is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from be_toolchain import ToolchainRequest, resolve
from tests.support import runtime
from tests.support.cuda import (
    EIGHT_FILES,
    KERNELS,
    NO_LTO_LINKER,
    device_code,
    load_exercise,
    run_json,
    source,
    write_eight_files,
)
from tests.support.requirements import OPTIONAL

ENTRY_POINTS = {
    "elementwise": ("twice", "describe", "divmod"),
    "attributes": ("integers", "floats", "complexes"),
    "transforms": ("weigh", "decay", "increment"),
    "graph": ("step",),
    "half": ("fused", "widen"),
    "styles": ("plus_1", "plus_2", "plus_3", "plus_4", "plus_5", "plus_6"),
    "events": ("gather", "scatter"),
    "arithmetic": ("quotient", "norm"),
    "cub_sums": ("device_sum", "row_sums"),
    "small_types": ("copy", "to_float", "from_float", "reverse"),
    "memory": ("declared", "asked", "planned"),
}
CUBLAS_HEADER = """
#pragma once
#include <cuda_runtime.h>
typedef struct handle* cublasHandle_t;
enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_NOT_INITIALIZED };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
extern "C" cublasStatus_t cublasCreate(cublasHandle_t*);
extern "C" cublasStatus_t cublasDestroy(cublasHandle_t);
extern "C" cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
extern "C" cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t);
extern "C" cublasStatus_t cublasSgemm(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const float*,
                                      const float*, int, const float*, int, const float*, float*, int);
"""
CUBLAS_LIBRARY = """
extern "C" int cublasCreate(void**) { return 0; }
extern "C" int cublasDestroy(void*) { return 0; }
extern "C" int cublasSetStream(void*, void*) { return 0; }
extern "C" int cublasSetWorkspace(void*, void*, unsigned long) { return 0; }
extern "C" int cublasSgemm(void*, int, int, int, int, int, const float*, const float*, int, const float*, int,
                           const float*, float*, int) { return 0; }
"""
LOAD_GEMM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import be_runtime
module = be_runtime.load_cuda_file(sys.argv[2], extra_ldflags=["-lcublas"], auto_register=False)
print(json.dumps("/site-packages/nvidia/cu13/lib/libcublas.so.13" in open("/proc/self/maps").read()))
"""


def images(module: be_runtime.CompiledModule) -> set[tuple[str, int]]:
    return {(code.kind, code.arch) for code in device_code(module.path)}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_kernel_compiles_and_loads(name: str):
    module = be_runtime.load_cuda_inline(name, source(name), auto_register=False)
    assert module.function_names == list(ENTRY_POINTS[name])
    assert images(module) == {("elf", 90), ("ptx", 90)}
    assert all(module.get_handler(function) for function in module.function_names)


def test_failing_launchers_compile():
    module = be_runtime.load_cuda_inline("failures", source("failures"), auto_register=False)
    assert len(module.function_names) == 9


@pytest.mark.parametrize("name", ["training", "events", "styles", "out_of_bounds"])
def test_programs_for_the_sanitizer_compile(name: str):
    module = load_exercise(name)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).exercise"
    assert subprocess.run([sys.executable, "-S", "-c", code, str(module.path)], check=False).returncode == 0


def test_a_header_beside_the_file():
    module = be_runtime.load_cuda_file(KERNELS / "sibling.cu", auto_register=False)
    assert (module.name, module.function_names) == ("sibling", ["transform"])


def test_a_folder_of_eight_files_that_share_names(tmp_path: Path):
    folder = tmp_path / "kernels"
    write_eight_files(folder)
    module = be_runtime.load_cuda_dir(folder, name="eight", auto_register=False)
    only = {f"only_{i}" for i in EIGHT_FILES}
    repeated = {f"part_{i}.apply" for i in range(5)} | {f"part_{i}.shift" for i in range(4, 8)}
    assert set(module.function_names) == only | repeated
    assert len([code for code in device_code(module.path) if code.kind == "elf"]) == len(EIGHT_FILES)


@pytest.mark.parametrize("flags", [["-rdc=true"], ["-rdc", "true"], ["-dlto"], ["-rdc=true", "-dlto"]], ids="".join)
def test_relocatable_device_code(flags: list[str]):
    try:
        module = be_runtime.load_cuda_dir(
            KERNELS / "relocatable", name="relocatable", extra_cuda_cflags=flags, auto_register=False
        )
    except be_runtime.BuildError as error:
        if NO_LTO_LINKER in str(error):
            pytest.skip(OPTIONAL + "nvvm/lib64/libnvvm.so, for nvlink to optimize")
        raise
    assert module.function_names == ["apply"]
    assert "elf" in {code.kind for code in device_code(module.path)}


def test_kept_intermediate_files_stay_out_of_the_cache():
    module = be_runtime.load_cuda_inline("kept", source("half"), extra_cuda_cflags=["--keep"], auto_register=False)
    assert not [path for path in module.path.parent.rglob("*") if path.suffix in {".ii", ".ptx", ".cubin", ".o"}]


@pytest.mark.parametrize("name", ["gemm", "gemm_plan"])
def test_a_library_from_wheels_is_found_by_its_name(name: str, tmp_path: Path):
    """A wheel has libcublas.so.13, and no libcublas.so for the linker to find."""
    toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert toolkit is not None
    if any(folder.joinpath("libcublas.so").exists() for folder in toolkit.library_dirs):
        pytest.skip(OPTIONAL + "a toolkit without cuBLAS, which would be found first")
    wheel = tmp_path / "site-packages" / "nvidia" / "cu13"
    (wheel / "include").mkdir(parents=True)
    (wheel / "lib").mkdir()
    (wheel / "include" / "cublas_v2.h").write_text(CUBLAS_HEADER)
    (tmp_path / "cublas.cc").write_text(CUBLAS_LIBRARY)
    target = wheel / "lib" / "libcublas.so.13"
    compiler = runtime.real_compiler()
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", tmp_path / "cublas.cc", "-o", target], check=True
    )
    is_loaded = run_json(LOAD_GEMM, str(tmp_path / "site-packages"), str(KERNELS / f"{name}.cu"), LD_LIBRARY_PATH=None)
    assert is_loaded


def test_a_library_by_its_path_and_by_its_folder(tmp_path: Path):
    (tmp_path / "extra.cc").write_text('extern "C" int threads_to_use() { return 64; }\n')
    for name in ("libby_path.so", "libby_folder.so"):
        command = [runtime.real_compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}", str(tmp_path / "extra.cc")]
        subprocess.run([*command, "-o", str(tmp_path / name)], check=True)
    text = source("sibling").replace("sibling.cuh", str(KERNELS / "sibling.cuh"))
    text = 'extern "C" int threads_to_use();\n' + text.replace("64, 0", "threads_to_use(), 0")
    for number, flags in enumerate(
        [
            [str(tmp_path / "libby_path.so"), f"-rpath={tmp_path}"],
            [f"-L{tmp_path}", "-lby_folder", f"-Wl,-rpath,{tmp_path}"],
        ]
    ):
        module = be_runtime.load_cuda_inline(f"linked_{number}", text, extra_ldflags=flags, auto_register=False)
        assert module.function_names == ["transform"]
