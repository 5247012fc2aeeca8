"""The launcher compiles without CUDA, and says what is wrong where there is no GPU, no kernel or no sense."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import RegistrationError
from be_runtime.jax.transforms import devices
from be_runtime.kernels.geometry import Geometry, encode_params, pointer_param
from be_runtime.kernels.launcher import Kernel, KernelImage
from be_runtime.load.identity import shipped_folder
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from be_runtime.own_files import INCLUDE_DIR, NATIVE_DIR
from be_toolchain import probe_devices
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from tests.support import launch_frame, runtime
from tests.support.cuda import launch_once

Invoke = Callable[..., str]
LAUNCH = list(Geometry((1, 1, 1), (1, 1, 1)).encode())
ATTRIBUTES = {"kernel": "0" * 32, "launch": LAUNCH, "name": "scale", "params": []}
UNKNOWN = "scale: this process has not made the kernel (content 0000"
NO_LAUNCH = "the attributes do not describe a launch"


def pointer(index: int, group: int, bits: int) -> dict[str, Any]:
    return {"params": list(encode_params([pointer_param(index, group, bits)]))}


@pytest.fixture(scope="module")
def invoke() -> Invoke:
    library = native_library("launcher", PROCESS.session(), ["-ldl"])

    def call(stage: str, attributes: dict[str, Any], shape: tuple[int, ...] = (), *, ordered: bool = False) -> str:
        kept: list[Any] = []
        messages: list[str] = []
        api = launch_frame.make_api(messages)
        result = launch_frame.Buffer(rank=len(shape), dims=(ctypes.c_int64 * 8)(*shape))
        token = launch_frame.Buffer(dtype=launch_frame.TOKEN)
        results = (ctypes.c_void_p * 2)(ctypes.addressof(result), ctypes.addressof(token))
        frame = launch_frame.Frame(
            api=ctypes.pointer(api),
            args=launch_frame.Buffers(size=int(ordered), items=(ctypes.c_void_p * 1)(ctypes.addressof(token))),
            attrs=launch_frame.make_attrs(attributes, kept),
            rets=launch_frame.Buffers(size=1 + ordered, items=results),
        )
        handler = getattr(library, f"be_launch_{stage}")
        handler.restype = ctypes.c_void_p
        failed = handler(ctypes.byref(frame))
        assert bool(failed) == bool(messages)
        return "".join(messages)

    return call


def test_no_driver_and_no_gpu_are_said(invoke: Invoke, monkeypatch: pytest.MonkeyPatch):
    devices = probe_devices(LocalSystem())
    if devices.driver_version is None:
        said = "scale: there is no NVIDIA driver on this machine: libcuda.so.1 was not found"
        assert invoke("instantiate", ATTRIBUTES) == said
    if devices.devices:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)
    add = be_runtime.cuda_kernel("__global__ void f(const float* x, float* y) {}", "f", lambda x: x, grid=1, block=1)
    with pytest.raises(be_runtime.ArgumentError, match="no GPU is visible"):
        add(np.zeros(3, np.float32))


REFUSED = [
    ({}, (), False, UNKNOWN),
    ({"kernel": "too short"}, (), False, NO_LAUNCH),
    ({"launch": [1, 2, 3]}, (), False, NO_LAUNCH),
    ({"params": [0, 0, 0]}, (), False, NO_LAUNCH),
    ({"params": "text"}, (), False, NO_LAUNCH),
    (pointer(7, 0, 32), (), False, NO_LAUNCH),
    (pointer(-1, 0, 32), (), False, NO_LAUNCH),
    (pointer(0, 2, 32), (), False, NO_LAUNCH),
    # Of the arguments and results of an ordered call the last are tokens: buffer 0 is its result, 1 its token.
    (pointer(0, 0, 4), (), True, UNKNOWN),
    (pointer(1, 0, 4), (), True, NO_LAUNCH),
    # Slices that don't begin at whole bytes
    (pointer(0, 1, 4), (3, 13), False, "scale: a batch has slices of 13 elements of 4 bits, which don't begin at"),
    (pointer(0, 1, 4), (3, 14), False, UNKNOWN),
    (pointer(0, 1, 2), (2, 5, 2), False, "scale: a batch has slices of 2 elements of 2 bits, which don't begin at"),
    (pointer(0, 1, 4), (1, 13), False, UNKNOWN),
    (pointer(0, 1, 4), (13,), False, UNKNOWN),
]


@pytest.mark.parametrize(("change", "shape", "ordered", "said"), REFUSED)
def test_refusals(invoke: Invoke, change: dict[str, Any], shape: tuple[int, ...], ordered: bool, said: str):
    """What can't be launched is said."""
    assert said in invoke("execute", ATTRIBUTES | change, shape, ordered=ordered)


