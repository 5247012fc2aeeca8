"""Scalar attributes of every type, in any order, and numbers of other types where the parameter holds them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import be_runtime
from tests.support.jax_names import enable_x64
from tests.support.runtime import call

VALUES: dict[str, tuple[Any, ...]] = {
    "bool": (np.bool_(True), np.bool_(False)),
    **{name: (np.iinfo(name).min, np.iinfo(name).max) for name in ("int8", "int16", "int32", "int64")},
    **{name: (0, np.iinfo(name).max) for name in ("uint8", "uint16", "uint32")},
    "uint64": (0, 2**63 - 1),  # JAX takes no more: it makes every integer attribute of an int64
    "float16": (np.float16(1.5), np.float16(-65504)),
    "bfloat16": (ml_dtypes.bfloat16(1.5), ml_dtypes.bfloat16(-3e38)),
    "float32": (np.float32(0.1), np.float32(-np.inf), np.float32(0), np.float32(-0.0)),
    "float64": (np.float64(0.1), np.float64(1e300)),
    "complex64": (np.complex64(1.5 - 2j), np.complex64(-0.1j)),
    "complex128": (np.complex128(0.1 - 1e300j), np.complex128(2)),
}
C_TYPES = {name: f"{name}_t" for name in VALUES} | {
    "bool": "bool", "float16": "uint16_t", "bfloat16": "uint16_t", "float32": "float", "float64": "double",
    "complex64": "std::complex<float>", "complex128": "std::complex<double>",
}  # fmt: skip
HALVES = {"float16": "BE::float16_t", "bfloat16": "BE::bfloat16_t"}
SOURCE = r"""
#include <complex>
#include <string.h>
#include "brainevent/common.h"
#include "brainevent/dtypes.h"
// @BE mixed attr.zeta:int32 ret stream arg attr.alpha:float64 arg attr.mid:bool
void mixed(int32_t zeta, BE::Tensor out, int64_t stream, const BE::Tensor x, double alpha, const BE::Tensor y,
           bool mid) {
  const double values[] = {double(zeta), double(stream), *x.data_ptr<double>(), alpha, *y.data_ptr<double>(), mid};
  memcpy(out.data_ptr<double>(), values, sizeof(values));
}
// @BE pinned_int64 ret attr.v:int64
void pinned_int64(BE::Tensor out, float v) { *out.data_ptr<int64_t>() = v; }
// @BE many
void many(BE::Tensor out, int b, int a, int d, int c, int f, int e, int B, int a1, int _, int a10) {
  const int values[] = {b, a, d, c, f, e, B, a1, _, a10};
  memcpy(out.data_ptr<int32_t>(), values, sizeof(values));
}
"""


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    """Functions that write their attribute: the tokens of all but the 16-bit floats are inferred."""
    functions = [
        f"// @BE {prefix}_{name}{f' ret attr.v:{name}' if name in HALVES else ''}\n"
        f"void {prefix}_{name}(BE::Tensor out, {kind} v) {{ memcpy(out.data_ptr(), &v, sizeof(v)); }}\n"
        for prefix, kinds in (("put", C_TYPES), ("class", HALVES))
        for name, kind in kinds.items()
    ]
    return be_runtime.load_cpp_inline("attributes", [SOURCE, *functions])


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def put(name: str, value: Any, prefix: str = "put") -> Any:
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return np.asarray(call(f"attributes.{prefix}_{name}", jax.ShapeDtypeStruct((), dtype), v=value))


def carried(value: Any, name: str) -> Any:
    """A value as XLA carries it: 16-bit floats as raw bits, complex numbers as an array of two parts."""
    if name in HALVES:
        return value.view(np.uint16)
    if name.startswith("complex"):
        return np.array([value]).view(np.float32 if name == "complex64" else np.float64)
    return np.dtype(name).type(value)


@pytest.mark.parametrize(("prefix", "name"), [*(("put", name) for name in VALUES), *(("class", n) for n in HALVES)])
def test_each_type_arrives_bit_for_bit(prefix: str, name: str):
    for value in VALUES[name]:
        found = put(name, carried(value, name), prefix)
        assert found.tobytes() == np.asarray(value, found.dtype).tobytes()


def test_tokens_may_come_in_any_order_and_names_sort_by_their_bytes():
    """XLA sorts a call's attributes by name; upper case, digits and underscores must not confuse the table."""
    x, y = np.array([2.5]), np.array([-4.0])
    out = jax.ShapeDtypeStruct((6,), np.float64)
    got = call("attributes.mixed", out, x, y, mid=np.bool_(True), alpha=np.float64(0.5), zeta=np.int32(-3))
    assert list(got) == [-3, 0, 2.5, 0.5, -4.0, 1], "the stream is 0 on the CPU"
    names = {name: np.int32(index) for index, name in enumerate(["b", "a", "d", "c", "f", "e", "B", "a1", "_", "a10"])}
    assert list(call("attributes.many", jax.ShapeDtypeStruct((10,), np.int32), **names)) == list(range(10))


