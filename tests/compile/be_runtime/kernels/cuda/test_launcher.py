"""The launcher compiles without CUDA, and says what is wrong where there is no GPU, no kernel or no sense."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import RegistrationError
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.describe import Geometry, Kernel, KernelImage, encode_params, pointer_param
from be_runtime.load.native_library import native_library
from be_toolchain import probe_devices
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from tests.support import launch_frame, runtime
from tests.support.cuda import launch_once

Invoke = Callable[..., str]
ATTRIBUTES = {
    "kernel": "0" * 32,
    "launch": list(Geometry((1, 1, 1), (1, 1, 1)).encode()),
    "name": "scale",
    "params": [],
}


@pytest.fixture(scope="module")
def invoke() -> Invoke:
    library = native_library("launcher", new_session(), ["-ldl"])

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


def test_no_driver_is_said(invoke: Invoke):
    if probe_devices(LocalSystem()).driver_version is not None:
        pytest.skip("there is a driver")
    assert invoke("instantiate", ATTRIBUTES) == (
        "scale: there is no NVIDIA driver on this machine: libcuda.so.1 was not found"
    )


def test_unknown_kernel_is_said(invoke: Invoke):
    assert "scale: this process has not made the kernel (content 0000" in invoke("execute", ATTRIBUTES)


@pytest.mark.parametrize(
    "change",
    [
        {"kernel": "too short"},
        {"launch": [1, 2, 3]},
        {"params": [0, 0, 0]},
        {"params": "text"},
        {"params": list(encode_params([pointer_param(7, 0, 32)]))},
        {"params": list(encode_params([pointer_param(-1, 0, 32)]))},
        {"params": list(encode_params([pointer_param(0, 2, 32)]))},
    ],
)
def test_attributes_that_are_not_a_launch_are_refused(invoke: Invoke, change: dict[str, Any]):
    message = invoke("execute", ATTRIBUTES | change)
    assert "the attributes are not those of a launch" in message


@pytest.mark.parametrize(
    ("shape", "bits", "refused"),
    [((3, 13), 4, True), ((3, 14), 4, False), ((2, 5, 2), 2, True), ((1, 13), 4, False), ((13,), 4, False)],
)
def test_a_batch_whose_slices_begin_within_a_byte_is_refused(
    invoke: Invoke, shape: tuple[int, ...], bits: int, refused: bool
):
    params = {"params": list(encode_params([pointer_param(0, 1, bits)]))}
    message = invoke("execute", ATTRIBUTES | params, shape)
    said = f"scale: a batch has slices of {shape[-1]} elements of {bits} bits, which don't begin at whole bytes"
    assert message.startswith(said if refused else "scale: this process has not made the kernel")


def test_a_program_for_the_cpu_says_so():
    kernel = Kernel("a" * 32, "scale<float>", (KernelImage(Arch(9, 0), "scale", b"cubin"),))
    with pytest.raises(RegistrationError, match=r"scale<float> has no kernel for cpu.*be_runtime.launch for cuda"):
        launch_once(kernel, jax.device_put(np.zeros(3, np.float32), jax.devices("cpu")[0]))


def test_tokens_are_not_the_kernel_s(invoke: Invoke):
    """Of the arguments and results of an ordered call the last are tokens: buffer 0 is its result, 1 its token."""
    taken, token = ({"params": list(encode_params([pointer_param(index, 0, 4)]))} for index in (0, 1))
    assert "this process has not made the kernel" in invoke("execute", ATTRIBUTES | taken, ordered=True)
    assert "the attributes are not those of a launch" in invoke("execute", ATTRIBUTES | token, ordered=True)


def test_it_is_built_once(tmp_path: Path):
    """A second process finds the launcher in the cache, and runs no compiler."""
    notes = tmp_path / "notes"
    compiler = runtime.forwarding_compiler(tmp_path / "g++", f"echo \"$*\" >> '{notes}'")
    environ = runtime.environment(BE_CXX=str(compiler), BE_CACHE_DIR=str(tmp_path / "cache"))
    runtime.run_python(_MAKE, env=environ)
    compiled = notes.read_text().splitlines()
    assert sum("launcher.cc" in line for line in compiled) == 1
    runtime.run_python(_MAKE, env=environ)
    assert notes.read_text().splitlines() == compiled


_MAKE = """
from be_runtime.kernels.cuda.calls import new_session
from be_runtime.kernels.cuda.launcher import own_launcher

own_launcher(new_session())
"""


def test_frame_structures_are_those_of_the_header(tmp_path: Path):
    """The harness lays out what the C header does."""
    import subprocess

    from be_runtime.xla.jax_port import ffi_include_dir

    source = tmp_path / "sizes.cc"
    source.write_text(
        '#include <cstdio>\n#include "xla/ffi/api/c_api.h"\nint main() { std::printf("%zu %zu %zu %zu %zu", '
        "sizeof(XLA_FFI_CallFrame), sizeof(XLA_FFI_Buffer), sizeof(XLA_FFI_Attrs), "
        "offsetof(XLA_FFI_Api, XLA_FFI_Stream_Get), offsetof(XLA_FFI_Api, XLA_FFI_Error_Create)); }"
    )
    program = tmp_path / "sizes"
    subprocess.run(
        [runtime.real_compiler(), f"-I{ffi_include_dir()}", str(source), "-o", str(program)], check=True, timeout=60
    )
    printed = subprocess.run([str(program)], capture_output=True, text=True, check=True, timeout=10).stdout
    sizes = [ctypes.sizeof(kind) for kind in (launch_frame.Frame, launch_frame.Buffer, launch_frame.Attrs)]
    assert list(map(int, printed.split())) == [
        *sizes,
        launch_frame.Api.get_stream.offset,
        launch_frame.Api.create_error.offset,
    ]


def test_no_gpu_is_said_when_traced(monkeypatch: pytest.MonkeyPatch):
    import be_runtime

    if probe_devices(LocalSystem()).devices:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)
    add = be_runtime.cuda_kernel(
        "__global__ void add(const float* x, float* y) {}", "add", lambda x: x, grid=1, block=1
    )
    with pytest.raises(be_runtime.ArgumentError, match="no GPU is visible"):
        add(np.zeros(3, np.float32))