def test_ptx_that_is_newer_than_the_driver_is_refused_with_a_hint(tmp_path: Path):
    """A driver of this test returns CUDA error 222 for every module."""
    (tmp_path / "driver.cc").write_text(
        'extern "C" {\n'
        "int cuDeviceGetAttribute(int* value, int, int) { return *value = 0; }\n"
        "int cuThreadExchangeStreamCaptureMode(int*) { return 0; }\n"
        "int cuModuleLoadDataEx(void*, const void*, unsigned, const int*, void**) { return 222; }\n"
        'int cuGetErrorName(int, const char** name) { *name = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"; return 0; }\n'
        'int cuGetErrorString(int, const char** text) { *text = "unsupported"; return 0; }\n'
        "}\n"
    )
    (tmp_path / "main.cc").write_text(
        '#include <cstdio>\n#include "gpu_kernels.h"\n'
        "int main() {\n"
        "  be_launch::Kernel kernel;\n"
        '  kernel.images.push_back({0, true, false, 0, "f", "ptx"});\n'
        "  std::string problem;\n"
        "  be_launch::load(kernel, 0, 0, &problem);\n"
        "  puts(problem.c_str());\n"
        "}\n"
    )
    includes = [f"-I{folder}" for folder in (NATIVE_DIR, INCLUDE_DIR)]
    gxx = ["g++", "-std=c++17", "main.cc", "-o", "main", *includes, "-ldl"]
    subprocess.run(["g++", "-shared", "-fPIC", "driver.cc", "-o", "libcuda.so.1"], cwd=tmp_path, check=True)
    subprocess.run(gxx, cwd=tmp_path, check=True)
    environ = {"LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([tmp_path / "main"], env=environ, capture_output=True, text=True, check=True)
    assert "CUDA_ERROR_UNSUPPORTED_PTX_VERSION (unsupported); the driver is older than the CUDA release" in done.stdout


def test_a_program_for_the_cpu_says_so():
    kernel = Kernel("a" * 32, "scale<float>", (KernelImage(Arch(9, 0), "scale", b"cubin"),))
    with pytest.raises(RegistrationError, match=r"scale<float> has no kernel for cpu.*it has cuda") as raised:
        launch_once(kernel, jax.device_put(np.zeros(3, np.float32), jax.devices("cpu")[0]))
    is_proposed = any("put the arrays" in hint for hint in raised.value.hints)
    assert is_proposed == bool(devices("cuda")), "only a device that exists is proposed"


def test_it_is_built_once(tmp_path: Path, tmp_cache: Path, monkeypatch: pytest.MonkeyPatch):
    """A second session finds the launcher in the cache, and runs no compiler; neither does one that it came with."""
    notes = tmp_path / "notes"
    notes.touch()
    monkeypatch.setenv("BE_CXX", str(runtime.forwarding_compiler(tmp_path / "g++", f"echo \"$*\" >> '{notes}'")))
    for _ in range(2):
        native_library("launcher", PROCESS.session(), ["-ldl"])
        assert sum("launcher.cc" in line for line in notes.read_text().splitlines()) == (shipped_folder() is None)
