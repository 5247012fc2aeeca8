"""Scalar attributes of every type, in any order, and the forms of an arg_spec that name them."""

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
    "float32": (np.float32(0.1), np.float32(-np.inf)),
    "float64": (np.float64(0.1), np.float64(1e300)),
    "complex64": (np.complex64(1.5 - 2j), np.complex64(-0.1j)),
    "complex128": (np.complex128(0.1 - 1e300j), np.complex128(2)),
}
C_TYPES = {
    "bool": "bool",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
    "complex64": "std::complex<float>",
    "complex128": "std::complex<double>",
}
HEAD = '#include <complex>\n#include <string.h>\n#include "brainevent/common.h"\n#include "brainevent/dtypes.h"\n'
BODY = "{ memcpy(out.data_ptr(), &v, sizeof(v)); }"
HALF_CLASSES = {"float16": "BE::float16_t", "bfloat16": "BE::bfloat16_t"}
INFERRED = {name: C_TYPES.get(name, f"{name}_t") for name in VALUES if name not in HALF_CLASSES}

MIXED = r"""
// @BE mixed attr.zeta:int32 ret stream arg attr.alpha:float64 arg attr.mid:bool
void mixed(int32_t zeta, BE::Tensor out, int64_t stream, const BE::Tensor x, double alpha, const BE::Tensor y,
           bool mid) {
  double* to = out.data_ptr<double>();
  to[0] = zeta;
  to[1] = static_cast<double>(stream);
  to[2] = x.data_ptr<double>()[0];
  to[3] = alpha;
  to[4] = y.data_ptr<double>()[0];
  to[5] = mid;
}

// @BE aliases args attrs.n rets ctx.stream attrs.f:float32
void aliases(const BE::Tensor x, int32_t n, BE::Tensor out, int64_t stream, float f) {
  out.data_ptr<double>()[0] = x.data_ptr<double>()[0] + n + 10 * f + stream;
}

// @BE many
void many(BE::Tensor out, int b, int a, int d, int c, int f, int e, int B, int a1, int _, int a10) {
  const int values[] = {b, a, d, c, f, e, B, a1, _, a10};
  for (int i = 0; i < 10; ++i) out.data_ptr<int32_t>()[i] = values[i];
}
"""

EXAMPLE = r"""
#include "brainevent/common.h"
// @BE scale
void scale(const BE::Tensor x, BE::Tensor out, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * by;
}
void shift(const BE::Tensor x, BE::Tensor out, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + by;
}
"""


def source() -> str:
    parts = [HEAD]
    for name in VALUES:
        c_type = C_TYPES.get(name, f"{name}_t")
        parts.append(f"// @BE put_{name} ret attr.v:{name}\nvoid put_{name}(BE::Tensor out, {c_type} v) {BODY}\n")
    for name, c_type in INFERRED.items():
        parts.append(f"// @BE inferred_{name}\nvoid inferred_{name}(BE::Tensor out, {c_type} v) {BODY}\n")
    for name, c_type in HALF_CLASSES.items():
        parts.append(f"// @BE class_{name} ret attr.v:{name}\nvoid class_{name}(BE::Tensor out, {c_type} v) {BODY}\n")
    return "".join(parts) + MIXED


@pytest.fixture(scope="module", autouse=True)
def _module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("attributes", source())


@pytest.fixture(autouse=True)
def _x64() -> Generator[None]:
    with enable_x64(True):
        yield


def carried(value: Any, name: str) -> Any:
    """A value as XLA carries it: 16-bit floats as raw bits, complex numbers as an array of two parts."""
    if name in HALF_CLASSES:
        return value.view(np.uint16)
    if name.startswith("complex"):
        return np.array([value]).view(np.float32 if name == "complex64" else np.float64)
    return np.dtype(name).type(value)


PREFIXES = {
    "put": list(VALUES),
    "inferred": list(INFERRED),
    "class": list(HALF_CLASSES),
}


