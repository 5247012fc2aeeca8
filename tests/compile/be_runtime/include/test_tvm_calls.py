"""Functions of a module, called by TVM-FFI: values, and an error for each argument that is not as declared."""

from __future__ import annotations

import ctypes
import importlib.util
import resource
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from be_runtime import CompiledModule
from tests.support.requirements import OPTIONAL

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("tvm_ffi") is None, reason=f"{OPTIONAL}apache-tvm-ffi, which calls the functions"
)
X, ONES = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
Function = Callable[..., Any]


@pytest.fixture(name="tvm")
def _tvm(module: CompiledModule) -> Function:
    """Call a function of the module with NumPy arrays."""
    import tvm_ffi

    loaded = tvm_ffi.load_module(str(module.path))

    def call(name: str, *args: Any) -> Any:
        taken = (tvm_ffi.from_dlpack(arg) if isinstance(arg, np.ndarray) else arg for arg in args)
        return loaded.get_function(name)(*taken)

    return call


def made(tvm: Function, name: str, shape: tuple[int, ...], dtype: Any, *args: Any, at: int) -> np.ndarray:
    """Call a function with a new result at a position among the arguments."""
    out = np.zeros(shape, dtype)
    assert tvm(name, *args[:at], out, *args[at:]) is None
    return out


def test_arrays_and_numbers(tvm: Function):
    assert made(tvm, "scaled", (4,), np.float32, X, ONES, 2.0, at=2).tolist() == [2, 3, 4, 5]
    assert made(tvm, "scaled", (4,), np.float32, X, ONES, 3, at=2).tolist() == [3, 4, 5, 6]
    assert made(tvm, "scaled", (4,), np.float32, X, ONES, at=2).tolist() == [1, 2, 3, 4]
    assert made(tvm, "scaled", (4,), np.float32, X, ONES, None, at=2).tolist() == [1, 2, 3, 4]
    assert made(tvm, "scaled", (0,), np.float32, X[:0], ONES[:0], at=2).size == 0
    rows = np.arange(6, dtype=np.int16).reshape(2, 3)
    assert made(tvm, "last", (1,), np.int64, 7, True, rows, 2, at=1).tolist() == [5217]


@pytest.mark.parametrize("text", ["", "short", "a longer text", "a\0b", "ä→" * 9])
def test_texts(tvm: Function, text: str):
    data = text.encode()
    assert made(tvm, "text", (len(data),), np.uint8, text, at=1).tobytes() == data


def test_attributes_of_other_kinds(tvm: Function):
    import tvm_ffi

    assert [made(tvm, "mode", (1,), np.int32, *mode, at=1).item() for mode in (["slow"], ["fast"])] == [3, 7]
    assert made(tvm, "mode", (1,), np.int32, None, at=1).item() == 7
    numbers, z = np.array([1.5, 2.5, 4]), np.array([1 - 2j], np.complex64)
    of_bool = tvm_ffi.dtype("bool")
    assert made(tvm, "sum", (4,), np.float64, numbers, None, z, at=3).tolist() == [8, 4, 1, -2]
    assert made(tvm, "sum", (4,), np.float64, numbers, of_bool, z, at=3).tolist() == [8, 12, 1, -2]
    bits = int(np.float16(1.5).view(np.uint16))
    assert made(tvm, "halves", (1,), np.uint16, bits, at=1).item() == bits


def test_arrays_that_may_be_absent(tvm: Function):
    assert made(tvm, "some", (4,), np.float32, X, ONES, None, at=3).tolist() == [0, 2, 4, 6]
    tripled = np.zeros(4, np.float32)
    assert made(tvm, "some", (4,), np.float32, None, ONES, tripled, at=3).tolist() == [2, 2, 2, 2]
    assert tripled.tolist() == [3, 3, 3, 3]


