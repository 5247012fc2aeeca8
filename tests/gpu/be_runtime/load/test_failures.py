"""Whatever a launcher does wrong becomes an error that names the function, and the process goes on."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.cuda import call, source

TEXT = source("failures")
CHECKED_LINE = next(number for number, line in enumerate(TEXT.splitlines(), 1) if "the line of a checked" in line)
REFUSED = r"cudaErrorInvalid(?:Configuration \(9\)|Value \(1\))"
"""What CUDA says of a launch with too many threads: the second since 13.0."""
X = np.arange(3, dtype=np.float32)


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    # A graph can't be recorded across BE_CHECK_KERNEL_LAUNCH_SYNC.
    be_runtime.load_cuda_inline("failures", TEXT, allow_cuda_graph=False)


@pytest.fixture(autouse=True)
def _goes_on() -> Generator[None]:
    yield
    np.testing.assert_array_equal(run("good", factor=np.float32(2)), 2 * X)
    assert (jnp.arange(4) + 1).sum() == 10


def run(function: str, **attrs: Any) -> Any:
    return call(f"failures.{function}", jax.ShapeDtypeStruct(X.shape, X.dtype), X, **attrs)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("checked_launch", rf"failures:{CHECKED_LINE}: kernel launch failed: {REFUSED}"),
        ("unchecked_launch", rf"kernel launch failed: {REFUSED}: .*too large"),
        ("too_much_shared", r"kernel launch failed: cudaError\w+ \(\d+\)"),
        ("cuda_call", r"cudaSetDevice\(1 << 20\) failed: cudaErrorInvalidDevice \(101\)"),
        ("condition", r"check failed: x\.numel\(\) == 7: x has 3 elements of float32"),
        ("standard_exception", "a standard exception"),
        ("other_exception", "threw a C\\+\\+ exception"),
    ],
)
def test_failure_names_its_function(function: str, words: str):
    for _ in range(2):
        with pytest.raises(jax.errors.JaxRuntimeError, match=rf"failures\.{function}: .*{words}"):
            run(function)


def test_check_that_waits():
    np.testing.assert_array_equal(run("waits"), 3 * X)


def test_failure_inside_a_larger_program():
    @jax.jit
    def program(x: jax.Array) -> jax.Array:
        like = jax.ShapeDtypeStruct(x.shape, x.dtype)
        y = jax.ffi.ffi_call("failures.good", like)(x + 1, factor=np.float32(2))
        return jax.ffi.ffi_call("failures.condition", like)(y) * 2

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"failures\.condition: .*x has 3 elements"):
        jax.block_until_ready(program(jnp.asarray(X)))
