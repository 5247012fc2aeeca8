"""Attributes beyond numbers, those that a call leaves out, optional arrays, any number of them, declared axes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from be_runtime import CompiledModule
from be_runtime.dtypes import BY_NAME
from tests.support.jax_names import enable_x64

Kernel = Callable[..., Any]


@pytest.fixture(name="kernel")
def _kernel(call: Callable[..., Any]) -> Generator[Kernel]:
    """Call with one result of so many elements, or with some of so many floats."""

    def kernel(function: str, count: Any, dtype: Any = np.float32, *arrays: Any, **attributes: Any) -> Any:
        out = struct(count, dtype) if isinstance(count, int) else [struct(each) for each in count]
        return jax.tree.map(np.asarray, jax.jit(lambda *given: call(function, out, *given, **attributes))(*arrays))

    with enable_x64(True):
        yield kernel


def struct(shape: int | tuple[int, ...], dtype: Any = np.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((shape,) if isinstance(shape, int) else shape, dtype)


def one(*values: float) -> list[np.ndarray]:
    return [np.array([value], np.float32) for value in values]


@pytest.mark.parametrize("text", ["", "fast", "a\0b", "ä→", "x" * 10_000])
def test_texts_of_any_characters(kernel: Kernel, text: str):
    data = text.encode()
    assert kernel("text", len(data), np.uint8, s=text).tobytes() == data
    assert kernel("owned", len(data) + 1, np.uint8, s=text).tobytes() == data + b"."
    assert kernel("owned", len(data), np.uint8, s=text, end="").tobytes() == data


ARRAYS: dict[str, Any] = {
    "int8": np.array([1, -128, 127], np.int8),
    "uint64": np.array([[1, 2], [3, 2**64 - 1]], np.uint64),
    "float32": np.array([0.1, -np.inf], np.float32),
    "float64": np.array(0.1),
    "bool": np.array([True, False, True]),
    "float16": np.array([1.5, -65504], np.float16),
    "bfloat16": np.array([1.5, -3e38], ml_dtypes.bfloat16),
    "complex64": np.array([1 + 2j, -3j], np.complex64),
    "complex128": np.array([1e300 + 2j]),
}


def test_arrays_of_numbers(kernel: Kernel):
    for dtype, array in ARRAYS.items():
        for values in (array, array.ravel()[:0]):
            carried = values.ravel().view(BY_NAME[dtype].array_type.name)
            assert kernel(f"of_{dtype}", values.size, values.dtype, v=carried).tobytes() == values.tobytes(), dtype


CHOICES = 'takes the attributes (m="slow" or "fast" or "fastest", p="kOne" or "kTwo")'
FIELDS = 's takes the fields (optional rate=np.float32(...), n=np.int32(...), optional mode="slow" or "fast"'
OTHER = {"last": False, "n": 1}
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("text", {"s": 3}, 'takes the attributes (s="...")', "s: int64 3)"),
    ("text", {"s": np.array([1])}, 'takes the attributes (s="...")', "s: array of int64)"),
    ("of_int8", {"v": np.int8(3)}, "v=np.array([...], np.int8)", "v: int8 3)"),
    ("of_int8", {"v": np.array([3])}, "v=np.array([...], np.int8)", "v: array of int64"),
    ("of_bool", {"v": np.array([3], np.int8)}, "np.bool_).view(np.uint8))", "v: array of int8"),
    ("of_complex64", {"v": np.ones(3, np.float32)}, "np.complex64).view(np.float32))", "v: array of float32"),
    ("dtype", {"t": np.int32(99)}, "t=np.int32(an XLA_FFI_DataType), optional u=", "t: int32 99)"),
    ("dtype", {"t": "float32"}, "t=np.int32(an XLA_FFI_DataType), optional u=", 't: string "float32")'),
    *(("mode", {"m": m, "p": "kOne"}, CHOICES, 'm: string "') for m in ("quick", "fas", "fast slow", "", "fast\0")),
    ("step", {"s": {"n": 1}, "other": OTHER}, FIELDS, "n: int64 1)"),
    ("step", {"s": {**OTHER, "late": 1}, "other": OTHER}, FIELDS, "last: bool 0, late: int64 1, n: int64 1)"),
    ("step", {"s": {**OTHER, "n": 2**31}, "other": OTHER}, FIELDS, "last: bool 0, n: int64 2147483648)"),
    ("step", {"s": {**OTHER, "mode": "no"}, "other": OTHER}, FIELDS, 'last: bool 0, mode: string "no", n: int64 1)'),
    ("all_default", {"d": "b"}, "(optional d=dict(optional a=np.float64(...), optional b=np.int8(...)))", "d: string"),
    ("scaled", {"gamma": 1.0}, "takes the attributes (optional alpha=np.float32(...),", "gamma: float64 1)"),
    ("scaled", {"n": 2**31}, "takes the attributes (optional alpha=np.float32(...),", "n: int64 2147483648)"),
    ("limits", {}, "takes the attributes (a=np.int64", "none)"),  # its default is no literal
    ("optional", {"be_present": "a"}, "optional zeta=np.int32(...), optional be_present=np.int", "be_present: string"),
]


@pytest.mark.parametrize(("function", "attributes", "takes", "passes"), REFUSED, ids=repr)
def test_a_value_of_another_kind_is_named(
    kernel: Kernel, function: str, attributes: dict[str, Any], takes: str, passes: str
):
    arrays = one(2) if function in ("scaled", "optional") else []
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        kernel(function, 12, np.float32, *arrays, **attributes)
    assert takes in str(caught.value)
    assert f"but the call passes ({passes}" in str(caught.value)


def test_enumerations_by_name_and_structures_by_the_names_of_their_fields(kernel: Kernel):
    assert kernel("mode", 2, np.int32, m="slow", p="kTwo").tolist() == [7, 2]
    assert kernel("mode", 2, np.int32, m="fastest", p="kOne").tolist() == [2, 1]
    full = {"rate": np.float32(2), "n": 3, "mode": "fast", "name": "four", "last": True, "type": np.int32(11)}
    got = kernel("step", 12, s=full, other={"last": False, "n": np.int8(-1)})
    assert got.tolist() == [2, 3, 1, 4, 1, 1, 0.5, -1, 7, 4, 0, 2]
    assert kernel("all_default", 3, np.float64).tolist() == [1.5, -2, 4]
    assert kernel("all_default", 3, np.float64, d={"b": 5}).tolist() == [1.5, 5, 4]


def test_arrays_and_complex_numbers_in_a_structure(kernel: Kernel):
    class Hashable(np.ndarray[Any, Any]):
        """JAX takes no plain array in a dictionary."""

        def __hash__(self) -> int:  # type: ignore[override]
            return hash(self.tobytes())

        def __eq__(self, other: object) -> Any:
            return self is other

    v = {"at": np.array([1, 2, 9]).view(Hashable), "z": np.array([1, 2], np.float32).view(Hashable)}
    assert kernel("numbers", 2, v=v).tolist() == [9, 2]


def test_dtypes_by_xla_s_number(kernel: Kernel):
    for name, row in BY_NAME.items():
        got = kernel("dtype", 2, np.int32, t=np.int32(row.xla_code), u=row.xla_code)
        assert got.tolist() == [row.size_bytes, name == "bfloat16"]
    assert kernel("dtype", 2, np.int32, t=np.int32(11)).tolist() == [4, 1]


def test_every_integer_of_64_bits_reaches_the_kernel(module: CompiledModule):
    for value in (1, 2**63 - 1, 2**63, 2**64 - 1):
        runs = (module.halves, jax.jit(module.halves, static_argnames="of"))
        found = [*(run(of=value).tolist() for run in runs), module.halves_of(o={"k": value}).tolist()]
        assert found == [[value >> 32, value & 0xFFFFFFFF]] * 3


def test_defaults_of_the_cpp_signature(kernel: Kernel):
    x = np.ones(1)
    expected = {"alpha": float(np.float32(0.1)), "n": -3, "flip": 1, "beta": 1e300}
    given = {"alpha": 2.0, "n": 5, "flip": False, "beta": 0.5}
    for chosen in ({}, *({name: value} for name, value in given.items()), given):
        got = kernel("scaled", 4, np.float64, x, **chosen).tolist()
        assert got == list({**expected, **chosen}.values())
    assert kernel("limits", 3, np.float64, a=np.int64(-(2**63))).tolist() == [-(2.0**63), 2.0**64, -128]
    bits = [np.float16(1.5).view(np.uint16), ml_dtypes.bfloat16(0.1).view(np.uint16)]
    assert kernel("spelled", 4, np.float64).tolist() == [-(2.0**63), *bits, np.inf]
    for names, found in (({}, [1, 1]), ({"m": "slow"}, [7, 1]), ({"s": ""}, [1, 0])):
        assert kernel("named", 2, np.int32, **names).tolist() == found


@pytest.mark.parametrize(("present", "arrays", "expected"), [
    (None, (1, 2, 3), [1, 2, 3]),
    (3, (1, 2, 3), [1, 2, 3]),
    (1, (1, 2), [1, 2, -1]),
    (2, (2, 3), [-1, 2, 3]),
    (0, (2,), [-1, 2, -1]),
])  # fmt: skip
def test_optional_arrays(kernel: Kernel, present: int | None, arrays: tuple[float, ...], expected: list[float]):
    given = {} if present is None else {"be_present": np.int64(present)}
    assert kernel("optional", 4, np.float32, *one(*arrays), **given).tolist() == [*expected, 0]
    got = kernel("optional", 4, np.float32, *one(*arrays), scale=2.0, zeta=1, **given).tolist()
    assert got == [expected[0], 2 * expected[1], expected[2], 1]
    inferred = [value for value in expected if value != 2 and value >= 0]
    got = kernel("inferred_optional", 2, np.float32, *one(*inferred), **given).tolist()
    assert got == [expected[0], expected[2]]


def test_any_number_of_arrays_also_beside_optional_ones(kernel: Kernel):
    for count in (0, 1, 2, 60):
        *outs, counted = kernel("sums", [1] * (count + 1), None, *one(*range(count), 100))
        assert [out.tolist() for out in (*outs, counted)] == [*([100 + index] for index in range(count)), [count]]
    for present, arrays, expected in (
        (1, (1, 5, 6, 2), [1, 112, 2, 1]),
        (0, (5, 2), [-1, 51, 2, 1]),
        (0, (2,), [-1, 0, 2, 1]),
    ):
        filled, out = kernel("mixed", [1, 4], None, *one(*arrays), be_present=np.int64(present))
        assert (out.tolist(), filled.tolist()) == (expected, [1])


@pytest.mark.parametrize(
    ("function", "count", "arrays", "attributes", "message"),
    [
        ("sums", [1], [], {}, "takes at least 1 argument and at least 1 result, but .* 0 and 1"),
        ("mixed", [4], one(1), {}, "takes at least 2 arguments and at least 1 result, but .* 1 and 1"),
        ("far", 1, one(1, 2), {}, r"far: array 3 of 2\b"),
        ("far", 1, [*one(1), np.zeros((1,) * 9, np.float32)], {}, "argument 1 has 9 dimensions"),
        (
            *("optional", 4, [np.zeros(0, np.float32), *one(2, 3)], {"be_present": np.int64(2)}),
            "takes 2 arguments and 1 result, but the call passes 3 and 1",  # an empty array is not an absent one
        ),
        (
            *("optional", 4, one(2), {}),
            "takes 3 arguments .* passes 1 and 1; the bits of the attribute be_present mark the optional arguments",
        ),
    ],
)
def test_wrong_numbers_of_arrays_are_told(
    kernel: Kernel, function: str, count: Any, arrays: list[Any], attributes: dict[str, Any], message: str
):
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        kernel(function, count, np.float32, *arrays, **attributes)


@pytest.mark.parametrize(
    ("present", "shapes", "outs", "message"),
    [
        (1, [(2,), (2, 3), (2, 3)], [3, 3, 2], None),
        (0, [(2, 3)], [2], None),
        (0, [], [5], None),
        (1, [(2,), (2, 3), (2, 4)], [3, 2], r"axis k is 3 in argument 1 \(axis 1\) and 4 in argument 2"),
        (1, [(4,), (2, 3)], [2], r"axis n is 4 in argument 0 \(axis 0\) and 2 in argument 1 \(axis 0\)"),
        (0, [(2, 3), (2, 3)], [3, 2, 2], r"axis k is 3 in argument 0 \(axis 1\) and 2 in result 1 \(axis 0\)"),
        (0, [(2, 3), (2,)], [2], r"argument 1 has the shape \(2,\), but its axes are declared as \[n k\]"),
    ],
)
def test_declared_axes_hold_for_each_array(kernel: Kernel, present: int, shapes: Any, outs: Any, message: str | None):
    expected = pytest.raises(jax.errors.JaxRuntimeError, match=message) if message else contextlib.nullcontext()
    with expected:
        kernel("shaped", outs, None, *(np.ones(shape, np.float32) for shape in shapes), be_present=np.int64(present))


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


def test_arrays_as_declared(call: Kernel):
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


def test_a_batch_is_right_or_refused(call: Kernel):
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


def test_computed_axes_are_checked(call: Kernel, refused: Callable[..., str]):
    assert call("halves_in_pairs", ones(2, 2), ones(4))[0, 0] == 4
    assert r"[n/2 2], which makes axis 0 2, and it is 3 in result 0" in refused("halves_in_pairs", ones(3, 2), ones(4))
    assert call("bins", ones(3, 1), ones(4), count=np.int32(3)).shape == (3, 1)
    for shape, count in (((3, 2), 3), ((2, 1), 3), ((1, 1), 0)):
        assert "its axes are declared as" in refused("bins", ones(*shape), ones(4), count=np.int32(count))
