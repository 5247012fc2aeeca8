"""Python's values as attributes of declared types."""

from __future__ import annotations

import enum
import math
import struct
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from be_runtime.call.attributes import convert_attributes
from be_runtime.errors import ArgumentError
from be_runtime.spec.grammar import parse_spec
from be_runtime.xla.attribute_values import Fields, Numbers, Value, as_jax


def convert(kind: str, value: object) -> Value:
    """The attribute ``a`` of a type."""
    params = [param for param in parse_spec([f"attr.a:{kind}", "ret"]) if param.name == "a"]
    ((name, converted),) = convert_attributes("f", params, {"a": value})
    assert name == "a"
    return converted


class Mode(enum.Enum):
    fast = 7
    slow = 8


class Text(str, enum.Enum):  # noqa: UP042 - its text is another than its value
    fast = "slow"


@pytest.mark.parametrize(
    ("kind", "value", "jax_value"),
    [
        ("int8", -128, np.int8(-128)),
        ("int64", 2**63 - 1, np.int64(2**63 - 1)),
        ("uint64", 2**64 - 1, np.uint64(2**64 - 1)),
        ("int32", 3.0, np.int32(3)),
        ("int32", np.int64(3), np.int32(3)),
        ("int32", True, np.int32(1)),
        ("bool", 1, np.bool_(True)),
        ("float32", 0.1, np.float32(0.1)),
        ("float32", math.inf, np.float32(math.inf)),
        ("float32", Fraction(1, 2), np.float32(0.5)),
        ("float64", 1, np.float64(1)),
        ("float64", np.array(1.5), np.float64(1.5)),
        ("float16", 0.1, np.float16(0.1).view(np.uint16)),
        ("bfloat16", 0.1, ml_dtypes.bfloat16(0.1).view(np.uint16)),
        ("string", "sum", "sum"),
        ("string", Text.fast, "slow"),
        ("enum(fast slow)", "slow", "slow"),
        ("enum(fast slow)", Mode.fast, "fast"),
        ("enum(fast slow)", Text.fast, "fast"),
        ("dtype", "float32", np.int32(11)),
        ("dtype", np.float64, np.int32(12)),
    ],
)
def test_values_that_fit(kind: str, value: object, jax_value: object) -> None:
    found = as_jax(convert(kind, value))
    assert type(found) is type(jax_value)
    assert found == jax_value


def test_values_of_several_numbers() -> None:
    assert as_jax(convert("complex64", 1 + 2j)).tolist() == [1, 2]
    assert as_jax(convert("int32[]", (1, 2, 3))).tolist() == [1, 2, 3]
    assert as_jax(convert("int32[]", [])).tolist() == []
    assert as_jax(convert("float32[]", np.array([[1.5, 2], [3, 4]]))).dtype == np.float32
    fields = convert("{lr:float32 n:int8=3 mode:enum(a b)=a}", {"lr": 0.5})
    assert fields == Fields((("lr", Numbers("float32", struct.pack("<f", 0.5))),))
    assert as_jax(fields) == {"lr": np.float32(0.5)}


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int8", 128, "f: a is 128, which is not a valid int8"),
        ("uint8", -1, "f: a is -1, which is not a valid uint8"),
        ("int32", 1.5, "f: a is 1.5, which is not a valid int32"),
        ("int64", 2**63, "not a valid int64"),
        ("uint64", 2**64, "not a valid uint64"),
        ("float32", 1e39, "f: a is 1e+39, which is not a valid float32"),
        ("float32", 1j, "not a valid float32"),
        ("float32", "1", "f: a is '1', which is not a valid float32"),
        ("float32", None, "f: a is None, which is not a valid float32"),
        ("float32", [1.0], "not a valid float32"),
        ("bool", 2, "not a valid bool"),
        ("int32[]", [1, 2.5], "f: a is [1, 2.5], which is not an array of int32"),
        ("int8[]", [300], "not an array of int8"),
        ("int8[]", [[1], [2, 3]], "not an array of int8"),
        ("string", 3, "f: a is 3, which is not a string"),
        ("string", "a\0b", "which is not a string without NUL"),
        ("string", "\udc80", "which is not a string that UTF-8 can hold"),
        ("enum(fast slow)", "quick", "f: a is 'quick', which is not one of fast, slow"),
        ("enum(fast slow)", np.array(["fast", "slow"]), "which is not one of fast, slow"),
        ("enum(fast slow)", np.array(["fast"]), "which is not one of fast, slow"),
        ("dtype", "float31", "f: a is 'float31', which is not a dtype"),
        ("dtype", None, "f: a is None, which is not a dtype"),
        ("dtype", (np.int32, -1), "which is not a dtype"),
        ("{lr:float32}", 3, "f: a is 3, which is not a dict of {lr:float32}"),
        ("{lr:float32}", {"lr": "x"}, "f: a: lr is 'x', which is not a valid float32"),
        ("{lr:float32}", {"lr": 1, 2: 3}, "which is not a dict with names"),
        ("{lr:float32}", {}, "f: a needs the attribute 'lr'"),
        ("{lr:float32}", {"rl": 1, "lr": 2}, "f: a has no attribute 'rl'; it takes (lr: float32)"),
    ],
)
def test_values_that_do_not_fit_are_named(kind: str, value: object, message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        convert(kind, value)
    assert message in caught.value.message


@pytest.mark.parametrize("kind", ["int8", "uint8", "int64", "uint64", "float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("given", [np.int64, np.uint64, np.int8, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("values", [[1, 0, 2], [-1, 3], [200, 127], [math.nan, math.inf, -0.0], [0.1, 1e-40], [1e39]])
def test_an_array_is_converted_as_its_numbers_one_by_one(kind: str, given: type, values: list[float]) -> None:
    with np.errstate(all="ignore"):
        array: np.ndarray[Any, Any] = np.array(values).astype(given)
    try:
        one_by_one = [as_jax(convert(kind, each)) for each in array]
    except ArgumentError:
        with pytest.raises(ArgumentError, match="not an array of"):
            convert(f"{kind}[]", array)
    else:
        assert as_jax(convert(f"{kind}[]", array)).tobytes() == b"".join(each.tobytes() for each in one_by_one)


def test_equal_numbers_with_other_bits_differ() -> None:
    assert convert("float32", 0.0) != convert("float32", -0.0)
    assert convert("float32", 1) == convert("float32", np.float64(1))
    assert convert("float32", math.nan) == convert("float32", math.nan)