@pytest.mark.parametrize(
    ("function", "name"), [(f"{prefix}_{name}", name) for prefix, names in PREFIXES.items() for name in names]
)
def test_each_type_arrives_bit_for_bit(function: str, name: str):
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    for value in VALUES[name]:
        out = call(f"attributes.{function}", jax.ShapeDtypeStruct((), dtype), v=carried(value, name))
        assert np.asarray(out).tobytes() == np.asarray(value, dtype).tobytes()


def test_tokens_may_come_in_any_order():
    x, y = np.array([2.5]), np.array([-4.0])
    out = jax.ShapeDtypeStruct((6,), np.float64)
    got = call("attributes.mixed", out, x, y, mid=np.bool_(True), alpha=np.float64(0.5), zeta=np.int32(-3))
    assert list(got) == [-3, 0, 2.5, 0.5, -4.0, 1], "the stream is 0 on the CPU"


def test_aliases_of_tokens():
    out = jax.ShapeDtypeStruct((1,), np.float64)
    assert list(call("attributes.aliases", out, np.array([1.0]), n=np.int32(2), f=np.float32(0.5))) == [8.0]


def test_names_sort_by_their_bytes():
    """XLA sorts a call's attributes by name; upper case, digits and underscores must not confuse the table."""
    names = ["b", "a", "d", "c", "f", "e", "B", "a1", "_", "a10"]
    attrs = {name: np.int32(index) for index, name in enumerate(names)}
    got = call("attributes.many", jax.ShapeDtypeStruct((10,), np.int32), **attrs)
    assert list(got) == list(range(10))


SAME = [True, 1, 1.0, np.int8(1), np.uint64(1), np.float32(1), np.float64(1)]
CASES = [
    *((name, value, 1) for name in INFERRED if not name.startswith("complex") for value in SAME),
    *((name, 0, 0) for name in ("bool", "float32", "uint8")),
    *((name, np.iinfo(name).max, np.iinfo(name).max) for name in ("int8", "int32", "uint32", "int64")),
    *((name, np.iinfo(name).min, np.iinfo(name).min) for name in ("int8", "int32", "int64")),
    ("uint64", 2.0**63, 2**63),
    ("int64", -(2.0**63), -(2**63)),
    ("int32", -0.0, 0),
    ("float32", 0.1, np.float32(0.1)),
    ("float32", -(2**24), -(2**24)),
    ("float32", float("inf"), np.inf),
    ("float32", float("-inf"), -np.inf),
    ("float64", 2**53, 2**53),
]
"""Types of parameters, values of other types, and what arrives."""


@pytest.mark.parametrize(("name", "value", "expected"), CASES, ids=repr)
def test_a_number_of_another_type_is_converted_where_the_parameter_holds_it(name: str, value: Any, expected: Any):
    (got,) = call(f"attributes.put_{name}", jax.ShapeDtypeStruct((1,), name), v=value)
    assert np.asarray(got) == np.asarray(expected).astype(name)


def test_not_a_number_stays_none():
    assert np.isnan(call("attributes.put_float32", jax.ShapeDtypeStruct((), np.float32), v=float("nan")))


LOST = [
    ("bool", 2), ("bool", 0.5), ("int8", 128), ("int8", -129.0), ("uint8", -1), ("int32", 2**31), ("int32", 1.5),
    ("int64", 2.0**63), ("uint64", 2.0**64), ("uint64", np.int8(-1)), ("int64", np.inf),
    ("int32", np.nan), ("float32", 2**24 + 1), ("float64", 2**53 + 1), ("float32", 1e39), ("float16", 1.5),
    ("bfloat16", 2), ("complex64", 1.0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), LOST, ids=repr)
def test_a_number_that_the_parameter_does_not_hold_is_refused(name: str, value: Any):
    out = jax.ShapeDtypeStruct((1,), name)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes the attributes \(v=.*but the call passes \(v: "):
        call(f"attributes.put_{name}", out, v=value)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("float32", (2.0, np.float32(2), 2, np.float64(2), np.int32(2))),
        ("int32", (2.0, np.int32(2), 2, np.float32(2))),
        ("bool", (1, True, np.bool_(True), 1.0)),
        ("float64", (True, 1.0, np.float32(1))),
    ],
)
def test_a_call_does_not_meet_the_failure_of_an_equal_one(name: str, values: tuple[Any, ...]):
    """JAX keeps compiled programs by the attributes' values, and values of different types may be equal."""
    jax.clear_caches()
    caller: Any = jax.ffi.ffi_call(f"attributes.put_{name}", jax.ShapeDtypeStruct((), name))
    for value in values:
        assert caller(v=value) == value


