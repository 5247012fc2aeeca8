"""A call that is wrong, or a kernel that fails, is an XLA error that names the function; the next call works."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import be_runtime
from tests.support.jax_names import enable_x64
from tests.support.runtime import call

SOURCE = r"""
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>
#include "brainevent/common.h"

struct Point { int x, y; };
std::ostream& operator<<(std::ostream& out, const Point& p) { return out << '<' << p.x << '|' << p.y << '>'; }

// @BE add arg arg ret attr.scale:float32 attr.times:int32
void add(const BE::Tensor a, const BE::Tensor b, BE::Tensor out, float scale, int32_t times) {
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = (a.data_ptr<float>()[i] + b.data_ptr<float>()[i]) * scale * times;
}

// @BE copy arg ret
void copy(const BE::Tensor x, BE::Tensor out) {
  for (size_t i = 0; i < x.nbytes(); ++i) out.data_ptr<char>()[i] = x.data_ptr<char>()[i];
}

// @BE doubled
void doubled(const BE::Tensor x, const BE::Tensor y, BE::Tensor out) {
  for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + y.data_ptr<float>()[i];
}

// @BE pairs
void pairs(const BE::Tensor x, BE::Tensor out) {
  const Point* from = static_cast<const Point*>(x.data_ptr());
  out.data_ptr<Point>()[0] = Point{from->x, x.data_ptr<Point>()->y};
}

// Fails in the way that the number says.
// @BE fail
void fail(const BE::Tensor x, BE::Tensor out, int how) {
  std::string name = "the dose";
  if (how == 0) BE_CHECK(x.size(0) == 2) << "got " << x.size(0) << ' ' << name << ' ' << 2.5f << ' ' << x.dtype();
  if (how == 1) BE_CHECK(how == 0);
  if (how == 2) throw std::runtime_error("a runtime error");
  if (how == 3) throw 42;
  if (how == 4) x.size(7);
  if (how == 5) std::vector<int>().at(3);
  if (how == 6) throw BE::CheckError("by hand");
  if (how == 7) throw std::runtime_error(std::string(100000, 'x'));
  if (how == 8) BE_CHECK(false) << "100% of %s and %n";
  if (how == 9) BE_CHECK(false) << Point{3, 4};
  if (how == 10) BE_CHECK(false) << "\xff\xfe not UTF-8";
  if (how == 11) throw std::string("a string");
  if (how == 12) { volatile size_t huge = size_t(1) << 60; std::vector<char> room(huge); }
  if (how == 13)
    BE_CHECK(false) << "gr\xc3\xbc\xc3\x9f " << "\xe2\x82\xac " << "\xf0\x9f\x98\x80 "
                    << "\xed\xa0\x80 \xc0\x80 \xf4\x90\x80\x80!";
  if (how == 14) {
    std::string euros;
    while (euros.size() < 5000) euros += "\xe2\x82\xac";
    throw std::runtime_error(euros);
  }
  for (int64_t i = 0; i < out.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i];
}
"""

VECTOR = jax.ShapeDtypeStruct((3,), np.float32)
X = np.ones(3, np.float32)
GOOD: dict[str, Any] = {"scale": np.float32(2), "times": np.int32(3)}


TABLE = "// g++ isn't told that a source which speaks of visibility is the whole program"
"""Makes all calls go through the handler that is the same for all modules."""


@pytest.fixture(scope="module", params=["wrong", "table"])
def name(request: pytest.FixtureRequest) -> str:
    """The module's, once with handlers that are compiled with their entry points and once with the common one."""
    name = str(request.param)
    module = be_runtime.load_cpp_inline(name, SOURCE + (TABLE if name == "table" else ""))
    log = (module.path.parent / "build.log").read_text()
    assert name != "table" or "-fwhole-program" not in log
    return name


MessageOf = Callable[..., str]


@pytest.fixture
def message_of(name: str) -> MessageOf:
    """The message of a call that fails; the next good call must work."""

    def message_of(target: str, out: Any, *args: Any, **attrs: Any) -> str:
        with pytest.raises(jax.errors.JaxRuntimeError) as caught:
            jax.block_until_ready(call(f"{name}.{target}", out, *args, **attrs))
        np.testing.assert_array_equal(call(f"{name}.add", VECTOR, X, X, **GOOD), [12, 12, 12])
        message = str(caught.value)
        assert f"{name}.{target}: " in message
        return message

    return message_of


