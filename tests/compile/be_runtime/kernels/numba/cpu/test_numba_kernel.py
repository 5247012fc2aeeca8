"""Numba's CPU kernels: what they compute, under every transformation, with and without a signature; what is refused."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError, LoadError, list_registered_targets, numba_kernel
from be_runtime.dtypes import BY_NAME
from be_runtime.jax.port import ffi_include_dir
from be_runtime.kernels.numba.cpu import Parameter, Signature
from be_runtime.kernels.numba.cpu_library import build_host_kernel
from be_runtime.load.process import PROCESS
from be_runtime.own_files import NATIVE_DIR
from tests.support.jax_names import enable_x64
from tests.support.requirements import OPTIONAL, in_full
from tests.support.runtime import call, environment, real_compiler, run_python

numba: Any = pytest.importorskip("numba")
njit = numba.njit


@pytest.fixture
def define(tmp_path: Path) -> Callable[..., Any]:
    """Define a kernel of some parameters by its lines in a file, as messages show them."""

    def defined(*lines: str, parameters: str = "x, out", known: dict[str, Any] | None = None, **options: Any) -> Any:
        (tmp_path / "kernel.py").write_text(f"def kernel({parameters}):\n" + "".join(f"    {line}\n" for line in lines))
        namespace = {"np": np, "numba": numba, **(known or {})}
        exec(compile((tmp_path / "kernel.py").read_text(), tmp_path / "kernel.py", "exec"), namespace)  # noqa: S102
        return numba.njit(**options)(namespace["kernel"])

    return defined


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
A, V = X.reshape(3, 4), np.arange(4, dtype=np.float32)
ONE = jax.ShapeDtypeStruct((1,), jnp.float32)
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


def test_results_of_no_dimensions_in_any_structure(define: Callable[..., Any]):
    kernel = define("place[()] = np.argmin(x)", "least[()] = x.min()", parameters="x, least, place")
    outs = {"least": jax.ShapeDtypeStruct((), np.float32), "more": [jax.ShapeDtypeStruct((), np.int32)]}
    result = jax.jit(numba_kernel(kernel, outs))(np.array([[3, 1], [2, 5]], np.float32))
    assert (result["least"], result["more"][0]) == (1, 1)
    assert result["more"][0].dtype == np.int32


@njit
def copy(x, out):
    for i in range(x.size):
        out.flat[i] = x.flat[i]


INTEGERS = [f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
DTYPES = ("bool", *INTEGERS, "float32", "float64", "complex64", "complex128")


def test_dtypes(define: Callable[..., Any]):
    """One kernel of all dtypes, each with another number of elements."""
    parameters = ", ".join((*(f"in_{name}" for name in DTYPES), *(f"out_{name}" for name in DTYPES)))
    lines = [f"for i in range(in_{name}.size): out_{name}[i] = in_{name}[i]" for name in DTYPES]
    kernel = define(*lines, parameters=parameters)
    with enable_x64(True):
        arrays = [jnp.arange(n + 2).astype(dtype) for n, dtype in enumerate(DTYPES)]
        results = numba_kernel(kernel, [struct(each) for each in arrays])(*arrays)
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


def test_a_kernel_that_is_defined_again_is_another_kernel_and_so_is_one_of_other_options(define: Callable[..., Any]):
    before = set(list_registered_targets())
    for number in (1, 2, 1):
        np.testing.assert_array_equal(
            numba_kernel(define(f"for i in range(3): out[i] = x[i] + {number}"), ROW)(X[0]), X[0] + number
        )
    assert len(set(list_registered_targets()) - before) == 2
    for options in ({}, {"boundscheck": True}, {"fastmath": True}, {"boundscheck": True}):
        numba_kernel(define("out[0] = x[x.size - 1 + int(x[0])]", **options), ROW)(X[0])
    assert len(set(list_registered_targets()) - before) == 5


def test_a_list_of_signatures_does_not_restrict_a_kernel():
    @njit("void(float32[:], float32[:])")
    def restricted(x, out):
        out[0] = x[2]

    assert numba_kernel(restricted, ONE)(X[0]) == 2


def test_many_threads_make_and_run_the_same_kernels():
    def work(seed: int) -> bool:
        x = np.random.default_rng(seed).random(3, np.float32)
        run = numba_kernel(copy, ROW)
        return all(np.array_equal(run(x), x) for _ in range(20))

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(12)))


PARALLEL = """
import jax, numpy as np, numba, be_runtime
from concurrent.futures import ThreadPoolExecutor
@numba.njit(parallel=True)
def kernel(x, out):
    for i in numba.prange(out.size): out[i] = 2 * x[i]
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
    refused: list[tuple[Any, dict[str, Any], str]] = [(ROW, {"vmap_method": "all"}, "vmap_method")]
    refused += [(outs, {}, "outs") for outs in ((), None, "float32", [3])]
    refused += [(ROW, {"input_output_aliases": each}, "input_output_aliases") for each in ({0: 1}, {5: 0}, {"a": 0}, 3)]
    for outs, options, message in refused:
        with pytest.raises(ArgumentError, match=message):
            numba_kernel(add_rows, outs, **options)(X[0], Y[0])


