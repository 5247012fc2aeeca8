"""What a host function is compiled for, and whether it can take the arrays of a call."""

from __future__ import annotations

from typing import Any

import pytest

from be_runtime import ArgumentError
from be_runtime.dtypes import BY_NAME
from be_runtime.kernels.numba.cpu.signature import check_count, signature_of
from be_runtime.xla.arrays import ArraySpec

X = ArraySpec(BY_NAME["float32"], (3, 4))
N = ArraySpec(BY_NAME["int64"], ())


def test_only_dtypes_and_ranks_count():
    other = ArraySpec(BY_NAME["float32"], (7, 1))
    assert signature_of([X, N], [X]) == signature_of([other, N], [other])
    assert str(signature_of([X, N], [X])) == "(float32[:,:], int64[]) -> (float32[:,:])"


@pytest.mark.parametrize("side", ["input", "output"])
def test_a_dtype_that_there_are_no_arrays_of(side: str):
    half = ArraySpec(BY_NAME["bfloat16"], (2,))
    inputs, outputs = ([X, half], [X]) if side == "input" else ([X], [X, half])
    with pytest.raises(ArgumentError, match=rf"{side} 1 is bfloat16\[2\]: Numba has no arrays of bfloat16"):
        signature_of(inputs, outputs, ("bfloat16",))


def three(x: Any, y: Any, out: Any) -> None: ...


def any_number(*arrays: Any) -> None: ...


def with_default(x: Any, out: Any, count: int = 3) -> None: ...


@pytest.mark.parametrize("function", [three, any_number])
def test_a_count_that_fits(function: Any):
    check_count(function, "f", signature_of([X, X], [X]))


def test_a_parameter_with_a_default_need_not_be_given():
    check_count(with_default, "f", signature_of([X], [X]))


@pytest.mark.parametrize("inputs", [0, 1, 3])
def test_a_count_that_does_not_fit(inputs: int):
    with pytest.raises(ArgumentError, match=rf"f\(x, y, out\) can't take {inputs} inputs and 1 outputs"):
        check_count(three, "f", signature_of([X] * inputs, [X]))


def test_what_follows_the_arrays_counts():
    check_count(three, "f", signature_of([X], [X]), ("the stream",))
    with pytest.raises(
        ArgumentError, match="its parameters are the inputs of the call, then the outputs, then the stream"
    ):
        check_count(three, "f", signature_of([X, X], [X]), ("the stream",))
