"""Every kernel that the tests on a device run compiles, for an architecture that need not be here, and is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import be_runtime
from be_toolchain import ToolchainRequest, resolve
from tests.cuda.built import built, images
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
from tests.support.requirements import OPTIONAL, in_full

ENTRY_POINTS = {
    "styles": "plus_1 plus_2 plus_3 plus_4 plus_5 plus_6",
    "kinds": "combine copies",
    "elementwise": "twice describe divmod",
    "attributes": "integers floats complexes",
    "transforms": "weigh decay increment",
    "graph": "step",
    "half": "fused widen",
    "events": "gather scatter",
    "cub_sums": "device_sum row_sums",
    "small_types": "copy to_float from_float reverse",
    "memory": "declared asked planned",
    "failures": "good waits checked_launch unchecked_launch too_much_shared cuda_call condition standard_exception "
    "other_exception",
}
STRICT = ("-Xcompiler", "-Wall,-Wextra,-Werror", "-Werror", "all-warnings")
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


@pytest.mark.parametrize("name", [name if name == "styles" else in_full(name) for name in ENTRY_POINTS])
def test_a_kernel_compiles_and_is_loaded(name: str):
    module = built(name)
    assert module.function_names == ENTRY_POINTS[name].split()
    assert images(module) == {("elf", 90), ("ptx", 90)}
    assert all(module.get_handler(function) for function in module.function_names)


def test_the_generated_code_of_every_kind_has_no_warnings():
    assert built("kinds", *STRICT).function_names == ["combine", "copies"]


@pytest.mark.full
@pytest.mark.parametrize("name", ["training", "events", "styles", "out_of_bounds"])
def test_programs_for_the_sanitizer_compile(name: str):
    module = load_exercise(name)
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).exercise"
    assert subprocess.run([sys.executable, "-S", "-c", code, str(module.path)], check=False).returncode == 0


@pytest.mark.full
def test_a_folder_of_eight_files_that_share_names(tmp_path: Path):
    folder = tmp_path / "kernels"
    write_eight_files(folder)
    module = be_runtime.load_cuda_dir(folder, name="eight", auto_register=False)
    only = {f"only_{i}" for i in EIGHT_FILES}
    repeated = {f"part_{i}.apply" for i in range(5)} | {f"part_{i}.shift" for i in range(4, 8)}
    assert set(module.function_names) == only | repeated
    assert len([code for code in device_code(module.path) if code.kind == "elf"]) == len(EIGHT_FILES)


@pytest.mark.parametrize("flags", ["-rdc=true", *map(in_full, ("-rdc true", "-dlto", "-rdc=true -dlto"))])
def test_relocatable_device_code(flags: str):
    folder = KERNELS / "relocatable"
    try:
        module = be_runtime.load_cuda_dir(folder, extra_cuda_cflags=flags.split(), auto_register=False)
    except be_runtime.BuildError as error:
        if NO_LTO_LINKER in str(error):
            pytest.skip(OPTIONAL + "nvvm/lib64/libnvvm.so, for nvlink to optimize")
        raise
    assert module.function_names == ["apply"]
    assert "elf" in {kind for kind, _ in images(module)}


@pytest.mark.full
@pytest.mark.parametrize("name", ["gemm", "gemm_plan"])
def test_a_library_from_wheels_is_found_by_its_name(name: str, tmp_path: Path):
    """A wheel has libcublas.so.13, and no libcublas.so for the linker to find."""
    toolkit = resolve(ToolchainRequest(need_cuda=True)).cuda
    assert toolkit is not None
    if any(folder.joinpath("libcublas.so").exists() for folder in toolkit.library_dirs):
        pytest.skip(OPTIONAL + "a toolkit without cuBLAS, which would be found first")
    wheel = tmp_path / "site-packages" / "nvidia" / "cu13"
    for folder in ("include", "lib"):
        (wheel / folder).mkdir(parents=True)
    (wheel / "include" / "cublas_v2.h").write_text(CUBLAS_HEADER)
    (tmp_path / "cublas.cc").write_text(CUBLAS_LIBRARY)
    command = (runtime.real_compiler(), "-shared", "-fPIC", "-Wl,-soname,libcublas.so.13", str(tmp_path / "cublas.cc"))
    subprocess.run([*command, "-o", str(wheel / "lib" / "libcublas.so.13")], check=True)
    assert run_json(LOAD_GEMM, str(tmp_path / "site-packages"), str(KERNELS / f"{name}.cu"), LD_LIBRARY_PATH=None)


@pytest.mark.full
def test_a_library_by_its_path_and_by_its_folder(tmp_path: Path):
    (tmp_path / "extra.cc").write_text('extern "C" int threads_to_use() { return 64; }\n')
    for name in ("libby_path.so", "libby_folder.so"):
        command = [runtime.real_compiler(), "-shared", "-fPIC", f"-Wl,-soname,{name}", str(tmp_path / "extra.cc")]
        subprocess.run([*command, "-o", str(tmp_path / name)], check=True)
    text = source("sibling").replace("sibling.cuh", str(KERNELS / "sibling.cuh"))
    text = 'extern "C" int threads_to_use();\n' + text.replace("64, 0", "threads_to_use(), 0")
    by_path = [str(tmp_path / "libby_path.so"), f"-rpath={tmp_path}"]
    for flags in (by_path, [f"-L{tmp_path}", "-lby_folder", f"-Wl,-rpath,{tmp_path}"]):
        module = be_runtime.load_cuda_inline("linked", text, extra_ldflags=flags, auto_register=False)
        assert module.function_names == ["transform"]