def test_what_numba_can_not_compile(define: Callable[..., Any], tmp_path: Path):
    """The reason comes first, with the kernel's line."""
    with pytest.raises(BuildError, match=r"compile the kernel kernel for \(float32\[:\]\) -> ") as caught:
        numba_kernel(define("out[0] = x.no_such_attribute"), ROW)(X[0])
    assert "no_such_attribute" in caught.value.output
    with pytest.raises(BuildError, match="returns float32: a kernel writes its results to its outputs"):
        numba_kernel(define("return x.sum()"), ROW)(X[0])
    with pytest.raises(BuildError) as caught:
        numba_kernel(define("for i in range(out.shape[0]):", "    out[i] = x.shape[1]"), ONE)(jnp.ones(3))
    assert str(caught.value).splitlines()[0].endswith(f": tuple index out of range ({tmp_path}/kernel.py:3)")


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
            np.testing.assert_array_equal(run(A[:rows], V), 2 * A[:rows] @ V)
        np.testing.assert_array_equal(jax.jit(run)(A[:, :2], V[:2]), 2 * A[:, :2] @ V[:2])
    batch = np.stack([V, V + 1, V * V])
    for method in ("sequential", "broadcast_all", "expand_dims"):
        run = numba_kernel(matvec, signature=SIGNATURE, vmap_method=method)
        np.testing.assert_array_equal(jax.vmap(run, in_axes=(None, 0))(A, batch), 2 * batch @ A.T)


DESCRIBED, DECLARED = numba_kernel(add_rows, ROW), numba_kernel(matvec, signature=SIGNATURE)


REFUSED = [
    (DESCRIBED, (X[0],), "add_rows(x, y, out) can't take 1 inputs and 1 outputs"),
    (DESCRIBED, ("text", X[0]), "argument 0 is 'text', which is not an array"),
    (DECLARED, (A, V[:3]), "matvec: axis k is 4 in argument 0 (axis 1) and 3 in argument 1 (axis 0)"),
]


@pytest.mark.parametrize(("run", "arrays", "message"), REFUSED)
def test_arrays_that_are_not_as_declared_are_refused_before_anything_is_compiled(run: Any, arrays: Any, message: str):
    with pytest.raises(ArgumentError) as caught:
        run(*arrays)
    assert message in caught.value.message
    with pytest.raises(ArgumentError, match=re.escape(message)):
        jax.eval_shape(lambda: run(*arrays))


def test_outs_may_be_a_function_of_the_inputs(define: Callable[..., Any]):
    pairs = define("for i in range(x.size):", "    out[2 * i] = out[2 * i + 1] = x[i]")
    run = numba_kernel(pairs, lambda x: jax.ShapeDtypeStruct((2 * x.shape[0],), x.dtype))
    assert run(V[:2]).tolist() == [0, 0, 1, 1]
    assert run(V[:3]).tolist() == [0, 0, 1, 1, 2, 2]


