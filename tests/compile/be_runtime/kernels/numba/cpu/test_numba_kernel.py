"""Numba's CPU kernels: what they compute, under every transformation, and what is refused."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, list_registered_targets, numba_kernel
from tests.support.jax_names import enable_x64
from tests.support.runtime import environment, run_python

numba: Any = pytest.importorskip("numba")
njit = numba.njit


def struct(array: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)


@njit
def add_rows(x, y, out):
    """One dimension only: a kernel that was given a batch would write beyond its rows."""
    for i in range(out.size):
        out[i] = x[i] + 2 * y[i]


X = np.arange(12, dtype=np.float32).reshape(4, 3)
Y = np.array([[1, 10, 100], [2, 20, 200], [3, 30, 300], [4, 40, 400]], np.float32)
ROW = jax.ShapeDtypeStruct((3,), jnp.float32)
METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")


@njit
def accumulate(total, x, out):
    """Right only where the output begins with the content of the first input."""
    for i in range(out.size):
        out[i] += x[i]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("kernel", "factor", "aliases"), [(add_rows, 2, {}), (accumulate, 1, {0: 0})])
def test_every_method_of_vmap_gives_the_kernel_one_element(kernel: Any, factor: int, aliases: Any, method: str):
    """An input for a whole batch, which is smaller than the output, can still be where the output begins."""
    run = numba_kernel(kernel, ROW, vmap_method=method, input_output_aliases=aliases)
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(X, Y), X + factor * Y)
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(0, None))(X, Y[1]), X + factor * Y[1])
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(None, 1))(X[0], Y.T), X[0] + factor * Y)
    if method != "legacy_vectorized" or aliases:
        grid = jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(0, None))
        np.testing.assert_array_equal(jax.jit(grid)(X, Y), X[:, None] + factor * Y)


def test_in_loops_and_branches():
    run = numba_kernel(add_rows, ROW)
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 1000, lambda _, value: run(value, Y[0]), x))
    np.testing.assert_array_equal(loop(X[0]), X[0] + 2000 * Y[0])
    either = jax.jit(lambda flag, x: jax.lax.cond(flag, lambda x: run(x, x), lambda x: x, x))
    np.testing.assert_array_equal(either(True, X[1]), 3 * X[1])


@njit
def minimum_and_place(x, least, place):
    place[()] = np.argmin(x)
    least[()] = x.min()


def test_results_of_no_dimensions_in_any_structure():
    outs = {"least": jax.ShapeDtypeStruct((), np.float32), "more": [jax.ShapeDtypeStruct((), np.int32)]}
    result = jax.jit(numba_kernel(minimum_and_place, outs))(np.array([[3, 1], [2, 5]], np.float32))
    assert result["least"] == 1
    assert result["more"][0].dtype == np.int32
    assert result["more"][0] == 1


@njit
def copy(x, out):
    out[...] = x


DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()  # noqa: SIM905
)


def test_dtypes():
    """One kernel of all dtypes, each with another number of elements."""
    parameters = ", ".join((*(f"in_{name}" for name in DTYPES), *(f"out_{name}" for name in DTYPES)))
    lines = [f"    out_{name}[...] = in_{name}\n" for name in DTYPES]
    namespace: dict[str, Any] = {}
    exec(f"def copy_all({parameters}):\n{''.join(lines)}", namespace)  # noqa: S102 - the test's own
    with enable_x64(True):
        arrays = [jnp.arange(2 * (n + 1)).reshape(2, n + 1).astype(dtype) for n, dtype in enumerate(DTYPES)]
        results = numba_kernel(njit(namespace["copy_all"]), [struct(each) for each in arrays])(*arrays)
        for array, result in zip(arrays, results, strict=True):
            assert result.dtype == array.dtype
            np.testing.assert_array_equal(result, array)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "int4", "uint2", "float4_e2m1fn"])
def test_dtypes_that_numba_lacks(dtype: str):
    x = jnp.ones(3, dtype)
    with pytest.raises(ArgumentError, match=rf"input 0 is {dtype}\[3\]: Numba has no arrays of {dtype}"):
        numba_kernel(copy, struct(x))(x)


def test_layouts_and_numbers():
    for array in (X.T, X[::2, ::-1]):
        np.testing.assert_array_equal(numba_kernel(copy, struct(array))(array), array)
    assert numba_kernel(copy, jax.ShapeDtypeStruct((), np.float32))(3.0) == 3


@pytest.mark.parametrize("batch", [(), (0,), (2, 0)])
def test_nothing_to_compute(batch: tuple[int, ...]):
    """Such a call is skipped: its addresses may be null."""
    size = 0 if batch == () else 3
    run = numba_kernel(add_rows, jax.ShapeDtypeStruct((size,), np.float32), vmap_method="broadcast_all")
    for _ in batch:
        run = jax.vmap(run)
    x = jnp.zeros((*batch, 3))
    assert run(x, x).shape == (*batch, size)


def test_an_output_that_begins_with_an_input():
    run = numba_kernel(accumulate, ROW, input_output_aliases={0: 0})
    start = jnp.array([1.0, 2.0, 3.0])
    loop = jax.jit(lambda start: jax.lax.fori_loop(0, 10, lambda _, total: run(total, Y[0]), start))
    np.testing.assert_array_equal(loop(start), [11, 102, 1003])
    np.testing.assert_array_equal(start, [1, 2, 3], err_msg="an argument that lives on is copied")


FACTOR = np.float32(3)


@njit
def square(x):
    return x * x


def test_kernels_that_use_closures_globals_and_other_functions():
    for offset in (4.0, 9.0):

        @njit
        def kernel(x, out):
            for i in range(out.size):
                out[i] = FACTOR * square(x[i]) + math.sqrt(offset)  # noqa: B023 - a closure of this round

        np.testing.assert_allclose(numba_kernel(kernel, ROW)(X[1]), 3 * X[1] ** 2 + math.sqrt(offset))


def test_a_kernel_that_is_defined_again_is_another_kernel():
    before = set(list_registered_targets())
    for number in (1, 2, 1):
        namespace: dict[str, Any] = {}
        exec(f"def edited(x, out):\n    out[:] = x + {number}\n", namespace)  # noqa: S102 - the test's own
        np.testing.assert_array_equal(numba_kernel(njit(namespace["edited"]), ROW)(X[0]), X[0] + number)
    assert len(set(list_registered_targets()) - before) == 2


def test_options_are_part_of_a_kernel():
    def kernel(x: Any, out: Any) -> None:
        out[0] = x[x.size - 1 + int(x[0])]

    before = set(list_registered_targets())
    out = jax.ShapeDtypeStruct((1,), np.float32)
    for options in ({}, {"boundscheck": True}, {"fastmath": True}, {"boundscheck": True}):
        numba_kernel(njit(**options)(kernel), out)(jnp.zeros(3))
    assert len(set(list_registered_targets()) - before) == 3


def test_a_list_of_signatures_does_not_restrict_a_kernel():
    @njit("void(float32[:], float32[:])")
    def restricted(x, out):
        out[:] = x + 1

    np.testing.assert_array_equal(numba_kernel(restricted, ROW)(X[0]), X[0] + 1)


def test_many_threads_make_and_run_the_same_kernels():
    @njit
    def shifted(x, out):
        out[:] = x + 5

    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random(3, np.float32)
        run = numba_kernel(shifted, ROW)
        return all(np.array_equal(run(x), x + np.float32(5)) for _ in range(20))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))


PARALLEL = """
import jax, numpy as np, numba, be_runtime
from concurrent.futures import ThreadPoolExecutor
@numba.njit(parallel=True)
def kernel(x, out):
    for i in numba.prange(out.size):
        out[i] = 2 * x[i]
