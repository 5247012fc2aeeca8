"""Numba's CPU kernels: what they compute, under every transformation, and what is refused."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
import math
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import ArgumentError, BuildError, TransformError, list_registered_targets, numba_kernel
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


@pytest.mark.parametrize("method", METHODS)
def test_every_method_of_vmap_gives_the_kernel_one_element(method: str):
    run = numba_kernel(add_rows, ROW, vmap_method=method)
    np.testing.assert_array_equal(jax.jit(jax.vmap(run))(X, Y), X + 2 * Y)
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(0, None))(X, Y[1]), X + 2 * Y[1])
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(None, 1))(X[0], Y.T), X[0] + 2 * Y)
    if method != "legacy_vectorized":
        grid = jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(0, None))
        np.testing.assert_array_equal(jax.jit(grid)(X, Y), X[:, None] + 2 * Y)


def test_vmap_without_a_method_says_what_to_write():
    with pytest.raises(TransformError, match="add_rows has no rule for vmap"):
        jax.vmap(numba_kernel(add_rows, ROW))(X, Y)


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
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float32", "float64", "complex64", "complex128"),
)


def test_dtypes():
    """One kernel of all dtypes, each with another number of elements."""
    names = [f"x{index}" for index in range(len(DTYPES))]
    lines = [f"    out_{name}[...] = {name}" for name in names]
    parameters = ", ".join((*names, *(f"out_{name}" for name in names)))
    namespace: dict[str, Any] = {}
    exec("\n".join((f"def copy_all({parameters}):", *lines)), namespace)  # noqa: S102 - the test's own
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
    transposed = X.T
    np.testing.assert_array_equal(numba_kernel(copy, struct(transposed))(transposed), transposed)
    np.testing.assert_array_equal(numba_kernel(copy, struct(X[::2, ::-1]))(X[::2, ::-1]), X[::2, ::-1])
    assert numba_kernel(copy, jax.ShapeDtypeStruct((), np.float32))(3.0) == 3


@njit
def first_of_all(x, out):
    out[0] = x[0]


@pytest.mark.parametrize("batch", [(), (0,), (2, 0)])
def test_nothing_to_compute(batch: tuple[int, ...]):
    """Such a call is skipped: its addresses may be null."""
    run = numba_kernel(
        first_of_all, jax.ShapeDtypeStruct((0 if batch == () else 3,), np.float32), vmap_method="broadcast_all"
    )
    for _ in batch:
        run = jax.vmap(run)
    x = jnp.zeros((*batch, 3))
    assert run(x).shape == (*batch, 0 if batch == () else 3)


@njit
def accumulate(total, x, out):
    """Right only where the output begins with the content of the first input."""
    for i in range(out.size):
        out[i] += x[i]


def test_an_output_that_begins_with_an_input():
    run = numba_kernel(accumulate, ROW, input_output_aliases={0: 0}, vmap_method="broadcast_all")
    start = jnp.array([1.0, 2.0, 3.0])
    loop = jax.jit(lambda start: jax.lax.fori_loop(0, 10, lambda _, total: run(total, Y[0]), start))
    np.testing.assert_array_equal(loop(start), [11, 102, 1003])
    np.testing.assert_array_equal(start, [1, 2, 3], err_msg="an argument that lives on is copied")
    np.testing.assert_array_equal(jax.vmap(run)(X, Y), X + Y)


@pytest.mark.parametrize("method", METHODS)
def test_an_input_for_a_whole_batch_can_still_be_where_an_output_begins(method: str):
    """Such an input is smaller than the output, whose memory it can't be then."""
    run = numba_kernel(accumulate, ROW, input_output_aliases={0: 0}, vmap_method=method)
    np.testing.assert_array_equal(jax.jit(jax.vmap(run, in_axes=(None, 0)))(X[1], Y), X[1] + Y)
    np.testing.assert_array_equal(jax.vmap(run, in_axes=(0, None))(X, Y[1]), X + Y[1])
    grid = jax.vmap(jax.vmap(run, in_axes=(None, 0)), in_axes=(0, None))
    np.testing.assert_array_equal(jax.jit(grid)(X, Y), X[:, None] + Y)


FACTOR = np.float32(3)


@njit
def square(x):
    return x * x


def test_kernels_that_use_closures_globals_and_other_functions():
    def make(offset: float) -> Any:
        @njit
        def kernel(x, out):
            for i in range(out.size):
                out[i] = FACTOR * square(x[i]) + math.sqrt(offset)

        return numba_kernel(kernel, ROW)

    np.testing.assert_allclose(make(4.0)(X[1]), 3 * X[1] ** 2 + 2)
    np.testing.assert_allclose(make(9.0)(X[1]), 3 * X[1] ** 2 + 3)