def test_what_says_nothing_of_the_results_is_refused():
    with pytest.raises(ArgumentError, match="neither outs nor a signature"):
        numba_kernel(matvec)
    with pytest.raises(be_runtime.SpecError, match="which has none: a number is an array"):
        numba_kernel(matvec, signature="arg[n k] arg[k] ret[n] attr.by")


pause = ctypes.CDLL(None).usleep
pause.argtypes, pause.restype = (ctypes.c_uint32,), ctypes.c_int32


class Stamps:
    """A kernel that gives the number of its calls before, counted in memory of its own, or waits for a number."""

    def __init__(self, awaited: int = 0) -> None:
        self.count = count = np.zeros(1, np.int64)
        from be_runtime.kernels.numba.cpu_handler import memory

        address = count.ctypes.data

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
    stamps, both = Stamps(awaited=2), threading.Barrier(2)
    run = jax.jit(stamps.made())
    with ThreadPoolExecutor(2) as pool:
        for count in (2, 0):  # a thread's first call is traced, and so waits for nothing
            stamps.count[0] = count
            called = list(pool.map(lambda _: (both.wait(), int(run(1.0)))[1], range(2)))
    assert sorted(called) == [0, 1]


def test_ordered_calls_run_in_the_order_of_the_program():
    stamps = Stamps()
    run = stamps.made(ordered=True, vmap_method="broadcast_all")
    assert [int(each) for each in jax.jit(lambda x: [run(x + i) for i in range(26)])(1.0)] == list(range(26))
    assert int(run(1.0)) == 26, "an eager call is in order too"
    assert jax.vmap(run)(np.zeros(3, np.float32)).tolist() == [27, 28, 29]


def test_an_exception_of_an_ordered_call_is_an_error(define: Callable[..., Any]):
    kernel = define('raise ValueError("refused")')
    with pytest.raises(jax.errors.JaxRuntimeError, match="kernel: ValueError: refused"):
        numba_kernel(kernel, signature="arg[n] ret[n]", ordered=True)(V).block_until_ready()


def test_an_eager_call_is_traced_once():
    traced = []

    def outs(x: Any) -> Any:
        traced.append(x.shape)
        return x

    run = numba_kernel(copy, outs)
    for x in (V, V + 1, V[:2], V, V[:2]):
        np.testing.assert_array_equal(run(x), x)
    assert traced == [(4,), (2,)]


@njit
def setter(x):
    x[0] = 1


OWN = ('if x[0] == 0: raise ValueError("not zero", 7)', "out[0] = 1")


RAISING = [
    (("out[0] = 1 / int(x[0])",), "kernel: ZeroDivisionError: division by zero"),
    (OWN, r"kernel: ValueError: \('not zero', 7\)"),
    in_full(('if x[0] == 0: raise RuntimeError("row " + str(int(x.size)))', "out[0] = 1"), "RuntimeError: row 1"),
    (('assert x[0] > 0, "x is positive"', "out[0] = 1"), "kernel: AssertionError: x is positive"),
    in_full(("out[0] = 1", "out[int(1 - x[0])] = 1"), "kernel: IndexError: index is out of bounds"),
    (("table = {1: 1.0}", "out[0] = table[int(x[0])]"), "kernel: KeyError"),
]


@pytest.mark.parametrize(("lines", "message"), RAISING)
def test_an_exception_is_an_xla_error_that_names_it(define: Callable[..., Any], lines: tuple[str, ...], message: str):
    run = jax.jit(numba_kernel(define(*lines, boundscheck=True), ONE, vmap_method="broadcast_all"))
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(jnp.zeros(1)).block_until_ready()
    assert run(jnp.ones(1)) == 1, "the process and the kernel go on"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message + r".* \(element 2 of a batch of 3\)"):
        jax.block_until_ready(jax.vmap(run)(jnp.array([[1.0], [1.0], [0.0]])))