def test_an_attribute_is_a_constant_of_its_program():
    out = jax.ShapeDtypeStruct((), np.float32)
    for value in (1.0, 2.0, -0.0):
        got = call("attributes.put_float32", out, v=np.float32(value))
        assert np.asarray(got).tobytes() == np.float32(value).tobytes()


@pytest.mark.parametrize(
    ("form", "functions", "names"),
    [
        ("annotations", None, ("scale",)),
        ("dict", {"shift": ["arg", "ret", "attr.by:float32"], "scale": ["arg", "ret", "attr.by"]}, ("shift", "scale")),
        ("list", ["shift"], ("shift",)),
        ("tuple", ("shift", "scale"), ("shift", "scale")),
        ("dict_of_tuples", {"shift": ("args", "rets", "attrs.by")}, ("shift",)),
    ],
)
def test_forms_of_functions(form: str, functions: Any, names: tuple[str, ...]):
    module = be_runtime.load_cpp_inline(f"form_{form}", EXAMPLE, functions)
    assert module.function_names == list(names)
    x = np.array([1.0, 3.0], np.float32)
    expected = {"scale": [2.0, 6.0], "shift": [3.0, 5.0]}
    for name in names:
        got = call(f"form_{form}.{name}", jax.ShapeDtypeStruct((2,), np.float32), x, by=np.float32(2))
        assert list(got) == expected[name]


def test_a_token_pins_the_type_of_the_call():
    be_runtime.load_cpp_inline("form_pinned", EXAMPLE, {"scale": ["arg", "ret", "attr.by:int64"]})
    out = jax.ShapeDtypeStruct((1,), np.float32)
    assert list(call("form_pinned.scale", out, np.ones(1, np.float32), by=np.int64(3))) == [3.0]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"by=np\.int64"):
        call("form_pinned.scale", out, np.ones(1, np.float32), by=np.float32(4.5))


def test_the_parameters_can_be_given_by_keyword():
    module = be_runtime.load_cpp_inline(name="form_keyword", cpp_sources=[EXAMPLE], functions=None)
    assert module.function_names == ["scale"]


def test_several_sources_are_one_text():
    head = '#include "brainevent/common.h"\nstatic float helper(float x) { return x + 1; }\n'
    tail = (
        "// @BE apply\nvoid apply(const BE::Tensor x, BE::Tensor out) {"
        " out.data_ptr<float>()[0] = helper(x.data_ptr<float>()[0]); }"
    )
    be_runtime.load_cpp_inline("form_parts", [head, tail])
    x = np.array([1.0], np.float32)
    assert list(call("form_parts.apply", jax.ShapeDtypeStruct((1,), np.float32), x)) == [2.0]


@pytest.mark.parametrize(
    ("functions", "message"),
    [
        ("scale", "functions"),
        ({"scale": "arg ret"}, "scale"),
        ({"scale": ["arg", "ret"]}, "by"),
        ({"scale": ["arg", "ret", "attr.by:float32", "stream"]}, "scale"),
        ({"scale": ["arg", "ret", "attr.by:complex64"]}, "by"),
        ({"scale": ["arg", "ret", "attr.bye"]}, "bye"),
        ({"scale": ["arg", "attr.by"]}, "ret"),
        ({"scale": ["arg", "ret", "attr.by", "stream", "stream"]}, "stream"),
        ({"scale": ["arg", "ret", "attr.by:float"]}, "float"),
        ({"scale": ["arg", "rte", "attr.by"]}, "rte"),
        (["scale", "scale"], "scale"),
        (["skale"], "scale"),
    ],
    ids=str,
)
def test_specs_that_are_wrong_name_what_is_wrong(functions: Any, message: str):
    with pytest.raises((be_runtime.SpecError, be_runtime.ArgumentError), match=message):
        be_runtime.load_cpp_inline("form_bad", EXAMPLE, functions)