@pytest.mark.parametrize("args", [(), (X,), (X, X, X)], ids=len)
def test_wrong_number_of_arguments(message_of: MessageOf, args: tuple[Any, ...]):
    message = message_of("add", VECTOR, *args, **GOOD)
    assert f"takes 2 arguments and 1 results, but the call passes {len(args)} and 1" in message
    assert "INVALID_ARGUMENT" in message


@pytest.mark.parametrize(
    ("place", "dtypes"),
    [
        ("argument 0", ("float64", "float32", "float32")),
        ("argument 1", ("float32", "int32", "float32")),
        ("result 0", ("float32", "float32", "float16")),
    ],
)
def test_elements_of_another_type_than_the_code_s(message_of: MessageOf, place: str, dtypes: tuple[str, str, str]):
    wrong = next(dtype for dtype in dtypes if dtype != "float32")
    elements = f"an {wrong}" if wrong == "int32" else f"a {wrong}"
    with enable_x64(True):
        x, y = (np.ones(3, dtype) for dtype in dtypes[:2])
        message = message_of("doubled", jax.ShapeDtypeStruct((3,), dtypes[2]), x, y)
    assert f".doubled: {place}: data_ptr<float>() of {elements} tensor" in message
    assert "INVALID_ARGUMENT" in message
    assert "or convert the array (data_ptr() without a type is a void*)" in message


def test_a_vector_of_the_elements(name: str, message_of: MessageOf):
    out = jax.ShapeDtypeStruct((2,), np.int32)
    np.testing.assert_array_equal(call(f"{name}.pairs", out, np.array([5, 6], np.int32)), [5, 6])
    message = message_of("pairs", jax.ShapeDtypeStruct((2,), np.float32), np.array([5, 6], np.int32))
    assert "pairs: result 0: data_ptr<Point>() of a float32 tensor" in message


def test_too_many_results(message_of: MessageOf):
    message = message_of("add", (VECTOR, VECTOR), X, X, **GOOD)
    assert "takes 2 arguments and 1 results, but the call passes 2 and 2" in message


def test_a_const_that_is_missing(name: str):
    be_runtime.load_cpp_inline(f"{name}_const", SOURCE.replace("const BE::Tensor x", "BE::Tensor x"), ["copy"])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes 0 arguments and 2 results, .* is a const missing\?"):
        call(f"{name}_const.copy", VECTOR, X)


def test_too_few_results(name: str):
    call_for_effect = jax.ffi.ffi_call(f"{name}.add", (), has_side_effect=True)
    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"{name}\.add: takes .* 1 results, .* passes 2 and 0"):
        jax.block_until_ready(jax.jit(lambda x: (call_for_effect(x, x, **GOOD), x))(X))


@pytest.mark.parametrize("rank", [9, 12])
def test_too_many_dimensions(message_of: MessageOf, rank: int):
    small, large = jax.ShapeDtypeStruct((1,), np.float32), jax.ShapeDtypeStruct((1,) * rank, np.float32)
    one = np.ones((1,) * rank, np.float32)
    expected = f"0 has {rank} dimensions; a BE::Tensor has at most 8"
    assert f"argument {expected}" in message_of("copy", small, one)
    assert f"result {expected}" in message_of("copy", large, np.ones(1, np.float32))


def test_a_token_is_no_tensor(message_of: MessageOf):
    """All that XLA has beyond the table, apart from integers of one bit, which JAX hands to no call."""
    message = message_of("copy", VECTOR, jax.lax.create_token())
    assert "argument 0 is of token, which a BE::Tensor can't hold; cast it to one of bool, " in message
    assert "bfloat16" in message
    assert "float4_e2m1fn" in message


def test_the_bad_one_of_several_arguments_is_named(message_of: MessageOf):
    message = message_of("add", VECTOR, X, jax.lax.create_token(), **GOOD)
    assert "argument 1 is of token" in message