def test_nothing_is_left_behind_in_python(define: Callable[..., Any]):
    """The exception is Python's for a moment: it must not show up in whatever runs next on the thread."""
    run = numba_kernel(define(*OWN), ONE)
    for _ in range(20):
        with pytest.raises(jax.errors.JaxRuntimeError):
            run(jnp.zeros(1)).block_until_ready()
        assert [each for each in range(3)] == [0, 1, 2]  # noqa: C416 - iteration ends by an exception of its own


READ_ONLY = "an input can't be written"


WRITING = [
    ("x[0] = 1", READ_ONLY),
    ("x[:] = 1", READ_ONLY),
    ("x[1:][0] = 1", READ_ONLY),
    ("x.reshape((1, x.size))[0, 0] = 1", READ_ONLY),
    ("x.sort()", READ_ONLY),
    ("x.fill(1)", READ_ONLY),
    ("np.add(out, out, x)", READ_ONLY),
    ("setter(x)", READ_ONLY),
    # Numba says nothing of inputs there.
    ("x += out", "x += ... writes the input x: write to an output"),
    ("x[:1] *= 2", "+= and similar operators fail on an"),
]


@pytest.mark.parametrize(("statement", "hint"), WRITING)
def test_an_input_can_not_be_written(define: Callable[..., Any], statement: str, hint: str):
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(define(statement, "out[0] = 1", known={"setter": setter}), ONE))(jnp.zeros(1))
    assert hint != READ_ONLY or "readonly" in caught.value.output
    assert caught.value.hints[0].startswith(hint)


def test_a_number_is_read_as_the_hint_says(define: Callable[..., Any]):
    repeated = define("for _ in range(count):", "    out[0] = x[0]", parameters="count, x, out")
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(repeated, ONE))(2, jnp.ones(1))
    assert caught.value.hints == ("count is a 0-dimensional array, as all numbers are: its value is count[()]",)
    right = define("for _ in range(count[()]):", "    out[0] = x[0]", parameters="count, x, out")
    assert jax.jit(numba_kernel(right, ONE))(2, jnp.ones(1)) == 1


F32_ROW = Parameter(BY_NAME["float32"], 1)
UNARY = Signature((F32_ROW,), (F32_ROW,))


@njit
def half_of(value):
    if value < 0:
        raise ValueError("a value is negative")
    return value / 2


@njit
def decay(x, y):
    for i in range(x.size):
        y[i] = half_of(x[i]) + x[1:].sum()


@njit(fastmath=True)
def sums(x, y):
    total = np.float32(0)
    for i in range(x.size):
        total += x[i] * x[i] + math.sin(x[i])
    y[:] = total


def register(kernel: Any, folder: Path) -> tuple[str, bytes]:
    """Build a kernel's library, load it, and register its handler under a target named after its content."""
    made = build_host_kernel(kernel, UNARY, PROCESS.session(), "x86-64-v3")
    target, (_, data) = made.target, made.images[made.library]
    path = folder / "kernel.so"
    path.write_bytes(data)
    handler = getattr(ctypes.CDLL(str(path)), made.stages["execute"])
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
    return target, data


def test_a_library_runs_batches_and_keeps_the_text_of_what_a_kernel_raises(tmp_path: Path):
    target, data = register(decay, tmp_path)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(call(target, ROW, x[1]), x[1] / 2 + x[1, 1:].sum())
    batched = jax.vmap(jax.ffi.ffi_call(target, ROW, vmap_method="broadcast_all"))
    np.testing.assert_array_equal(batched(x), x / 2 + x[:, 1:].sum(axis=1, keepdims=True))
    with pytest.raises(Exception, match="decay: ValueError: a value is negative\n"):
        jax.block_until_ready(call(target, ROW, -x[1]))
    with pytest.raises(Exception, match=r"ValueError: a value is negative \(element 1 of a batch of 2\)"):
        jax.block_until_ready(batched(jnp.asarray([[1.0, 2, 3], [1, -2, 3]])))
    needed = subprocess.run(["readelf", "-dW", tmp_path / "kernel.so"], capture_output=True, text=True, check=True)
    names = {line.split("[")[1].rstrip("]") for line in needed.stdout.splitlines() if "NEEDED" in line}
    assert names <= {"libc.so.6", "libm.so.6"}, "neither Python nor a C++ library"
    assert str(Path.home()).encode() not in data
    assert b"numba" not in data


