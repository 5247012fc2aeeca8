"""Warp's kernels by Warp's own JAX support, here on the CPU."""

from __future__ import annotations

import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, XLACustomKernel, jaxinfo_to_warpinfo, jaxtype_to_warptype, warp_kernel

ROW = jax.ShapeDtypeStruct((3,), jnp.float32)


def test_without_warp(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "warp", None)
    for use in (lambda: warp_kernel(print, ()), lambda: jaxtype_to_warptype(float)):
        with pytest.raises(ImportError, match=r"pip install 'brainevent-toolchain\[warp\]'"):
            use()


@pytest.fixture(scope="module")
def kernels() -> Any:
    pytest.importorskip("warp")
    from tests.support import warp_kernels

    return warp_kernels


def test_values_structure_and_vmap(kernels: Any):
    x = jnp.arange(3.0)
    scaled = warp_kernel(kernels.scale, {"out": ROW})
    np.testing.assert_array_equal(jax.jit(lambda x: scaled(x, 2.0))(x)["out"], 2 * x)
    batch = jnp.stack([x, x + 1])
    np.testing.assert_array_equal(jax.vmap(lambda x: scaled(x, 3.0)["out"])(batch), 3 * batch)
    rows = jax.vmap(warp_kernel(kernels.cumulate, ROW, launch_dims=1))(batch)
    np.testing.assert_array_equal(rows, jnp.cumsum(batch, axis=1), err_msg="right for any kernel unless told otherwise")
    outs = (ROW, jax.ShapeDtypeStruct((3, 1, 2), jnp.float32))
    first, vectors = warp_kernel(kernels.split, outs, launch_dims=3)(jnp.arange(6.0).reshape(3, 2))
    np.testing.assert_array_equal(first, [0, 2, 4])
    np.testing.assert_array_equal(vectors[:, 0, 1], [1, 3, 5])
    operation = XLACustomKernel("warped")
    operation.def_warp_kernel(lambda outs: lambda x: warp_kernel(kernels.scale, outs)(x, 2.0), platform="cpu")
    np.testing.assert_array_equal(jax.vmap(lambda x: operation(x, outs=ROW))(batch), 2 * batch)


def test_types_of_dtypes():
    warp = pytest.importorskip("warp")
    for name in ("bool", "int8", "uint16", "int32", "uint64", "float16", "float32", "float64"):
        assert jaxtype_to_warptype(jnp.dtype(name)) is jaxtype_to_warptype(name) is getattr(warp, name)
    assert jaxtype_to_warptype(jnp.float32) is warp.float32
    assert jaxtype_to_warptype(float) is warp.float64
    found = jaxinfo_to_warpinfo(jax.ShapeDtypeStruct((2, 3), jnp.int32))
    assert (found.dtype, found.ndim) == (warp.int32, 2)
    for dtype, words in ((jnp.complex64, "no scalar type for complex64"), ("vec3", "'vec3' is not a dtype")):
        with pytest.raises(ArgumentError, match=words):
            jaxtype_to_warptype(dtype)
    with pytest.raises(ArgumentError, match="has no axes"):
        jaxinfo_to_warpinfo(jax.ShapeDtypeStruct((), jnp.int32))


def test_refused_arguments(kernels: Any):
    integers = jax.ShapeDtypeStruct((3,), jnp.int32)
    for kernel, outs, message in (
        (lambda x: x, ROW, r"must be a function decorated with @warp\.kernel"),
        (kernels.scale, (), "outs is empty: a kernel needs at least one output"),
        (kernels.scale, 3, r"outs\[0\] is 3, which has no shape and dtype"),
        (kernels.scale, [ROW] * 4, "has 3 parameters, fewer than the 4 outs"),
        (kernels.scale, integers, r"gives float32\[3\] as output 0, but outs declares int32\[3\]"),
    ):
        with pytest.raises((TypeError, ArgumentError), match=message):
            warp_kernel(kernel, outs)(jnp.ones(3), 2.0)


REFUSED = [
    (("text", 2.0), "the kernel scale: x is 'text', which is not an array"),
    ((None, 2.0), "x is None, which is not an array"),
    ((np.ones(3), "2"), "factor is '2', which is not a static number"),
    ((np.ones(3), np.ones(2)), r"factor is array\(\[1., 1.\]\), which is not a static number"),
]


@pytest.mark.parametrize(("inputs", "message"), REFUSED)
def test_refused_inputs(kernels: Any, inputs: tuple[Any, ...], message: str):
    run = warp_kernel(kernels.scale, ROW)
    with pytest.raises(ArgumentError, match=message):
        run(*inputs)
    with pytest.raises(ArgumentError, match=r"factor is .*, which is not a static number"):
        jax.jit(run)(jnp.ones(3), 2.0)


def test_inputs_are_whatever_jax_takes_and_annotations_may_be_text(kernels: Any):
    run = warp_kernel(kernels.scale, ROW)
    for x in ([1.0, 2.0, 3.0], np.array([1.0, 2.0, 3.0])):
        np.testing.assert_array_equal(run(x, np.float64(2)), [2, 4, 6])
    np.testing.assert_array_equal(warp_kernel(kernels.negate, ROW)(jnp.ones(3)), [-1, -1, -1])


def test_a_kernel_can_write_its_input(kernels: Any):
    """If this fails, the documentation says too much."""
    x = jnp.arange(3.0)
    jax.block_until_ready(warp_kernel(kernels.overwrite, ROW)(x))
    np.testing.assert_array_equal(x, [5, 5, 5])