x = np.arange(10000, dtype=np.float32)
run = jax.jit(be_runtime.numba_kernel(kernel, jax.ShapeDtypeStruct(x.shape, x.dtype)))
with ThreadPoolExecutor(4) as pool:
    assert all(pool.map(lambda _: np.array_equal(run(x), 2 * x), range(400)))
print(numba.threading_layer())
"""


@pytest.mark.full
def test_parallel_kernels_from_several_threads_with_the_layer_that_can_not_stand_them():
    done = run_python(PARALLEL, env=environment(NUMBA_THREADING_LAYER="workqueue"))
    assert done.stdout.split() == ["workqueue"]


def test_refused_arguments():
    for kernel in (print, numba.vectorize(abs), "add", None, jnp.add):
        with pytest.raises(TypeError, match=r"must be a function decorated with @numba\.njit"):
            numba_kernel(kernel, ROW)
    for outs in ((), None, "float32", [3]):
        with pytest.raises(ArgumentError, match="outs"):
            numba_kernel(add_rows, outs)
    with pytest.raises(ArgumentError, match="vmap_method"):
        numba_kernel(add_rows, ROW, vmap_method="all")
    for aliases in ({0: 1}, {5: 0}, {"a": 0}, 3):
        with pytest.raises(ArgumentError, match="input_output_aliases"):
            numba_kernel(add_rows, ROW, input_output_aliases=aliases)(X[0], Y[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((X[0],), r"add_rows\(x, y, out\) can't take 1 inputs and 1 outputs"),
        ((X[0], X[0], X[0]), r"can't take 3 inputs and 1 outputs"),
        (("text", X[0]), "argument 0 is 'text', which is not an array"),
        ((X[0], [object()]), "argument 1 is .*, which is not an array"),
    ],
)
def test_refused_inputs(arguments: tuple[Any, ...], message: str):
    run = numba_kernel(add_rows, ROW)
    with pytest.raises(ArgumentError, match=message):
        run(*arguments)
    with pytest.raises(ArgumentError, match=message):
        jax.eval_shape(lambda: run(*arguments))


def test_without_numba(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"pip install 'brainevent-toolchain\[numba\]'"):
        numba_kernel(add_rows, ROW)


def test_what_numba_can_not_compile():
    @njit
    def unknown(x, out):
        out[0] = x.no_such_attribute

    with pytest.raises(BuildError, match=r"compile the kernel unknown for \(float32\[:\]\) -> ") as caught:
        numba_kernel(unknown, ROW)(X[0])
    assert "no_such_attribute" in caught.value.output

    def returning(x: Any, out: Any) -> Any:
        return x.sum()

    with pytest.raises(BuildError, match="returns float32: a kernel writes its results to its outputs"):
        numba_kernel(njit(returning), ROW)(X[0])
