"""Python as a host function: what `numba_cuda_callable` is made of, here over arrays of the CPU."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, numba_cuda_callable
from be_runtime.call.call_options import check_options
from be_runtime.kernels.numba.callable.callback import Memory, python_function
from be_runtime.kernels.numba.cpu.caller import called_function, host_array_function
from be_runtime.kernels.numba.cpu.compiled import host_functions
from be_runtime.kernels.numba.cpu.signature import Signature

pytest.importorskip("numba")
numbers = itertools.count()
ROW = jax.ShapeDtypeStruct((3,), jnp.float32)
X = np.arange(12, dtype=np.float32).reshape(4, 3)


def numpy_array(memory: Memory) -> Any:
    dtype = np.dtype(memory.parameter.dtype.name)
    size = int(np.prod(memory.shape)) * dtype.itemsize
    raw: Any = (ctypes.c_char * size).from_address(memory.address) if size else b""
    array = np.frombuffer(raw, dtype).reshape(memory.shape)
    array.flags.writeable = not memory.readonly and size > 0
    return array


def on_cpu(function: Callable[..., None], outs: Any, prepare: Any = None, **options: Any) -> Callable[..., Any]:
    def target_for(_name: str, signature: Signature) -> str:
        target = f"tests.callback.{next(numbers)}"
        made = partial(python_function, function, signature, numpy_array)
        host_functions().add(target, function.__name__, signature, made)
        return target

    called = called_function(function, target_for, prepare=prepare)
    return host_array_function(called, None, check_options(outs=outs, **options))


def test_arrays_of_any_shape_and_dtype():
    def kernel(x: Any, n: Any, out: Any, total: Any) -> None:
        out[...] = x * n
        total[...] = int(n) + x.size

    outs = {"out": jax.ShapeDtypeStruct((4, 3), jnp.float32), "total": jax.ShapeDtypeStruct((), jnp.int32)}
    result = jax.jit(on_cpu(kernel, outs))(X, np.int32(3))
    np.testing.assert_array_equal(result["out"], 3 * X)
    assert result["total"] == 15


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_one_call_for_each_element_of_a_batch(method: str):
    shapes = []

    def kernel(x: Any, y: Any, out: Any) -> None:
        shapes.append((x.shape, y.shape, out.shape))
        out[:] = x + y

    run = jax.vmap(on_cpu(kernel, ROW, vmap_method=method), in_axes=(0, None))
    np.testing.assert_array_equal(run(X, X[0]), X + X[0])
    assert shapes == [((3,), (3,), (3,))] * 4


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
            on_cpu(kernel, ROW)(X[0]).block_until_ready()


def test_in_place():
    def kernel(x: Any, out: Any) -> None:
        out += 1

    np.testing.assert_array_equal(jax.jit(on_cpu(kernel, ROW, input_output_aliases={0: 0}))(X[1]), X[1] + 1)


def test_what_is_prepared_is_prepared_once_for_the_same_shapes():
    prepared = []

    def kernel(x: Any, out: Any) -> None:
        out[:] = 0

    run = on_cpu(kernel, ROW, prepare=lambda name, inputs, outputs: prepared.append((name, str(inputs[0]))))
    for x in (X[0], X[1], X[0, :2], X[1]):
        run(x)
    assert prepared == [("kernel", "float32[3]"), ("kernel", "float32[2]")]


def test_bad_input_of_numba_cuda_callable():
    with pytest.raises(TypeError, match="func must be callable"):
        numba_cuda_callable("f", ROW)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="outs is empty"):
        numba_cuda_callable(lambda x, out, stream: None, ())

    def kernel(x: Any, out: Any) -> None: ...

    with pytest.raises(ArgumentError, match="then the outputs, then the stream"):
        numba_cuda_callable(kernel, ROW)(X[0])