SAME = [True, 1, 1.0, np.int8(1), np.uint64(1), np.float32(1), np.float64(1)]
CONVERTED = [
    *((name, value, 1) for name in VALUES if name not in HALVES and not name.startswith("complex") for value in SAME),
    *((name, 0, 0) for name in ("bool", "float32", "uint8")),
    *((name, np.iinfo(name).max, np.iinfo(name).max) for name in ("int8", "int32", "uint32", "int64")),
    *((name, np.iinfo(name).min, np.iinfo(name).min) for name in ("int8", "int32", "int64")),
    *(("uint64", 2.0**63, 2**63), ("int64", -(2.0**63), -(2**63)), ("int32", -0.0, 0), ("float64", 2**53, 2**53)),
    *(("float32", value, np.float32(value)) for value in (0.1, -(2**24), np.inf, -np.inf, np.nan)),
]
"""Types of parameters, values of other types, and what arrives."""


@pytest.mark.parametrize(("name", "value", "expected"), CONVERTED, ids=repr)
def test_a_number_of_another_type_is_converted_where_the_parameter_holds_it(name: str, value: Any, expected: Any):
    np.testing.assert_array_equal(put(name, value), np.asarray(expected).astype(name))


LOST = [
    ("bool", 2), ("bool", 0.5), ("int8", 128), ("int8", -129.0), ("uint8", -1), ("int32", 2**31), ("int32", 1.5),
    ("int64", 2.0**63), ("uint64", 2.0**64), ("uint64", np.int8(-1)), ("int64", np.inf),
    ("int32", np.nan), ("float32", 2**24 + 1), ("float64", 2**53 + 1), ("float32", 1e39), ("float16", 1.5),
    ("bfloat16", 2), ("complex64", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), LOST, ids=repr)
def test_a_number_that_the_parameter_does_not_hold_is_refused(name: str, value: Any):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes the attributes \(v=.*but the call passes \(v: "):
        put(name, value)


def test_a_call_does_not_meet_the_failure_of_an_equal_one():
    """JAX keeps compiled programs by the attributes' values, and values of different types may be equal."""
    jax.clear_caches()
    for name, values in {
        "float32": (2.0, np.float32(2), 2, np.float64(2), np.int32(2)),
        "int32": (2.0, np.int32(2), 2, np.float32(2)),
        "bool": (1, True, np.bool_(True), 1.0),
        "float64": (True, 1.0, np.float32(1)),
    }.items():
        caller: Any = jax.ffi.ffi_call(f"attributes.put_{name}", jax.ShapeDtypeStruct((), name))
        assert [caller(v=value) for value in values] == list(values)


def test_a_token_pins_the_type_of_the_call():
    assert put("int64", np.int64(3), "pinned") == 3
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"v=np\.int64"):
        put("int64", np.float32(4.5), "pinned")
