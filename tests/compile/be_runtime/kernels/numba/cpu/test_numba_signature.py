"""Numba's CPU kernels with a signature, scratch memory, effects and layouts, and what a call costs them."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from be_runtime import ArgumentError, RegistrationError, SpecError, TransformError, numba_kernel
from be_runtime.kernels.numba.cpu.intrinsics import intrinsics
from tests.support.jax_names import shard_map

numba: Any = pytest.importorskip("numba")
njit = numba.njit

A = np.arange(12, dtype=np.float32).reshape(3, 4)
X = np.arange(4, dtype=np.float32)


@njit
def matvec(a, x, out, room):
    doubled = room.view(np.float32)
    for k in range(x.size):
        doubled[k] = 2 * x[k]
    for n in range(out.size):
        out[n] = 0
        for k in range(x.size):
            out[n] += a[n, k] * doubled[k]


SIGNATURE = "arg[n k] arg[k] ret[n]:like(0) scratch[4 * k]"


def test_results_and_scratch_memory_follow_from_the_signature():
    for given in (SIGNATURE, ["arg[n k]", "arg[k]", "ret[n]:like(0)", "scratch[4 * k]"]):
        run = numba_kernel(matvec, signature=given)
        for rows in (3, 2, 0):
            np.testing.assert_array_equal(run(A[:rows], X), 2 * A[:rows] @ X)
        np.testing.assert_array_equal(jax.jit(run)(A[:, :2], X[:2]), 2 * A[:, :2] @ X[:2])


@pytest.mark.parametrize("method", ["sequential", "broadcast_all", "expand_dims"])
def test_each_element_of_a_batch_has_scratch_memory(method: str):
    run = numba_kernel(matvec, signature=SIGNATURE, vmap_method=method)
    batch = np.stack([X, X + 1, X * X])
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(None, 0))(A, batch), 2 * batch @ A.T)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ((A, X[:3]), "matvec: axis k is 4 in argument 0 (axis 1) and 3 in argument 1 (axis 0)"),
        ((A, A), "matvec: argument 1 has the shape (3, 4), but its axes are declared as [k]"),
        ((A,), "matvec takes 2 arrays (a, x), but the call has 1"),
        ((A, None), "matvec: argument 1 (x) is None, but the kernel takes an array"),
    ],
)
def test_arrays_that_are_not_as_declared_are_refused_before_anything_is_compiled(arrays: Any, message: str):
    with pytest.raises(ArgumentError) as caught:
        numba_kernel(matvec, signature=SIGNATURE)(*arrays)
    assert message in caught.value.message


def test_outs_beside_a_signature_give_the_structure_and_are_checked():
    def described(size: int) -> Any:
        return {"y": jax.ShapeDtypeStruct((size,), np.float32)}

    np.testing.assert_array_equal(numba_kernel(matvec, described(3), signature=SIGNATURE)(A, X)["y"], 2 * A @ X)
    with pytest.raises(ArgumentError, match=r"outs\[0\] is float32\[4\], but \[n\] is \(3,\) in this call"):
        numba_kernel(matvec, described(4), signature=SIGNATURE)(A, X)


def test_outs_may_be_a_function_of_the_inputs():
    @njit
    def pairs(x, out):
        for i in range(x.size):
            out[2 * i] = out[2 * i + 1] = x[i]

    run = numba_kernel(pairs, lambda x: jax.ShapeDtypeStruct((2 * x.shape[0],), x.dtype))
    assert run(X[:2]).tolist() == [0, 0, 1, 1]
    assert run(X[:3]).tolist() == [0, 0, 1, 1, 2, 2]


def test_what_says_nothing_of_the_results_is_refused():
    with pytest.raises(ArgumentError, match="neither outs nor a signature"):
        numba_kernel(matvec)
    with pytest.raises(SpecError, match="which has none: a number is an array"):
        numba_kernel(matvec, signature="arg[n k] arg[k] ret[n] attr.by")


@njit
def twice(x, out):
    for i in range(x.size):
        out.flat[i] = 2 * x.flat[i]


def test_leading_axes_are_a_batch():
    run = numba_kernel(twice, signature="arg[... n] ret[... n]")
    np.testing.assert_array_equal(run(A), 2 * A)
    np.testing.assert_array_equal(jax.vmap(run, in_axes=1, out_axes=1)(A), 2 * A)
    assert "for each element" not in str(jax.make_jaxpr(jax.vmap(run))(A))
    one_by_one = jax.vmap(numba_kernel(twice, signature="arg[n] ret[n]"))
    assert "for each element" in str(jax.make_jaxpr(one_by_one)(A))
    np.testing.assert_array_equal(one_by_one(A), 2 * A)
    with pytest.raises(TransformError, match="twice has no rule for vmap"):
        jax.vmap(numba_kernel(twice, signature="arg ret:like(0)"))(A)


def test_layouts_are_those_of_ffi_call():
    def run(**layouts: Any) -> Any:
        return numba_kernel(twice, signature="arg[n k] ret[n k]", **layouts)(A)

    np.testing.assert_array_equal(run(input_layouts=[(1, 0)], output_layouts=[(1, 0)], ordered=True), 2 * A)
    np.testing.assert_array_equal(np.asarray(run(input_layouts=[(1, 0)])).ravel(), 2 * A.T.ravel())
    with pytest.raises(ArgumentError, match=r"twice: input_layouts\[0\] is \(0,\), but the array is float32\[3,4\]"):
        run(input_layouts=[(0,)])
    with pytest.raises(ArgumentError, match="twice: output_layouts describes 2 arrays, but the call has 1"):
        run(output_layouts=[None, None])


pause = ctypes.CDLL(None).usleep
pause.argtypes, pause.restype = (ctypes.c_uint32,), ctypes.c_int32


class Stamps:
    """A kernel that gives the number of its calls before, counted in memory of its own, or waits for a number."""

    def __init__(self, awaited: int = 0) -> None:
        self.count = count = np.zeros(1, np.int64)
        memory, address = intrinsics().memory, count.ctypes.data

        @njit
        def stamp(x, out):
            counted = numba.carray(memory(address), (1,), np.int64)
            out[()] = counted[0]
            counted[0] += 1
            tries = 0
            while counted[0] < awaited and tries < 20_000:
                pause(1000)
                tries += 1
            if counted[0] < awaited:
                out[()] = -1

        self.kernel = stamp

    def made(self, **options: Any) -> Any:
        return numba_kernel(self.kernel, signature="arg[] ret[]:int32", **options)


def test_two_threads_run_at_once():
    """Each call waits for the other, in C: with a lock around them, or the interpreter's, one would wait in vain."""
    run = jax.jit(Stamps(awaited=2).made())
    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(lambda _: int(run(1.0)), range(2))) == [0, 1]