def test_a_kernel_that_is_defined_again_is_another_kernel():
    def define(text: str) -> Any:
        namespace: dict[str, Any] = {}
        exec(f"def edited(x, out):\n    out[:] = {text}\n", namespace)  # noqa: S102 - the test's own
        return numba_kernel(njit(namespace["edited"]), ROW)

    def targets() -> int:
        return sum(name.startswith("be_runtime.numba.edited:") for name in list_registered_targets())

    np.testing.assert_array_equal(define("x + 1")(X[0]), X[0] + 1)
    np.testing.assert_array_equal(define("x + 2")(X[0]), X[0] + 2)
    np.testing.assert_array_equal(define("x + 1")(X[0]), X[0] + 1)
    assert targets() == 2


def test_options_are_part_of_a_kernel():
    def kernel(x: Any, out: Any) -> None:
        out[0] = x[x.size - 1 + int(x[0])]

    before = set(list_registered_targets())
    out = jax.ShapeDtypeStruct((1,), np.float32)
    for options in ({}, {"boundscheck": True}, {"fastmath": True}, {"boundscheck": True}):
        numba_kernel(njit(**options)(kernel), out)(jnp.zeros(3))
    assert len(set(list_registered_targets()) - before) == 3


IDENTITY = """
import jax, numpy as np, numba, be_runtime
SCALE = np.array([1.0, 2.0, 3.0])
@numba.njit(fastmath=True)
def identified(x, out):
    for i in range(out.size):
        out[i] = x[i] * SCALE[i] if i in {0, 1, 2} else 0
run = be_runtime.numba_kernel(identified, jax.ShapeDtypeStruct((3,), np.float32))
assert run(np.ones(3, np.float32)).tolist() == [1, 2, 3]
print(*(name for name in be_runtime.list_registered_targets() if name.startswith("be_runtime.numba.identified:")))
"""


def test_a_kernel_has_one_target_in_every_process(capsys: pytest.CaptureFixture[str]):
    exec(IDENTITY, {"__name__": "identity"})  # noqa: S102 - the test's own
    here = capsys.readouterr().out
    assert here.startswith("be_runtime.numba.identified:")
    assert run_python(IDENTITY, env=environment(PYTHONHASHSEED="7")).stdout == here


def test_a_list_of_signatures_does_not_restrict_a_kernel():
    @njit("void(float32[:], float32[:])")
    def restricted(x, out):
        out[:] = x + 1

    np.testing.assert_array_equal(numba_kernel(restricted, ROW)(X[0]), X[0] + 1)


pause = ctypes.CDLL(None).usleep
pause.argtypes, pause.restype = (ctypes.c_uint32,), ctypes.c_int32


@njit
def wait(x, out):
    pause(500_000)
    out[0] = x[0]


def test_two_threads_run_at_once():
    """Kernels that wait in C: with a lock around them, or the interpreter's, two would take twice as long as one."""
    run = jax.jit(numba_kernel(wait, jax.ShapeDtypeStruct((1,), np.float32)))
    x = jnp.zeros(1)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: run(x).block_until_ready(), range(2)))  # a thread's first call is traced

        def both_s() -> float:
            start = time.perf_counter()
            list(pool.map(lambda _: run(x).block_until_ready(), range(2)))
            return time.perf_counter() - start

        # One after the other, two waits of 0.5 s always take a second; a busy machine may start a thread late.
        assert any(both_s() < 0.9 for _ in range(5))


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


def test_parallel_kernels_from_several_threads_with_the_layer_that_can_not_stand_them():
    done = run_python(PARALLEL, env=environment(NUMBA_THREADING_LAYER="workqueue"))
    assert done.stdout.split() == ["workqueue"]


def test_an_exported_program_needs_the_kernel():
    with pytest.raises(Exception, match=r"be_runtime\.numba\.absent"):
        jax.jit(jax.ffi.ffi_call("be_runtime.numba.absent:0", ROW))(X[0])


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


def test_without_numba():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import be_runtime\n"
        "try: be_runtime.numba_kernel(print, ())\n"
        "except ImportError as error: print(error)"
    )
    assert "pip install 'brainevent-toolchain[numba]'" in run_python(code).stdout


def test_importing_us_imports_neither_numba_nor_jax():
    code = "import sys, be_runtime; print('numba' in sys.modules, 'jax' in sys.modules)"
    assert run_python(code).stdout == "False False\n"


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
