"""What a kernel raises becomes an XLA error, and what would write an input is not compiled."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from be_runtime import BuildError, numba_kernel

numba: Any = pytest.importorskip("numba")
njit = numba.njit
ONE = jax.ShapeDtypeStruct((1,), jnp.float32)


def divide(x: Any, out: Any) -> None:
    out[0] = 1 / int(x[0])


def own(x: Any, out: Any) -> None:
    out[0] = 1
    if x[0] == 0:
        raise ValueError("not zero", 7)


def formatted(x: Any, out: Any) -> None:
    if x[0] == 0:
        raise RuntimeError("row " + str(int(x.size)))
    out[0] = 1


def asserting(x: Any, out: Any) -> None:
    if not x[0] > 0:
        raise AssertionError("x is positive")  # as an assert does where pytest doesn't rewrite it
    out[0] = 1


def beyond(x: Any, out: Any) -> None:
    out[0] = 1
    out[int(1 - x[0])] = 1


def missing(x: Any, out: Any) -> None:
    table = {1: 1.0}
    out[0] = table[int(x[0])]


RAISING: dict[Callable[..., None], str] = {
    divide: "divide: ZeroDivisionError: division by zero",
    own: r"own: ValueError: \('not zero', 7\)",
    formatted: "formatted: RuntimeError: row 1",
    asserting: "asserting: AssertionError: x is positive",
    beyond: "beyond: IndexError: index is out of bounds",
    missing: "missing: KeyError",
}


@pytest.mark.parametrize("kernel", RAISING, ids=lambda kernel: kernel.__name__)
def test_an_exception_is_an_xla_error_that_names_it(kernel: Any):
    run = jax.jit(numba_kernel(njit(boundscheck=True)(kernel), ONE, vmap_method="broadcast_all"))
    message = RAISING[kernel]
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run(jnp.zeros(1)).block_until_ready()
    assert run(jnp.ones(1)) == 1, "the process and the kernel go on"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message + r".* \(element 2 of a batch of 3\)"):
        jax.block_until_ready(jax.vmap(run)(jnp.array([[1.0], [1.0], [0.0]])))


def test_nothing_is_left_behind_in_python():
    """The exception is Python's for a moment: it must not show up in whatever runs next on the thread."""
    run = numba_kernel(njit(own), ONE)
    for _ in range(20):
        with pytest.raises(jax.errors.JaxRuntimeError):
            run(jnp.zeros(1)).block_until_ready()
        assert [each for each in range(3)] == [0, 1, 2]  # noqa: C416 - iteration ends by an exception of its own


def by_index(x: Any, out: Any) -> None:
    x[0] = 1


def by_slice(x: Any, out: Any) -> None:
    x[:] = 1


def by_view(x: Any, out: Any) -> None:
    x[1:][0] = 1


def by_shape(x: Any, out: Any) -> None:
    x.reshape((1, x.size))[0, 0] = 1


def by_method(x: Any, out: Any) -> None:
    x.sort()


def by_fill(x: Any, out: Any) -> None:
    x.fill(1)


def by_ufunc(x: Any, out: Any) -> None:
    np.add(out, out, x)


@njit
def setter(x):
    x[0] = 1


def by_callee(x: Any, out: Any) -> None:
    setter(x)


@pytest.mark.parametrize(
    "kernel",
    [by_index, by_slice, by_view, by_shape, by_method, by_fill, by_ufunc, by_callee],
    ids=lambda kernel: kernel.__name__,
)
def test_an_input_can_not_be_written(kernel: Any):
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(njit(kernel), ONE))(jnp.zeros(1))
    assert "readonly" in caught.value.output
    assert caught.value.hints[0].startswith("an input can't be written")


def by_operator(x: Any, out: Any) -> None:
    x += out
    out[0] = 1


def by_operator_on_a_part(x: Any, out: Any) -> None:
    x[:1] *= 2
    out[0] = 1


@pytest.mark.parametrize(
    ("kernel", "hint"),
    [
        (by_operator, "x += ... writes the input x: write to an output"),
        (by_operator_on_a_part, "+= and similar operators fail on an"),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_nor_by_an_operator(kernel: Any, hint: str):
    """Numba says nothing of inputs there."""
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(njit(kernel), ONE))(jnp.zeros(1))
    assert caught.value.hints[0].startswith(hint)


def repeated(count: Any, x: Any, out: Any) -> None:
    for _ in range(count):
        out[0] = x[0]


def repeated_by_its_value(count: Any, x: Any, out: Any) -> None:
    for _ in range(count[()]):
        out[0] = x[0]


def of_two_axes(x: Any, out: Any) -> None:
    for i in range(out.shape[0]):
        out[i] = x.shape[1]


def test_the_reason_comes_first_with_the_kernel_s_line():
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(njit(of_two_axes), ONE))(jnp.ones(3))
    line = of_two_axes.__code__.co_firstlineno + 2
    assert str(caught.value).splitlines()[0].endswith(f": tuple index out of range ({__file__}:{line})")


def test_a_number_is_read_as_the_hint_says():
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(njit(repeated), ONE))(2, jnp.ones(1))
    assert caught.value.hints == ("count is a 0-dimensional array, as all numbers are: its value is count[()]",)
    assert jax.jit(numba_kernel(njit(repeated_by_its_value), ONE))(2, jnp.ones(1)) == 1


def test_the_same_in_place():
    def in_place(x: Any, out: Any) -> None:
        out[0] += 1

    run = numba_kernel(njit(in_place), ONE, input_output_aliases={0: 0})
    assert jax.jit(run)(jnp.full(1, 5.0)) == 6
