"""What a kernel raises becomes an XLA error, and what would write an input is not compiled."""

# ruff: noqa: ANN001 - Numba finds the types of a kernel's parameters

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from be_runtime import BuildError, numba_kernel

numba: Any = pytest.importorskip("numba")
njit = numba.njit
ONE = jax.ShapeDtypeStruct((1,), jnp.float32)


@njit
def setter(x):
    x[0] = 1


OWN = ('if x[0] == 0: raise ValueError("not zero", 7)', "out[0] = 1")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (("out[0] = 1 / int(x[0])",), "kernel: ZeroDivisionError: division by zero"),
        (OWN, r"kernel: ValueError: \('not zero', 7\)"),
        (('if x[0] == 0: raise RuntimeError("row " + str(int(x.size)))', "out[0] = 1"), "kernel: RuntimeError: row 1"),
        (('assert x[0] > 0, "x is positive"', "out[0] = 1"), "kernel: AssertionError: x is positive"),
        (("out[0] = 1", "out[int(1 - x[0])] = 1"), "kernel: IndexError: index is out of bounds"),
        (("table = {1: 1.0}", "out[0] = table[int(x[0])]"), "kernel: KeyError"),
    ],
)
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


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
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
    ],
)
def test_an_input_can_not_be_written(define: Callable[..., Any], statement: str, hint: str):
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(define(statement, "out[0] = 1", known={"setter": setter}), ONE))(jnp.zeros(1))
    assert hint != READ_ONLY or "readonly" in caught.value.output
    assert caught.value.hints[0].startswith(hint)


def test_the_reason_comes_first_with_the_kernel_s_line(define: Callable[..., Any], tmp_path: Path):
    kernel = define("for i in range(out.shape[0]):", "    out[i] = x.shape[1]")
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(kernel, ONE))(jnp.ones(3))
    assert str(caught.value).splitlines()[0].endswith(f": tuple index out of range ({tmp_path}/kernel.py:3)")


def test_a_number_is_read_as_the_hint_says(define: Callable[..., Any]):
    repeated = define("for _ in range(count):", "    out[0] = x[0]", parameters="count, x, out")
    with pytest.raises(BuildError) as caught:
        jax.jit(numba_kernel(repeated, ONE))(2, jnp.ones(1))
    assert caught.value.hints == ("count is a 0-dimensional array, as all numbers are: its value is count[()]",)
    right = define("for _ in range(count[()]):", "    out[0] = x[0]", parameters="count, x, out")
    assert jax.jit(numba_kernel(right, ONE))(2, jnp.ones(1)) == 1
