"""`numba_cuda_kernel` where it never comes to compiling: no kernel, no Numba, no GPU, no launch, no such inputs."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import sys
from typing import Any

import jax
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, numba_cuda_callable, numba_cuda_kernel
from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem

numba: Any = pytest.importorskip("numba")
cuda: Any = pytest.importorskip("numba.cuda")

OUT = jax.ShapeDtypeStruct((8,), np.float32)
X = np.zeros(8, np.float32)


def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


add_kernel = cuda.jit(add)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (add, r"must be a function decorated with @cuda\.jit, not <function add "),
        (numba.njit(add), r"not CPUDispatcher.*\(numba\.core\.registry\.CPUDispatcher\)"),
        ("add", r"not 'add' \(builtins\.str\)"),
        (cuda.jit(device=True)(add), "add is a device function"),
    ],
    ids=["a Python function", "a CPU kernel", "a name", "a device function"],
)
def test_what_is_no_kernel_is_a_type_error(kernel: Any, message: str):
    with pytest.raises(TypeError, match=message) as caught:
        numba_cuda_kernel(kernel, outs=OUT, launch_dims=8)
    assert isinstance(caught.value, AssertionError), "as the reference has it"


MODULES = ("numba", "numba.cuda", "numba.cuda.dispatcher")


@pytest.mark.parametrize("absent", [*MODULES, "numba_cuda"])
def test_without_numba_cuda_an_import_error_says_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch):
    """Numba has a numba.cuda of its own, which is not enough."""
    for module in MODULES[MODULES.index(absent) + 1 :] if absent in MODULES else ():
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=r"numba_cuda_kernel needs .*\n.*pip install 'brainevent-toolchain\[numba\]'"):
        numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)
    with pytest.raises(ImportError, match=r"numba_cuda_callable needs .*\n.*pip install 'brainevent-toolchain\["):
        numba_cuda_callable(print, outs=OUT)


@pytest.mark.parametrize(
    "text",
    [
        'Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file',
        '"cuda" is an NVIDIA driver library and can only be found via system search.',
    ],
    ids=["NVRTC", "nvJitLink"],
)
def test_a_library_that_numba_lacks_is_named(text: str, monkeypatch: pytest.MonkeyPatch):
    """Where there is none: what the loaders of numba-cuda and cuda-core say."""

    def fail(*_args: Any, **_options: Any) -> None:
        raise RuntimeError(text)

    monkeypatch.setattr(cuda, "compile_all", fail)
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "9.0")
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)).lower(X, X)
    assert "nvidia-cuda-nvrtc nvidia-nvjitlink" in caught.value.hints[0]


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({}, "neither of"),
        ({"grid": 1, "block": 2048}, "the most is 1024"),
        ({"grid": "4", "block": 8}, "arithmetic over axes, and there is no signature"),
    ],
)
def test_what_can_not_be_launched_is_a_value_error(launch: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message) as caught:
        numba_cuda_kernel(add_kernel, outs=OUT, **launch)
    assert isinstance(caught.value, ArgumentError)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((X,), r"add\(x, y, out\) takes 3 arrays, but the call has 1 inputs and 1 outputs"),
        ((X, X, X), "the call has 3 inputs"),
        ((), "the call has 0 inputs"),
        (("x", X), "add: argument 0 is 'x', which is not an array"),
        ((X, np.array(["x", "y"])), "add: argument 1 is .*, which is not an array"),
        ((X, np.array([None])), "add: argument 1 is .*, which is not an array"),
    ],
)
def test_inputs_that_can_not_be_taken_are_refused_when_traced(inputs: tuple[Any, ...], message: str):
    with pytest.raises(ArgumentError, match=message):
        numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)(*inputs)


def test_no_gpu_is_said_when_traced(monkeypatch: pytest.MonkeyPatch):
    if probe_devices(LocalSystem()).devices:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)
    with pytest.raises(ArgumentError, match="no GPU is visible"):
        jax.jit(numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)).lower(X, X)