def test_memory(tvm: Function):
    x, bytes_of_scratch = X.copy(), np.zeros(16, np.uint8)
    zeros = np.ones((2, 4), np.float32)
    tvm("add_to", x, 1.5, bytes_of_scratch, zeros)
    assert x.tolist() == [1.5, 2.5, 3.5, 4.5]
    assert not zeros.any()
    tvm("add_to", x, np.array(0.5, np.float32), bytes_of_scratch, zeros)
    assert x.tolist() == [2, 3, 4, 5]
    with pytest.raises(ValueError, match="axes are declared as"):
        tvm("add_to", x, 1.5, bytes_of_scratch[:8], zeros)
    assert made(tvm, "asked", (5000,), np.int64, np.arange(5000), at=1).tolist() == list(range(4999, -1, -1))


MISALIGNED = np.frombuffer(bytearray(64), np.float32)[1:5]
WRONG: list[tuple[str, list[Any], type[Exception], str]] = [
    ("scaled", [], TypeError, r"scaled: argument 0 \(a\) is None, not a tensor"),
    ("scaled", [X, ONES], TypeError, r"argument 2 \(out\) is None, not a tensor"),
    ("scaled", [X, ONES, X, 1, 1], TypeError, r"takes 4 arguments \(a b out by\), not 5"),
    ("scaled", [X, 1, X], TypeError, r"argument 1 \(b\) is an integer, not a tensor"),
    ("scaled", [X, ONES, X, "2"], TypeError, r"argument 3 \(by\) is a string, not a number"),
    ("scaled", [X, ONES, X, X], TypeError, r"argument 3 \(by\) is a tensor, not a number"),
    ("scaled", [X, ONES, X, [2]], TypeError, r"argument 3 \(by\) is something else, not a number"),
    ("scaled", [X.astype(np.int32), ONES, X], TypeError, r"argument 0 \(a\) is of int32, but float32 is declared"),
    ("scaled", [X, X.astype(np.float64), X], ValueError, "argument 1: data_ptr<float>() of a float64 tensor"),
    ("scaled", [X, ONES[:3], X], ValueError, "axis n is 4 in argument 0 (axis 0) and 3 in argument 1 (axis 0)"),
    ("scaled", [X.reshape(2, 2), ONES, X], ValueError, r"argument 0 has the shape \(2, 2\), but its axes are"),
    (
        "scaled",
        [np.ones(8, np.float32)[::2], ONES, X],
        TypeError,
        "not contiguous: the stride of axis 0 is 2, not 1",
    ),
    ("scaled", [np.ones((1,) * 9, np.float32), ONES, X], TypeError, "has 9 dimensions; a BE::Tensor has at most 8"),
    ("scaled", [MISALIGNED, ONES, X], TypeError, "not a multiple of 16"),
    ("last", [1.5, ONES, True, ONES, 1], TypeError, r"argument 1 \(out\) is of float32, but int64 is declared"),
    ("last", [1.5, np.zeros(1, np.int64), True, np.ones((1, 1), np.int16), 1], ValueError, "first: float64 1.5"),
    ("last", [1, np.zeros(1, np.int64), True, np.ones((1, 1), np.int16), 300], ValueError, "count: int64 300"),
    ("last", [1, np.zeros(1, np.int64), None, np.ones((1, 1), np.int16), 3], TypeError, r"\(flag\) is missing"),
    ("text", [1, np.zeros(1, np.uint8)], TypeError, r"argument 0 \(s\) is an integer, not a string"),
    ("mode", ["quick", np.zeros(1, np.int32)], ValueError, 'mode="slow" or "fast"'),
    ("sum", [ONES, None, ONES, ONES], TypeError, r"argument 3 \(out\) is of float32, but float64 is declared"),
    ("sum", [ONES, None, ONES, np.ones(4)], TypeError, r"argument 0 \(values\) is of float32, but float64 is declared"),
    ("sum", [1.5, None, ONES, np.ones(4)], TypeError, "is a float, not a tensor on the CPU"),
    ("sum", [np.ones(2), 3, ONES, np.ones(4)], TypeError, r"argument 1 \(type\) is an integer, not an element type"),
    ("sum", [np.ones(2), None, np.ones(2, np.complex64), np.ones(4)], ValueError, "z="),
    ("some", [None, None, None, X], TypeError, r"argument 1 \(b\) is None, not a tensor"),
    ("add_to", [X, "1", X, X], TypeError, r"argument 1 \(by\) is a string, neither a number nor a tensor"),
    ("halves", [1.5, np.zeros(1, np.uint16)], TypeError, "is a float; pass the bits of the float16 as an integer"),
    ("throws", [0, X], ValueError, "throws: .*it is 0"),
    ("throws", [1, X], RuntimeError, "throws: no luck"),
    ("throws", [2, X], RuntimeError, "not derived from std::exception"),
    ("point", [1, np.zeros(1, np.int32)], TypeError, "is an attribute with fields, which only calls from JAX can pass"),
    ("many", [X, X], TypeError, "many: has any number of arrays, so that only JAX can call it"),
]


