"""`numba_cuda_kernel`: the seed's examples, what it takes, batches, and gaps through which inputs are written."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import ATTR_TYPES
from tests.support.jax_names import enable_x64
from tests.support.profiles import profile

cuda: Any = pytest.importorskip("tests.support.numba_kernels", exc_type=ImportError).cuda


@cuda.jit
def add_kernel(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


@cuda.jit
def both(x, total, difference):
    i = cuda.grid(1)
    if i < x.shape[0]:
        total[i] = x[i, 0] + x[i, 1]
        difference[i] = x[i, 0] - x[i, 1]


@cuda.jit
def scalar_square(x, out):
    out[()] = x[()] * x[()]


@cuda.jit
def copy(x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


@cuda.jit
def accumulate(total, x, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] += x[i]


@cuda.jit
def uses_every_axis(x, out):
    i = cuda.grid(1)
    if i < out.size and cuda.blockIdx.y == 0 and cuda.blockIdx.z == 0:
        out[i] = 2 * x[i]


def f32(*shape: int) -> Any:
    return jax.ShapeDtypeStruct(shape, np.float32)


@pytest.mark.parametrize("launch", [{"grid": 4, "block": 256}, {"launch_dims": 1024}])
def test_seed_examples(launch: dict[str, Any]):
    kernel_fn = be_runtime.numba_cuda_kernel(add_kernel, outs=jax.ShapeDtypeStruct((1024,), jnp.float32), **launch)

    @jax.jit
    def f(a: Any, b: Any) -> Any:
        return kernel_fn(a, b)

    a, b = jnp.arange(1024.0), jnp.ones(1024)
    np.testing.assert_array_equal(np.asarray(f(a, b)), np.arange(1024) + 1)
    np.testing.assert_array_equal(np.asarray(kernel_fn(a, b)), np.arange(1024) + 1)


def test_pytree_of_outputs():
    both_of = be_runtime.numba_cuda_kernel(both, outs={"a": f32(5), "b": (f32(5),)}, launch_dims=5)
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    found = both_of(x)
    np.testing.assert_array_equal(found["a"], x.sum(1))
    np.testing.assert_array_equal(found["b"][0], x[:, 0] - x[:, 1])


def test_zero_dimensional_and_empty_arrays():
    square = be_runtime.numba_cuda_kernel(scalar_square, outs=f32(), grid=1, block=1)
    assert float(square(np.float32(3))) == 9
    empty = be_runtime.numba_cuda_kernel(copy, outs=f32(0), launch_dims=0)
    assert empty(np.zeros(0, np.float32)).shape == (0,)


@pytest.mark.parametrize("name", ATTR_TYPES)
def test_every_dtype(name: str):
    with enable_x64(True):
        copied = be_runtime.numba_cuda_kernel(copy, outs=jax.ShapeDtypeStruct((6,), name), launch_dims=6)
        x = jnp.arange(6).astype(name)
        out = copied(x)
        assert out.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(out).astype(complex), np.asarray(x).astype(complex))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_arithmetic_of_16_bit_floats(name: str):
    add = be_runtime.numba_cuda_kernel(add_kernel, outs=jax.ShapeDtypeStruct((8,), name), launch_dims=8)
    x = jnp.arange(8).astype(name)
    np.testing.assert_array_equal(np.asarray(add(x, x)).astype(np.float32), 2.0 * np.arange(8))


@pytest.mark.parametrize("kernel", [copy, uses_every_axis])
@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_vmap_sees_slices(method: str, kernel: Any):
    function = be_runtime.numba_cuda_kernel(kernel, outs=f32(7), launch_dims=7, vmap_method=method)
    x = np.arange(42, dtype=np.float32).reshape(2, 3, 7)
    factor = 2 if kernel is uses_every_axis else 1
    np.testing.assert_array_equal(np.asarray(jax.jit(jax.vmap(jax.vmap(function)))(x)), factor * x)


@pytest.mark.parametrize("method", ["expand_dims", "broadcast_all"])
def test_vmap_repeats_what_is_not_batched(method: str):
    add = be_runtime.numba_cuda_kernel(add_kernel, outs=f32(7), launch_dims=7, vmap_method=method)
    x, y = np.arange(21, dtype=np.float32).reshape(3, 7), np.ones(7, np.float32)
    np.testing.assert_array_equal(np.asarray(jax.vmap(add, (0, None))(x, y)), x + 1)
    nested = jax.jit(jax.vmap(jax.vmap(add, (0, None)), (None, 0)))
    z = np.arange(14, dtype=np.float32).reshape(2, 7)
    np.testing.assert_array_equal(np.asarray(nested(x, z)), x[None] + z[:, None])


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_an_input_for_a_whole_batch_can_still_be_where_an_output_begins(method: str):
    add_to = be_runtime.numba_cuda_kernel(
        accumulate, outs=f32(7), launch_dims=7, input_output_aliases={0: 0}, vmap_method=method
    )
    x, y = np.ones(7, np.float32), np.arange(21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_array_equal(np.asarray(jax.jit(jax.vmap(add_to, (None, 0)))(x, y)), x + y)
    np.testing.assert_array_equal(np.asarray(jax.vmap(add_to, (0, None))(y, x)), x + y)


def test_large_batch_is_one_launch_after_another():
    function = be_runtime.numba_cuda_kernel(copy, outs=f32(2), grid=1, block=2, vmap_method="broadcast_all")
    x = np.arange(2 * 150_000, dtype=np.float32).reshape(-1, 2)
    np.testing.assert_array_equal(np.asarray(jax.vmap(function)(x)), x)


def test_one_launch_for_a_batch(tmp_path: Path):
    """Of a kernel that leaves an axis of the grid free; another is launched for each slice."""
    x, launches = jnp.zeros((3, 8)), {}
    for kernel, inputs in ((accumulate, (x, x)), (uses_every_axis, (x,))):
        name = kernel.py_func.__name__
        function = be_runtime.numba_cuda_kernel(kernel, outs=f32(8), launch_dims=8, vmap_method="broadcast_all")
        run = jax.jit(jax.vmap(function))
        jax.block_until_ready(run(*inputs))
        events = profile(functools.partial(run, *inputs), tmp_path / name).events
        named = [event["name"] for event in events if "kernel_details" in event.get("args", {})]
        launches[name] = sum(name in each for each in named)
    assert launches == {"accumulate": 1, "uses_every_axis": 3}


@cuda.jit
def by_flat(x, out):
    x.flat[0] = 1
    out[0] = 2


@cuda.jit
def by_nditer(x, out):
    elements: Any = np.nditer(x)
    for value in elements:
        value[()] = 1
    out[0] = 2


@cuda.jit
def by_another_name(x, out):
    other = x
    cuda.atomic.add(other, 0, 1)
    out[0] = 2


@cuda.jit
def by_store_to_another_name(x, out):
    other = x
    cuda.stwt(other, 0, np.float32(1))
    out[0] = 2


@cuda.jit(device=True)
def count(array):
    cuda.atomic.add(array, 0, 1)


@cuda.jit
def by_device_function(x, out):
    count(x)
    out[0] = 2


@pytest.mark.parametrize(
    "kernel",
    [
        *([by_flat] if cuda.__name__ == "numba.cuda" else []),
        by_nditer,
        by_another_name,
        by_store_to_another_name,
        by_device_function,
    ],
    ids=lambda kernel: kernel.py_func.__name__,
)
def test_gaps_of_the_check_are_those_of_the_documentation(kernel: Any):
    """If one of these is refused, or the input stays as it is, the page says too much."""
    x = jnp.zeros(4)
    run = be_runtime.numba_cuda_kernel(kernel, outs=f32(1), grid=1, block=1)
    assert jax.block_until_ready(run(x))[0] == 2
    assert x[0] == 1
