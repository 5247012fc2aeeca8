"""Calls that a handler refuses, accesses that a checked build refuses, and failures inside a kernel."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import cpp_request, file_units, load_options
from tests.compile.be_runtime.include.conftest import KERNELS
from tests.support.jax_names import enable_x64

X, DEEP = np.ones(3, np.float32), np.ones((1,) * 9, np.float32)
GOOD: dict[str, Any] = {"scale": np.float32(2), "times": np.int32(3)}
MessageOf = Callable[..., str]


def like(*shape: int, dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, dtype)


@pytest.fixture
def message_of(call: Callable[..., Any], refused: MessageOf) -> MessageOf:
    """The message of a call that fails; the next good call must work."""

    def message_of(function: str, *args: Any, **attributes: Any) -> str:
        message = refused(function, *args, **attributes)
        np.testing.assert_array_equal(call("add", like(3), X, X, **GOOD), [12, 12, 12])
        return message

    return message_of


def test_wrong_numbers_of_arrays(module: be_runtime.CompiledModule, message_of: MessageOf):
    name = module.name
    takes = "INVALID_ARGUMENT: {}.add: takes 2 arguments and 1 result, but the call passes {} and {}"
    for args in ((), (X,), (X, X, X)):
        assert takes.format(name, len(args), 1) in message_of("add", like(3), *args, **GOOD)
    assert takes.format(name, 2, 2) in message_of("add", (like(3), like(3)), X, X, **GOOD)
    for_effect = jax.ffi.ffi_call(f"{name}.add", (), has_side_effect=True)
    with pytest.raises(jax.errors.JaxRuntimeError, match=takes.format(name, 2, 0)):
        jax.block_until_ready(jax.jit(lambda x: (for_effect(x, x, **GOOD), x))(X))
    source = (KERNELS / "call_errors.cc").read_text()
    be_runtime.load_cpp_inline(f"{name}_const", source.replace("const BE::Tensor x", "BE::Tensor x"), ["copy"])
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes 0 arguments and 2 results, .* is a const missing\?"):
        jax.ffi.ffi_call(f"{name}_const.copy", like(3))(X)


@pytest.mark.parametrize(
    ("place", "elements", "dtypes"),
    [
        ("argument 0", "a float64", ("float64", "float32", "float32")),
        ("argument 1", "an int32", ("float32", "int32", "float32")),
        ("result 0", "a float16", ("float32", "float32", "float16")),
    ],
)
def test_elements_of_another_type_than_the_code_s(message_of: MessageOf, place: str, elements: str, dtypes: Any):
    with enable_x64(True):
        x, y = (np.ones(3, dtype) for dtype in dtypes[:2])
        message = message_of("doubled", like(3, dtype=dtypes[2]), x, y)
    assert f".doubled: {place}: data_ptr<float>() of {elements} tensor" in message
    assert "INVALID_ARGUMENT" in message
    assert "or convert the array (data_ptr() without a type is a void*)" in message


def test_a_vector_of_the_elements(call: Callable[..., Any], message_of: MessageOf):
    x = np.array([5, 6], np.int32)
    np.testing.assert_array_equal(call("pairs", like(2, dtype=np.int32), x), [5, 6])
    assert "pairs: result 0: data_ptr<Point>() of a float32 tensor" in message_of("pairs", like(2), x)


def test_an_array_that_no_tensor_can_be_is_named(message_of: MessageOf):
    """Tokens are all that XLA has beyond the table, apart from integers of one bit, which JAX hands to no call."""
    expected = "0 has 9 dimensions; a BE::Tensor has at most 8"
    assert f"argument {expected}" in message_of("copy", like(1), DEEP)
    assert f"result {expected}" in message_of("copy", like(*DEEP.shape), X[:1])
    token = message_of("copy", like(3), jax.lax.create_token())
    assert "argument 0 is of token, which a BE::Tensor can't hold; cast it to one of bool, " in token
    assert "bfloat16" in token
    assert "float4_e2m1fn" in token
    assert "argument 1 is of token" in message_of("add", like(3), X, jax.lax.create_token(), **GOOD)


@pytest.mark.parametrize(
    ("attrs", "given"),
    [
        ({}, "none"),
        ({"scale": np.float32(2)}, "scale: float32 2"),
        ({**GOOD, "extra": np.int8(-1)}, "extra: int8 -1, scale: float32 2, times: int32 3"),
        ({**GOOD, "scale": 1e300}, "scale: float64 1e+300, times: int32 3"),
        ({**GOOD, "times": 2**31}, "scale: float32 2, times: int64 2147483648"),
        ({**GOOD, "times": np.uint32(2**32 - 1)}, "scale: float32 2, times: uint32 4294967295"),
        ({"scale": 2**24 + 1, "times": 2.5}, "scale: int64 16777217, times: float64 2.5"),
        ({"scale": 5, "times": float("nan")}, "scale: int64 5, times: float64 nan"),
        ({**GOOD, "scale": "five"}, 'scale: string "five", times: int32 3'),
        ({**GOOD, "scale": np.ones(1, np.float32)}, "scale: array of float32, times: int32 3"),
        ({**GOOD, "scale": {"a": np.float32(3)}}, "scale: dictionary, times: int32 3"),
        ({"Scale": np.float32(2), "times": np.int32(3)}, "Scale: float32 2, times: int32 3"),
        ({"scal": np.float32(2), "times": np.int32(3)}, "scal: float32 2, times: int32 3"),
        ({f"a{n}": np.int32(n) for n in range(200)}, "a0: int32 0, a1: int32 1"),
        ({"n" * 5000: np.int32(1)}, "n" * 100 + ": int32 1"),
    ],
    ids=range(15),
)
def test_wrong_attributes_say_what_to_pass(message_of: MessageOf, attrs: dict[str, Any], given: str):
    message = message_of("add", like(3), X, X, **attrs)
    assert "takes the attributes (scale=np.float32(...), times=np.int32(...))" in message
    assert f"but the call passes ({given}" in message


def test_attributes_for_a_function_without_any(message_of: MessageOf):
    message = message_of("copy", like(3), X, n=np.int32(1))
    assert "takes the attributes (none), but the call passes (n: int32 1)" in message


FAILURES = [
    ("INVALID_ARGUMENT", r":\d+: .*x\.size\(0\) == 2.*got 3 the dose 2\.5 float32"),
    ("INVALID_ARGUMENT", r":\d+: check failed: false: 100% of %s and %n"),
    ("INTERNAL", "a runtime error"),
    ("UNKNOWN", "threw a C\\+\\+ exception that is not derived from std::exception"),
    ("INVALID_ARGUMENT", "dimension 7 of a tensor with 1 dimension"),
    ("INTERNAL", "vector"),
    ("INVALID_ARGUMENT", "by hand"),
    ("INTERNAL", "xxxxxxxxxx"),
    ("INTERNAL", "alloc"),
    ("INVALID_ARGUMENT", r"grüß € 😀 \?\?\? \?\? \?\?\?\? \?\?!"),
    ("INTERNAL", "€€€€€"),
]


@pytest.mark.parametrize("how", range(len(FAILURES)))
def test_failures_inside_the_kernel(message_of: MessageOf, how: int):
    kind, text = FAILURES[how]
    message = message_of("fail", like(3), X, how=np.int32(how))
    assert re.search(text, message, re.DOTALL), message
    assert kind in message


def test_a_failure_in_a_loop_ends_the_program_only(call: Callable[..., Any]):
    np.testing.assert_array_equal(call("fail", like(3), X, how=np.int32(-1)), X)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"\.fail: a runtime error"):
        jax.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, x: call("fail", x, x, how=np.int32(2)), x))(
            X[:2]
        ).block_until_ready()
    np.testing.assert_array_equal(call("add", like(3), X, X, **GOOD), [12, 12, 12])
    with pytest.raises(jax.errors.JaxRuntimeError, match="no_such_target"):
        call("no_such_target", like(3), X)


MATRIX = np.arange(6, dtype=np.float32).reshape(2, 3)
ONE = jax.ShapeDtypeStruct((1,), np.float32)


@pytest.fixture(scope="module", name="load")
def _load() -> dict[bool, Any]:
    """The kernels, by whether they are checked."""
    request = cpp_request("at", file_units(KERNELS / "at.cc"), None)
    options = load_options("at", auto_register=False)
    each = {is_checked: request.compile._replace(checked=is_checked) for is_checked in (False, True)}
    return {is_checked: PROCESS.load(request._replace(compile=how), options) for is_checked, how in each.items()}


@pytest.mark.parametrize("is_checked", [False, True])
def test_each_element_is_found_by_indices_of_any_integer_type(load: dict[bool, Any], is_checked: bool):
    module = load[is_checked]
    found = [float(module.element(MATRIX, i=i, j=j, outs=ONE)[0]) for i in range(2) for j in range(3)]
    assert found == MATRIX.ravel().tolist()
    x = jnp.arange(2.0**7 * 3).reshape(2, 2, 2, 2, 2, 2, 2, 3)
    assert module.corners(x, outs=jax.ShapeDtypeStruct((2,), np.float32)).tolist() == [0, x.size - 1]


@pytest.mark.parametrize(
    ("function", "indices", "message"),
    [
        ("element", (2, 0), ":4: at<float>(): index 0 is 2, and axis 0 has 2 elements"),
        ("element", (0, 3), ":4: at<float>(): index 1 is 3, and axis 1 has 3 elements"),
        ("element", (-1, 0), ":4: at<float>(): index 0 is -1, and axis 0 has 2 elements"),
        ("element", (0, 2**62), f":4: at<float>(): index 1 is {2**62}, and axis 1 has 3 elements"),
        ("one_index", (), ":13: at<float>() with 1 indices of a tensor with 2 dimensions"),
        ("wide", (), ":17: at<double>() of a float32 tensor; ask for the type of its elements"),
        ("pairs", (), "at<pairs(BE::Tensor, BE::Tensor)::Pair>() of a float32 tensor; ask for the type of its element"),
        ("pointer", (), ":24: data_ptr<BE::Complex<float>"),
    ],
)
def test_what_is_no_element_is_refused_with_its_line(
    load: dict[bool, Any], function: str, indices: tuple[int, ...], message: str
):
    with enable_x64(), pytest.raises(jax.errors.JaxRuntimeError) as raised:
        load[True][function](MATRIX, outs=ONE, **dict(zip("ij", indices, strict=False)))
    refused = str(raised.value).splitlines()[0]
    assert refused.startswith(f"INVALID_ARGUMENT: at.{function}: argument 0: {KERNELS}/at.cc:")
    assert message in refused