@pytest.mark.parametrize(("options", "calls"), [({}, 0), ({"has_side_effect": True}, 2), ({"ordered": True}, 2)])
def test_a_call_whose_result_is_unused_is_kept_for_its_effect(options: dict[str, Any], calls: int):
    stamps = Stamps()
    run = stamps.made(**options)
    jax.jit(lambda x: (run(x), run(x + 1), x)[2])(1.0).block_until_ready()
    assert stamps.count[0] == calls


def test_ordered_calls_run_in_the_order_of_the_program():
    stamps = Stamps()
    run = stamps.made(ordered=True, vmap_method="broadcast_all")
    program = jax.jit(lambda x: [run(x + i) for i in range(26)])
    assert [int(each) for each in program(1.0)] == list(range(26))
    assert [int(each) for each in program(1.0)] == list(range(26, 52))
    assert int(run(1.0)) == 52, "an eager call is in order too"
    assert jax.vmap(run)(np.zeros(3, np.float32)).tolist() == [53, 54, 55]
    assert stamps.count[0] == 56


def test_an_exception_of_an_ordered_call_is_an_error():
    @njit
    def refuses(x, out):
        raise ValueError("refused")

    with pytest.raises(jax.errors.JaxRuntimeError, match="refuses: ValueError: refused"):
        numba_kernel(refuses, signature="arg[n] ret[n]", ordered=True)(X).block_until_ready()


def test_another_platform_is_named():
    run = numba_kernel(twice, signature="arg[n] ret[n]")
    with pytest.raises(RegistrationError, match=r"twice has no kernel for cuda.*be_runtime\.numba\.twice:\w+ for cpu"):
        jax.jit(run).trace(X).lower(lowering_platforms=("cuda",))


def test_an_eager_call_is_traced_once():
    traced = []

    def outs(x: Any) -> Any:
        traced.append(x.shape)
        return x

    run = numba_kernel(twice, outs)
    for x in (X, X + 1, X[:2], X, X[:2]):
        np.testing.assert_array_equal(run(x), 2 * x)
    assert traced == [(4,), (2,)]


def test_shard_map():
    mesh = Mesh(np.array(jax.devices("cpu")[:2]), ("d",))
    run = numba_kernel(twice, signature="arg[n] ret[n]")
    mapped = jax.jit(shard_map(run, mesh=mesh, in_specs=P("d"), out_specs=P("d")))
    np.testing.assert_array_equal(mapped(jnp.arange(6.0)), 2 * np.arange(6))