@pytest.mark.parametrize(
    ("name", "args", "kind", "message"), WRONG, ids=lambda each: each if isinstance(each, str) else ""
)
def test_arguments_that_are_not_as_declared(
    tvm: Function, name: str, args: list[Any], kind: type[Exception], message: str
):
    pattern = message if "\\" in message or ".*" in message else message.replace("(", r"\(").replace(")", r"\)")
    with pytest.raises(kind, match=pattern):
        tvm(name, *args)


def test_elements_that_a_tensor_cannot_hold(module: CompiledModule):
    import tvm_ffi

    f = tvm_ffi.load_module(str(module.path)).get_function("asked")
    packed = tvm_ffi.from_dlpack(np.zeros(4, np.uint8))
    with pytest.raises(TypeError, match="argument 1"):
        f(packed, None)
    of_float8 = np.zeros(4, ml_dtypes.float8_e5m2).view(np.uint8)
    with pytest.raises(ValueError, match="of a uint8 tensor"):
        f(tvm_ffi.from_dlpack(of_float8), packed)


@pytest.mark.parametrize(
    ("has_memory", "code", "bits", "lanes", "message"),
    [(True, 0, 0, 0, b"DLPack's type 0 of 0 bits, 0 lanes"), (False, 2, 32, 1, b"has no memory")],
)
def test_headers_that_no_framework_makes(
    module: CompiledModule, has_memory: bool, code: int, bits: int, lanes: int, message: bytes
):
    data, shape, text = np.zeros(4), np.array([4]), ctypes.create_string_buffer(2048)
    address = data.ctypes.data if has_memory else 0
    tensor = struct.pack("<QiiiBBHQQQ", address, 1, 0, 1, code, bits, lanes, shape.ctypes.data, 0, 16)
    kept = ctypes.create_string_buffer(tensor)
    args = struct.pack("<iIQ", 7, 0, ctypes.addressof(kept)) * 2
    result = ctypes.create_string_buffer(struct.pack("<iIQ", -16962, 0, ctypes.addressof(text)))
    function = getattr(ctypes.CDLL(str(module.path)), "__tvm_ffi_asked")
    assert function(None, args, 2, result) == -1
    assert message in text.value


def test_many_calls_and_errors_keep_no_memory(module: CompiledModule):
    import tvm_ffi

    f = tvm_ffi.load_module(str(module.path)).get_function("scaled")
    args = [tvm_ffi.from_dlpack(each.copy()) for each in (X, ONES, X)]
    wrong = [args[0], tvm_ffi.from_dlpack(ONES[:2].copy()), args[2]]

    def run(count: int) -> int:
        for number in range(count):
            f(*args, 2.0)
            if number % 10 == 0:
                with pytest.raises(ValueError, match="axis n"):
                    f(*wrong, 2.0)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    before = run(10_000)
    assert run(100_000) - before < 4096


def test_no_name_of_tvm_is_needed(module: CompiledModule):
    from be_runtime import inspection

    names = inspection.symbols(module.path.read_bytes())
    assert b"__tvm_ffi_scaled" in {each.name for each in names if each.is_defined}
    assert not [each.name for each in names if b"TVM" in each.name and not each.is_defined]