@pytest.mark.parametrize(
    ("attrs", "given"),
    [
        ({}, "none"),
        ({"scale": np.float32(2)}, "scale: float32 2"),
        ({**GOOD, "extra": np.int8(-1)}, "extra: int8 -1, scale: float32 2, times: int32 3"),
        ({"scale": 1e300, "times": np.int32(3)}, "scale: float64 1e+300, times: int32 3"),
        ({"scale": np.float32(2), "times": 2**31}, "scale: float32 2, times: int64 2147483648"),
        ({"scale": np.float32(2), "times": np.uint32(2**32 - 1)}, "scale: float32 2, times: uint32 4294967295"),
        ({"scale": 2**24 + 1, "times": 2.5}, "scale: int64 16777217, times: float64 2.5"),
        ({"scale": 5, "times": float("nan")}, "scale: int64 5, times: float64 nan"),
        ({"scale": "five", "times": np.int32(3)}, 'scale: string "five", times: int32 3'),
        ({"scale": np.ones(1, np.float32), "times": np.int32(3)}, "scale: array of float32, times: int32 3"),
        ({"scale": {"a": np.float32(3)}, "times": np.int32(3)}, "scale: dictionary, times: int32 3"),
        ({"Scale": np.float32(2), "times": np.int32(3)}, "Scale: float32 2, times: int32 3"),
        ({"scal": np.float32(2), "times": np.int32(3)}, "scal: float32 2, times: int32 3"),
        ({f"a{n}": np.int32(n) for n in range(200)}, "a0: int32 0, a1: int32 1"),
        ({"n" * 5000: np.int32(1)}, "n" * 100 + ": int32 1"),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 60 else None,
)
def test_wrong_attributes_say_what_to_pass(message_of: MessageOf, attrs: dict[str, Any], given: str):
    message = message_of("add", VECTOR, X, X, **attrs)
    assert "takes the attributes (scale=np.float32(...), times=np.int32(...))" in message
    assert f"but the call passes ({given}" in message


def test_attributes_for_a_function_without_any(message_of: MessageOf):
    message = message_of("copy", VECTOR, X, n=np.int32(1))
    assert "takes the attributes (none), but the call passes (n: int32 1)" in message


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        (0, "INVALID_ARGUMENT", r":\d+: .*x\.size\(0\) == 2.*got 3 the dose 2\.5 float32"),
        (1, "INVALID_ARGUMENT", r":\d+: .*how == 0"),
        (2, "INTERNAL", "a runtime error"),
        (3, "UNKNOWN", "threw a C\\+\\+ exception that is not derived from std::exception"),
        (4, "INVALID_ARGUMENT", "dimension 7 of a tensor with 1 dimensions"),
        (5, "INTERNAL", "vector"),
        (6, "INVALID_ARGUMENT", "by hand"),
        (7, "INTERNAL", "xxxxxxxxxx"),
        (8, "INVALID_ARGUMENT", "100% of %s and %n"),
        (9, "INVALID_ARGUMENT", "<3\\|4>"),
        (10, "INVALID_ARGUMENT", r"\?\? not UTF-8"),
        (11, "UNKNOWN", "not derived from std::exception"),
        (12, "INTERNAL", "alloc"),
        (13, "INVALID_ARGUMENT", r"grüß € 😀 \?\?\? \?\? \?\?\?\?!"),
        (14, "INTERNAL", "€€€€€"),
    ],
)
def test_failures_inside_the_kernel(message_of: MessageOf, how: int, kind: str, text: str):
    message = message_of("fail", VECTOR, X, how=np.int32(how))
    assert re.search(text, message, re.DOTALL), message
    assert kind in message


def test_the_line_of_a_check_is_the_user_s(message_of: MessageOf, name: str):
    line = SOURCE[: SOURCE.index("if (how == 1)")].count("\n") + 1
    assert f"{name}:{line}: " in message_of("fail", VECTOR, X, how=np.int32(1))


def test_a_kernel_that_does_not_fail(name: str):
    np.testing.assert_array_equal(call(f"{name}.fail", VECTOR, X, how=np.int32(-1)), X)


def test_a_failure_in_a_loop_ends_the_program_only(name: str):
    out = jax.ShapeDtypeStruct((2,), np.float32)

    def body(_: Any, x: Any) -> Any:
        return jax.ffi.ffi_call(f"{name}.fail", out)(x, how=np.int32(2))

    with pytest.raises(jax.errors.JaxRuntimeError, match=rf"{name}\.fail: a runtime error"):
        jax.jit(lambda x: jax.lax.fori_loop(0, 5, body, x))(X[:2]).block_until_ready()
    np.testing.assert_array_equal(call(f"{name}.add", VECTOR, X, X, **GOOD), [12, 12, 12])


def test_a_target_that_does_not_exist(name: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_target"):
        call(f"{name}.no_such_target", VECTOR, X)
