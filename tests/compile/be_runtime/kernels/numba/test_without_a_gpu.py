"""Numba's CUDA kernels and callables where there is no GPU: what is refused, and callables over the CPU's arrays."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
import importlib
import itertools
import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, numba_cuda_callable, numba_cuda_kernel
from be_runtime.call.attributes import check_options
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.numba.callable import Memory, python_function
from be_runtime.kernels.numba.cpu import HostSource, host_array_function, host_functions, signature_of
from be_runtime.load.registry import Target
from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem

numba: Any = pytest.importorskip("numba")
numba_kernels: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError)
cuda: Any = numba_kernels.cuda

OUT = jax.ShapeDtypeStruct((8,), np.float32)
X = np.zeros(8, np.float32)


def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


add_kernel = cuda.jit(add)


NO_KERNELS: list[tuple[Any, str]] = [
    (add, r"must be a function decorated with @cuda\.jit, not <function add "),
    (numba.njit(add), r"not CPUDispatcher.*\(numba\.core\.registry\.CPUDispatcher\)"),
    ("add", r"not 'add' \(builtins\.str\)"),
    (cuda.jit(device=True)(add), "add is a device function"),
]
if numba_kernels.PACKAGE != "numba":
    NO_KERNELS.append((importlib.import_module("numba.cuda").jit(add), "Numba's own @cuda.jit is not supported"))


def test_what_is_no_kernel_is_a_type_error():
    for kernel, message in NO_KERNELS:
        with pytest.raises(TypeError, match=message) as caught:
            numba_cuda_kernel(kernel, outs=OUT, launch_dims=8)
        assert isinstance(caught.value, AssertionError), "as the reference has it"


HAS_NUMBA_CUDA = numba_kernels.PACKAGE == "numba"
OF_NUMBA_CUDA = ("numba", "numba.cuda", "numba.cuda.dispatcher")
MODULES = OF_NUMBA_CUDA if HAS_NUMBA_CUDA else ("numba_cuda_mlir", "numba_cuda_mlir.cuda")


@pytest.mark.parametrize("absent", [*MODULES, *(["numba_cuda"] if HAS_NUMBA_CUDA else [])])
def test_without_numba_cuda_an_import_error_says_what_to_install(absent: str, monkeypatch: pytest.MonkeyPatch):
    """Numba has a numba.cuda of its own, which is not enough."""
    for module in MODULES[MODULES.index(absent) + 1 :] if absent in MODULES else ():
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(ImportError, match=r"numba_cuda_kernel needs .*\n.*pip install 'brainevent-toolchain\[numba\]'"):
        numba_cuda_kernel(add, outs=OUT, launch_dims=8)
    if absent in (numba_kernels.PACKAGE, "numba_cuda"):
        with pytest.raises(ImportError, match=r"numba_cuda_callable needs .*\n.*pip install 'brainevent-toolchain\["):
            numba_cuda_callable(print, outs=OUT)


def test_a_library_that_numba_lacks_is_named(monkeypatch: pytest.MonkeyPatch):
    """Where there is none: what the loaders of numba-cuda and cuda-core say of NVRTC and nvJitLink."""
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "9.0")
    nvrtc = 'Failure finding "libnvrtc.so.13 or libnvrtc.so.12": No such file'
    for text in (nvrtc, '"cuda" is an NVIDIA driver library and can only be found via system search.'):
        for name in ("compile", "compile_all"):
            monkeypatch.setattr(cuda, name, Mock(side_effect=RuntimeError(text)))
        with pytest.raises(BuildError) as caught:
            jax.jit(numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)).lower(X, X)
        assert "nvidia-cuda-nvrtc nvidia-nvjitlink" in caught.value.hints[0]


LAUNCH = {"launch_dims": 8}
REFUSED: list[tuple[dict[str, Any], tuple[Any, ...], str]] = [
    ({}, (X, X), "neither of"),
    ({"grid": 1, "block": 2048}, (X, X), "the most is 1024"),
    ({"grid": "4", "block": 8}, (X, X), "arithmetic over axes, and no signature names the axes"),
    (LAUNCH, (X,), r"add\(x, y, out\) takes 3 arrays, but the call has 1 inputs and 1 outputs"),
    (LAUNCH, (), "the call has 0 inputs"),
    (LAUNCH, ("x", X), "add: argument 0 is 'x', which is not an array"),
    (LAUNCH, (X, np.array(["x", "y"])), "add: argument 1 is .*, which is not an array"),
    (LAUNCH, (X, np.array([None])), "add: argument 1 is .*, which is not an array"),
]


@pytest.mark.parametrize(("launch", "inputs", "message"), REFUSED)
def test_launches_and_inputs_that_are_refused(launch: dict[str, Any], inputs: tuple[Any, ...], message: str):
    with pytest.raises(ArgumentError, match=message):
        numba_cuda_kernel(add_kernel, outs=OUT, **launch)(*inputs)


def test_no_gpu_is_said_when_traced(monkeypatch: pytest.MonkeyPatch):
    if probe_devices(LocalSystem()).devices:
        pytest.skip("there is a GPU")
    monkeypatch.delenv("BE_COMPUTE_CAPABILITIES", raising=False)
    with pytest.raises(ArgumentError, match="no GPU is visible"):
        jax.jit(numba_cuda_kernel(add_kernel, outs=OUT, launch_dims=8)).lower(X, X)


numbers = itertools.count()
ROW = jax.ShapeDtypeStruct((3,), jnp.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)


def numpy_array(memory: Memory) -> Any:
    dtype = np.dtype(memory.parameter.dtype.name)
    size = int(np.prod(memory.shape)) * dtype.itemsize
    raw: Any = (ctypes.c_char * size).from_address(memory.address) if size else b""
    array = np.frombuffer(raw, dtype).reshape(memory.shape)
    array.flags.writeable = not memory.readonly and size > 0
    return array


def on_cpu(function: Callable[..., None], outs: Any, noted: Any = None) -> Callable[..., Any]:
    """The function of arrays; `noted` gets the inputs of each call whose target is looked up."""

    class OnCpu(HostSource):
        def register(self, inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> str:
            if noted is not None:
                noted.append(str(inputs[0]))
            target, signature = f"tests.callback.{next(numbers)}", signature_of(inputs, outputs)
            made = partial(python_function, function, signature, numpy_array)
            host_functions().add(Target(target, "cpu", target), function.__name__, signature, made)
            return target

    return host_array_function(function.__name__, (), None, OnCpu(), None, check_options({"outs": outs}))


def test_arrays_of_any_shape_and_dtype():
    def kernel(x: Any, n: Any, out: Any, total: Any) -> None:
        out[...] = x * n
        total[...] = int(n) + x.size

    outs = {"out": jax.ShapeDtypeStruct((4, 3), jnp.float32), "total": jax.ShapeDtypeStruct((), jnp.int32)}
    result = jax.jit(on_cpu(kernel, outs))(ROWS, np.int32(3))
    np.testing.assert_array_equal(result["out"], 3 * ROWS)
    assert result["total"] == 15


def test_an_exception_is_an_xla_error():
    """Also if its message is cut within a character, and if the kernel writes an input, which is read-only."""

    def refuses(x: Any, out: Any) -> None:
        raise KeyError("missing")

    def writes(x: Any, out: Any) -> None:
        x[0] = 1

    def cut(x: Any, out: Any) -> None:
        raise KeyError("missing")

    cut.__name__ = "é" * 1100  # XLA's message holds 2047 bytes
    said = {refuses: "refuses: KeyError: 'missing'", writes: r"writes: ValueError: .*read-only", cut: r"é{1000}"}
    for kernel, message in said.items():
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            on_cpu(kernel, ROW)(ROWS[0]).block_until_ready()


def test_a_target_is_looked_up_once_for_the_same_shapes():
    looked_up: list[str] = []

    def kernel(x: Any, out: Any) -> None:
        out[:] = 0

    run = on_cpu(kernel, ROW, looked_up)
    for x in (ROWS[0], ROWS[1], ROWS[0, :2], ROWS[1]):
        run(x)
    assert looked_up == ["float32[3]", "float32[2]"]


def test_bad_input_of_numba_cuda_callable():
    with pytest.raises(TypeError, match="func must be callable"):
        numba_cuda_callable("f", ROW)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="outs is empty"):
        numba_cuda_callable(lambda x, out, stream: None, ())

    def kernel(x: Any, out: Any) -> None: ...

    with pytest.raises(ArgumentError, match="then the outputs, then the stream"):
        numba_cuda_callable(kernel, ROW)(ROWS[0])