@pytest.mark.full
def test_another_process_builds_the_same_bytes_and_a_baseline_cpu_gives_the_same_bits(tmp_path: Path):
    x = np.random.default_rng(0).standard_normal(1001).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    program = f"""
import jax, numpy as np
from be_runtime import numba_kernel
from tests.compile.be_runtime.kernels.numba.cpu import test_numba_kernel as t
x = np.load({str(tmp_path / "x.npy")!r})
np.save({str(tmp_path / "y.npy")!r}, numba_kernel(t.sums, signature="arg[n] ret[n]:like(0)")(x))
print(t.build_host_kernel(t.decay, t.UNARY, t.PROCESS.session(), "x86-64-v3").library)"""
    baseline = {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "BE_CACHE_DIR": str(tmp_path / "cache")}
    made = run_python(program, env=environment(**baseline)).stdout.strip()
    assert made == build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v3").library, "its name is its content"
    target, _ = register(sums, tmp_path)
    found = np.asarray(call(target, jax.ShapeDtypeStruct(x.shape, x.dtype), x))
    assert found.tobytes() == np.load(tmp_path / "y.npy").tobytes()


BIG = np.arange(2_000_000.0)


NOT_ALONE = [
    in_full("y[:] = np.cumsum(x)", {}, r"allocates an array \(NRT_"),
    in_full("print(x[0])", {}, r"calls Python: it prints"),
    in_full("if x[0] < 0: raise ValueError(x[0])", {}, "raises an exception with a value of run time"),
    ("y[0] = big[int(x[0])]", {}, "a global array of more than a megabyte"),
    ("for i in numba.prange(x.size): y[i] = x[i]", {"parallel": True}, "runs in threads"),
    in_full("y[0] = np.dot(x, x)", {}, "linear algebra of SciPy"),
]


@pytest.mark.parametrize(("line", "options", "reason"), NOT_ALONE)
def test_a_kernel_that_needs_numba(define: Callable[..., Any], line: str, options: dict[str, bool], reason: str):
    """It is refused by name."""
    kernel = define(line, parameters="x, y", known={"big": BIG}, **options)
    with pytest.raises(BuildError, match=f"the kernel kernel can't be built ahead of time: it .*{reason}") as caught:
        build_host_kernel(kernel, UNARY, PROCESS.session(), "x86-64-v3")
    assert caught.value.hints


def test_nothing_is_compiled_where_that_is_forbidden(monkeypatch: pytest.MonkeyPatch):
    build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v3")  # so our own library is there
    monkeypatch.setenv("BE_JIT", "never")
    with pytest.raises(LoadError, match="decay was not built ahead of time, and BE_JIT=never forbids compiling it"):
        build_host_kernel(decay, UNARY, PROCESS.session(), "x86-64-v4")


PROGRAM = Path(__file__).parent / "programs" / "guarded_calls.cc"
SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_calls_and_batches_stay_within_their_buffers(tmp_path: Path):
    compiler = real_compiler()
    probe = (compiler, *SANITIZE, "-x", "c++", "-", "-o", str(tmp_path / "probe"))
    if subprocess.run(probe, input=b"int main() {}", capture_output=True, check=False).returncode != 0:
        pytest.skip(OPTIONAL + "the compiler's sanitizers")
    flags = ("-std=c++17", "-g", "-O1", "-Wall", "-Wextra", "-Werror", *SANITIZE)
    command = (compiler, *flags, f"-I{ffi_include_dir()}", f"-I{NATIVE_DIR}", PROGRAM, "-o", tmp_path / "main")
    subprocess.run(command, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
