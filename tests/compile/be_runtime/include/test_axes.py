"""Declared axes: what a call with other shapes is told, and what `vmap` can't get wrong any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

Call = Callable[..., Any]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_arrays_as_declared(call: Call):
    np.testing.assert_array_equal(call("matvec", ones(2), ones(2, 3), ones(3)), [3, 3])
    np.testing.assert_array_equal(call("total", ones(), ones(5)), 5)
    for shape in ((3,), (2, 3), (4, 2, 3)):
        np.testing.assert_array_equal(call("cross", ones(*shape), ones(*shape), ones(1)), np.full(shape, 2))


@pytest.mark.parametrize(
    ("name", "out", "shapes", "message"),
    [
        ("matvec", (2,), [(2, 4), (5,)], "axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)"),
        ("matvec", (3,), [(2, 4), (4,)], "axis n is 2 in argument 0 (axis 0) and 3 in result 0 (axis 0)"),
        ("matvec", (2,), [(2,), (2,)], "argument 0 has the shape (2,), but its axes are declared as [n k]"),
        ("total", (1,), [(3,)], "result 0 has the shape (1,), but its axes are declared as []"),
        ("cross", (2, 4), [(2, 4), (1,)], "an axis is declared as 3 and is 4 in argument 0 (axis 1)"),
        ("cross", (4, 3), [(2, 3), (1,)], "the leading axes of argument 0 and result 0 differ"),
        ("cross", (3,), [(2, 3), (1,)], "the leading axes of argument 0 and result 0 differ"),
    ],
)
def test_other_arrays_are_refused(refused: Callable[..., str], name: str, out: Any, shapes: Any, message: str):
    assert f".{name}: {message}" in refused(name, ones(*out), *(ones(*each) for each in shapes))


def test_a_batch_is_right_or_refused(call: Call):
    """A kernel without leading axes would take a batch for a longer array."""

    def totals(method: str) -> Any:
        return jax.vmap(lambda x: call("total", ones(), x, vmap_method=method))(ones(4, 3))

    for method in ("broadcast_all", "expand_dims"):
        message = r"shape \(4, 3\).*declared as \[n\].*sequential.*\[\.\.\. n\]"
        with pytest.raises(jax.errors.JaxRuntimeError, match=message):
            totals(method)
    np.testing.assert_array_equal(totals("sequential"), [3, 3, 3, 3])
    batched: Any = jax.vmap(lambda x: call("cross", x, x, ones(1), vmap_method="broadcast_all"))
    np.testing.assert_array_equal(batched(ones(5, 3)), np.full((5, 3), 2))


def test_computed_axes_are_checked(call: Call, refused: Callable[..., str]):
    assert call("pairs", ones(2, 2), ones(4))[0, 0] == 4
    assert r"[n/2 2], which makes axis 0 2, and it is 3 in result 0" in refused("pairs", ones(3, 2), ones(4))
    assert call("bins", ones(3, 1), ones(4), count=np.int32(3)).shape == (3, 1)
    for shape, count in (((3, 2), 3), ((2, 1), 3), ((1, 1), 0)):
        assert "its axes are declared as" in refused("bins", ones(*shape), ones(4), count=np.int32(count))
