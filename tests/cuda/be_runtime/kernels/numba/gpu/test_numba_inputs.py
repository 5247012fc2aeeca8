"""What Numba makes of a kernel's inputs: read-only arrays, with the gaps that docs/kernels.md lists; of numbers too.

Tracing compiles, for an architecture that need not be here.
"""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, BuildError

pytest.importorskip(
    "tests.support.numba_kernels", reason="no Numba: pip install 'brainevent-toolchain[numba]'", exc_type=ImportError
)
from numba import cuda
from numba.cuda import stwt

X = np.zeros(4, np.float32)
OUT = jax.ShapeDtypeStruct((4,), np.float32)


@pytest.fixture(autouse=True)
def for_an_architecture(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", "9.0")


def trace(kernel: Callable[..., None], *inputs: Any) -> None:
    jax.make_jaxpr(be_runtime.numba_cuda_kernel(cuda.jit(kernel), OUT, launch_dims=4))(*inputs)


def by_index(x, out):
    x[0] = 1
    out[0] = 1


def by_view(x, out):
    view = x[1:]
    view[0] = 1
    out[0] = 1


def by_choice(x, out):
    either = x if out.size > 2 else out
    either[0] = 1


def by_ufunc(x, out):
    np.add(out, out, x)


@pytest.mark.parametrize("kernel", [by_index, by_view, by_choice, by_ufunc])
def test_numba_refuses_to_write_an_input(kernel: Callable[..., None]):
    with pytest.raises(BuildError) as caught:
        trace(kernel, X)
    assert "readonly" in caught.value.output
    assert caught.value.hints[0].startswith("an input can't be written")


def by_operator(x, out):
    x += out
    out[0] = 1


def by_operator_on_a_part(x, out):
    view = x[1:]
    view -= 1
    out[0] = 1


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        (by_operator, "x += ... writes the input x: write to an output"),
        (by_operator_on_a_part, "+= and similar operators fail on an"),
    ],
)
def test_so_it_does_by_an_operator_and_says_nothing_of_inputs(kernel: Callable[..., None], hint: str):
    with pytest.raises(BuildError) as caught:
        trace(kernel, X)
    assert caught.value.hints[0].startswith(hint)


def misspelt(x, out):
    out[0] = np.shuffle(x)  # type: ignore[attr-defined]


def test_a_name_that_numpy_never_had_is_the_kernel_s_mistake():
    with pytest.raises(BuildError, match="module 'numpy' has no attribute 'shuffle'"):
        trace(misspelt, X)


@pytest.mark.parametrize("dtype", ["float8_e5m2", "int4"])
def test_dtypes_that_numba_lacks(dtype: str):
    with pytest.raises(ArgumentError, match=rf"input 0 is {dtype}\[4\]: Numba has no arrays of {dtype}"):
        trace(by_index, X.astype(jax.numpy.dtype(dtype)))


def by_atomic(x, out):
    cuda.atomic.add(x, 0, 1)
    out[0] = 1


def by_atomic_of_a_part(x, out):
    cuda.atomic.max(x[1:], 0, 1)
    out[0] = 1


def by_store(x, out):
    cuda.stcs(x, 0, np.float32(1))
    out[0] = 1


def by_imported_store(x, out):
    stwt(x, 0, np.float32(1))
    out[0] = 1


@pytest.mark.parametrize(
    ("kernel", "operation"),
    [
        (by_atomic, "an atomic operation"),
        (by_atomic_of_a_part, "an atomic operation"),
        (by_store, r"a cuda\.stcs"),
        (by_imported_store, r"a cuda\.stwt"),
    ],
)
def test_what_numba_lets_pass_is_refused_where_the_kernel_names_the_input(kernel: Any, operation: str):
    with pytest.raises(ArgumentError, match=f"the kernel {kernel.__name__} has {operation} on the input x"):
        trace(kernel, X)


def by_flat(x, out):
    x.flat[0] = 1
    out[0] = 1


def by_nditer(x, out):
    elements: Any = np.nditer(x)
    for value in elements:
        value[()] = 1
    out[0] = 1


def by_another_name(x, out):
    other = x
    cuda.atomic.add(other, 0, 1)
    out[0] = 1


@pytest.mark.parametrize("kernel", [by_flat, by_nditer, by_another_name])
def test_gaps_of_the_check_are_those_of_the_documentation(kernel: Callable[..., None]):
    """If Numba refuses one of these, the page says too much; tests/gpu has those that need a device to compile."""
    trace(kernel, X)


def scaled(a, x, out):
    i = cuda.grid(1)
    out[i] = a * x[i]


def scaled_by_its_value(a, x, out):
    i = cuda.grid(1)
    out[i] = a[()] * x[i]


def test_a_number_is_read_as_the_hint_says():
    trace(scaled_by_its_value, 2.0, X)
    with pytest.raises(BuildError) as caught:
        trace(scaled, 2.0, X)
    assert caught.value.hints == ("a is a 0-dimensional array, as all numbers are: its value is a[()]",)
