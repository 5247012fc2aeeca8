"""What is advised about a kernel that Numba refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from be_runtime.kernels.numba.numba_hints import augmented, hints

OPERATOR = "'NoneType' object has no attribute 'args'"
NUMBER = "No implementation of function Function(<class 'range'>) ... range(readonly array(int32, 0d, C))"


def adds(x: Any, y: Any, out: Any) -> None:
    x += y
    out[0] **= 2


def adds_to_output(x: Any, y: Any, out: Any) -> None:
    out *= "s"


def adds_to_view(x: Any, y: Any, out: Any) -> None:
    view = x[1:]
    view |= y


def adds_elsewhere(x: Any, y: Any, out: Any) -> None:
    out[0] = x[0] + y[0]


def takes_any(*arrays: Any) -> None:
    pass


def test_the_targets_of_operators_are_named():
    assert augmented(adds) == {"x": "+="}
    assert augmented(adds_to_view) == {"view": "|="}
    assert augmented(adds_elsewhere) == {}


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        (adds, r"x \+= ... writes the input x: write to an output"),
        (adds_to_output, r"Numba can't do out \*= ... with this operand"),
        (adds_to_view, r"\+= and similar operators fail on an input and on a part of one: write to an output"),
        (adds_elsewhere, r"\+= and similar operators fail on an input and on a part of one: write to an output"),
        (takes_any, r"\+= and similar operators fail on an input"),
    ],
)
def test_an_operator_is_blamed_on_what_it_writes(function: Any, hint: str):
    (found,) = hints(function, [1, 1], [1], OPERATOR)
    assert re.match(hint, found)


def test_every_number_is_read_by_its_name():
    assert hints(adds, [0, 1], [0], NUMBER) == [
        f"{name} is a 0-dimensional array, as all numbers are: its value is {name}[()]" for name in ("x", "out")
    ]
    assert hints(takes_any, [0], [1], NUMBER) == []


def test_a_write_comes_before_a_number():
    first, second = hints(adds, [0, 1], [1], "setitem(readonly array(int32, 0d, C), Tuple(), int64)")
    assert first.startswith("an input can't be written")
    assert second.startswith("x is a 0-dimensional array")
