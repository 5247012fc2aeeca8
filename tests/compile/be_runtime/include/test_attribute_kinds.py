"""Attributes beyond numbers, those that a call leaves out, and arrays that are optional or any number."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import be_runtime
from be_runtime.dtypes import BY_NAME
from tests.support.jax_names import enable_x64
from tests.support.runtime import call

SOURCE = r"""
#include <complex>
#include <optional>
#include <string>
#include <string_view>
#include <string.h>
#include "brainevent/common.h"
#include "brainevent/dispatch.h"

#define T int
#define N 3

template <class Values>
void copy(const Values& values, BE::Tensor& out) {
  BE_CHECK(values.size() * sizeof(*values.data()) == out.nbytes()) << values.size();
  memcpy(out.data_ptr(), values.data(), out.nbytes());
}

// @BE text
void text(std::string_view s, BE::Tensor out) { copy(s, out); }
// @BE owned ret attr.s:string attr.end:string=.
void owned(BE::Tensor out, const std::string& s, std::string end) { copy(s + end, out); }
// @BE of_int8
void of_int8(BE::Tensor out, BE::Span<const int8_t> v) { copy(v, out); }
// @BE of_uint64
void of_uint64(BE::Tensor out, const BE::Span<const unsigned long long>& v) { copy(v, out); }
// @BE of_float32
void of_float32(BE::Tensor out, const BE::Span<float const> v) { copy(v, out); }
// @BE of_float64
void of_float64(BE::Tensor out, BE::Span<const double> v) {
  double* to = out.data_ptr<double>();
  for (double each : v) *to++ = each;
}
// @BE of_bool
void of_bool(BE::Tensor out, BE::Span<const bool> v) { copy(v, out); }
// @BE of_float16 ret attr.v:float16[]
void of_float16(BE::Tensor out, BE::Span<const uint16_t> v) { copy(v, out); }
// @BE of_bfloat16
void of_bfloat16(BE::Tensor out, BE::Span<const BE::bfloat16_t> v) { copy(v, out); }
// @BE of_complex64
void of_complex64(BE::Tensor out, BE::Span<const std::complex<float>> v) { copy(v, out); }
// @BE of_complex128
void of_complex128(BE::Tensor out, BE::Span<const BE::complex128_t> v) { copy(v, out); }

namespace kinds {
enum class Mode : unsigned char { slow = 7, fast = 1, fastest };
enum Plain { kOne = 1, kTwo };
struct Step {
  float rate = 0.5f;
  int n;
  Mode mode{Mode::slow};
  std::string_view name = "step";
  bool last;
  BE::DType type = BE::DType::Float64;
};

// @BE mode
void mode(BE::Tensor out, Mode m, Plain p) {
  out.data_ptr<int32_t>()[0] = static_cast<int>(m);
  out.data_ptr<int32_t>()[1] = p;
}
// @BE step
void step(const Step& s, BE::Tensor out, const Step other) {
  const Step* all[] = {&s, &other};
  for (int i = 0; i < 2; ++i) {
    float* to = out.data_ptr<float>() + 6 * i;
    to[0] = all[i]->rate;
    to[1] = all[i]->n;
    to[2] = static_cast<int>(all[i]->mode);
    to[3] = all[i]->name.size();
    to[4] = all[i]->last;
    to[5] = static_cast<int>(all[i]->type);
  }
}
}  // namespace kinds
struct Defaults {
  double a = 1.5;
  int8_t b = -2;
  std::complex<float> untouched{3, 4};
};
// @BE all_default ret attr.d:{a:float64=1.5 b:int8=-2}
void all_default(BE::Tensor out, Defaults d) {
  double* to = out.data_ptr<double>();
  to[0] = d.a, to[1] = d.b, to[2] = d.untouched.imag();
}
// @BE numbers ret attr.v:{at:int64[] z:complex64}
struct Numbers {
  BE::Span<const int64_t> at;
  std::complex<float> z;
};
void numbers(BE::Tensor out, Numbers v) {
  out.data_ptr<float>()[0] = v.at[v.at.size() - 1];
  out.data_ptr<float>()[1] = v.z.imag();
}
// @BE dtype
void dtype(BE::Tensor out, BE::DType t, BE::DType u = BE::DType::BFloat16) {
  out.data_ptr<int32_t>()[0] = static_cast<int>(BE::dtype_size(t));
  out.data_ptr<int32_t>()[1] = u == BE::DType::BFloat16;
}

// @BE scaled
void scaled(const BE::Tensor x, BE::Tensor out, float alpha = 0.1f, int n = -3, bool flip = true, double beta = 1e300) {
  double* to = out.data_ptr<double>();
  to[0] = alpha, to[1] = n, to[2] = flip, to[3] = beta;
}
// @BE limits
void limits(BE::Tensor out, int64_t a = -9'223'372'036'854'775'807 - 1, uint64_t b = 18446744073709551615u,
            int8_t c = -128) {
  out.data_ptr<double>()[0] = a, out.data_ptr<double>()[1] = b, out.data_ptr<double>()[2] = c;
}
// @BE spelled ret attr.a:int64=-9223372036854775808 attr.b:float16=1.5 attr.c:bfloat16=0.1 attr.d:float32=inf
void spelled(BE::Tensor out, int64_t a, uint16_t b, uint16_t c, float d) {
  double* to = out.data_ptr<double>();
  to[0] = a, to[1] = b, to[2] = c, to[3] = d;
}
// @BE named
void named(BE::Tensor out, kinds::Mode m = kinds::Mode::fast, std::string_view s = "sum") {
  out.data_ptr<int32_t>()[0] = static_cast<int>(m);
  out.data_ptr<int32_t>()[1] = s == "sum";
}

float first(const BE::Tensor* x) { return x == nullptr ? -1 : x->data_ptr<float>()[0]; }
// @BE optional arg? arg arg? ret attr.scale attr.zeta
void optional(std::optional<BE::Tensor> a, const BE::Tensor b, const BE::Tensor* c, BE::Tensor out, float scale = 1,
              int zeta = 0) {
  float* to = out.data_ptr<float>();
  to[0] = first(a ? &*a : nullptr), to[1] = first(&b) * scale, to[2] = first(c), to[3] = zeta;
}
// @BE inferred_optional
void inferred_optional(const std::optional<const BE::Tensor>& a, BE::Tensor out, BE::Tensor const* b) {
  out.data_ptr<float>()[0] = first(a ? &*a : nullptr), out.data_ptr<float>()[1] = first(b);
}
// @BE sums
void sums(const BE::Tensors xs, const BE::Tensor last, BE::Tensors outs, int64_t stream, BE::Tensor count) {
  for (size_t i = 0; i < outs.size(); ++i)
    outs[i].data_ptr<float>()[0] = xs[i].data_ptr<float>()[0] + last.data_ptr<float>()[0];
  count.data_ptr<float>()[0] = xs.size();
}
// @BE mixed arg? arg... arg ret... ret
void mixed(const BE::Tensor* a, const BE::Tensors& many, const BE::Tensor b, BE::Tensors outs, BE::Tensor& out) {
  float* to = out.data_ptr<float>();
  to[0] = first(a), to[1] = many.size(), to[2] = first(&b), to[3] = outs.size();
  for (BE::Tensor& each : outs) each.data_ptr<float>()[0] = 1;
  for (const BE::Tensor& each : many) to[1] += 10 * each.data_ptr<float>()[0];
}
// @BE far arg... ret
void far(const BE::Tensors xs, BE::Tensor out) { out.data_ptr<float>()[0] = xs[3].data_ptr<float>()[0]; }
// @BE shaped arg?[n] arg...[n k] ret...[k] ret[n]
void shaped(std::optional<BE::Tensor>, const BE::Tensors, BE::Tensors, BE::Tensor) {}
"""
HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
"""What makes g++ compile a handler with its entry point, and what keeps it from that."""


@pytest.fixture(scope="module", params=HANDLERS, name="name")
def _name(request: pytest.FixtureRequest) -> str:
    name = f"kinds_{request.param}"
    be_runtime.load_cpp_inline(name, SOURCE, extra_ldflags=HANDLERS[request.param])
    return name


@pytest.fixture(name="kernel")
def _kernel(name: str) -> Generator[Callable[..., Any]]:
    def kernel(function: str, shape: Any, dtype: Any = np.float32, *arrays: Any, **attrs: Any) -> Any:
        struct = jax.ShapeDtypeStruct((shape,), dtype) if isinstance(shape, int) else shape
        return jax.tree.map(np.asarray, call(f"{name}.{function}", struct, *arrays, **attrs))

    with enable_x64(True):
        yield kernel


Kernel = Callable[..., Any]


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


@pytest.mark.parametrize("dtype", ARRAYS)
def test_arrays_of_numbers(kernel: Kernel, dtype: str):
    for values in (ARRAYS[dtype], ARRAYS[dtype].ravel()[:0]):
        carried = values.ravel().view(BY_NAME[dtype].array_type.name)
        assert kernel(f"of_{dtype}", values.size, values.dtype, v=carried).tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("function", "value", "message"),
    [
        ("text", 3, r'takes the attributes \(s="\.\.\."\), but the call passes \(s: int64 3\)'),
        ("text", np.array([1]), r"passes \(s: array of int64\)"),
        ("of_int8", np.int8(3), r"v=np\.array\(\[\.\.\.\], np\.int8\)\), but the call passes \(v: int8 3\)"),
        ("of_int8", np.array([3]), r"\(v=np\.array\(\[\.\.\.\], np\.int8\)\), but the call passes \(v: array of int64"),
        ("of_bool", np.array([3], np.int8), r"np\.bool_\)\.view\(np\.uint8\)\), but"),
        ("of_complex64", np.ones(3, np.float32), r"np\.complex64\)\.view\(np\.float32\)\), but the call passes"),
        ("dtype", np.int32(99), r"t=np\.int32\(an XLA_FFI_DataType\), optional u=.*passes \(t: int32 99\)"),
        ("dtype", "float32", r'passes \(t: string "float32"\)'),
    ],
)  # fmt: skip
def test_a_value_of_another_kind_is_named(kernel: Kernel, function: str, value: Any, message: str):
    name = {"text": "s", "dtype": "t"}.get(function, "v")
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        kernel(function, 1, np.int32, **{name: value})


def test_enumerations_by_name(kernel: Kernel):
    assert kernel("mode", 2, np.int32, m="slow", p="kTwo").tolist() == [7, 2]
    assert kernel("mode", 2, np.int32, m="fastest", p="kOne").tolist() == [2, 1]
    choices = re.escape('m="slow" or "fast" or "fastest", p="kOne" or "kTwo"')
    for wrong in ("quick", "fas", "fast slow", "", "fast\0"):
        with pytest.raises(jax.errors.JaxRuntimeError, match=rf'takes the attributes \({choices}\).*m: string "'):
            kernel("mode", 2, np.int32, m=wrong, p="kOne")


def test_structures_by_the_names_of_their_fields(kernel: Kernel):
    full = {"rate": np.float32(2), "n": 3, "mode": "fast", "name": "four", "last": True, "type": np.int32(11)}
    got = kernel("step", 12, s=full, other={"last": False, "n": np.int8(-1)})
    assert got.tolist() == [2, 3, 1, 4, 1, 1, 0.5, -1, 7, 4, 0, 2]


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"n": 1}, "n: int64 1"),
        ({"n": 1, "last": True, "late": 1}, "last: bool 1, late: int64 1, n: int64 1"),
        ({"n": 2**31, "last": True}, "last: bool 1, n: int64 2147483648"),
        ({"n": 1, "last": True, "mode": "no"}, 'last: bool 1, mode: string "no", n: int64 1'),
    ],
)
def test_fields_that_are_wrong_are_named(kernel: Kernel, fields: dict[str, Any], given: str):
    takes = 's takes the fields (optional rate=np.float32(...), n=np.int32(...), optional mode="slow" or "fast"'
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        kernel("step", 12, s=fields, other={"last": False, "n": 1})
    assert takes in str(caught.value)
    assert f"but the call passes ({given})" in str(caught.value)


def test_a_structure_of_defaults_may_be_left_out(kernel: Kernel):
    assert kernel("all_default", 3, np.float64).tolist() == [1.5, -2, 4]
    assert kernel("all_default", 3, np.float64, d={"b": 5}).tolist() == [1.5, 5, 4]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"d: string"):
        kernel("all_default", 3, np.float64, d="b")


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


def test_defaults_of_the_cpp_signature(kernel: Kernel):
    x = np.ones(1)
    expected = [float(np.float32(0.1)), -3, 1, 1e300]
    assert kernel("scaled", 4, np.float64, x).tolist() == expected
    given = {"alpha": 2.0, "n": 5, "flip": False, "beta": 0.5}
    for index, (name, value) in enumerate(given.items()):
        got = kernel("scaled", 4, np.float64, x, **{name: value})
        assert got.tolist() == [*expected[:index], value, *expected[index + 1 :]]
    assert kernel("scaled", 4, np.float64, x, **given).tolist() == list(given.values())
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"takes the attributes \(optional alpha=np\.float32\(\.\.\.\),"
    ):
        kernel("scaled", 4, np.float64, x, gamma=1.0)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"passes \(n: int64 2147483648\)"):
        kernel("scaled", 4, np.float64, x, n=2**31)


def test_defaults_at_the_limits_of_their_types(kernel: Kernel):
    a = np.int64(-(2**63))
    assert kernel("limits", 3, np.float64, a=a).tolist() == [-(2.0**63), 2.0**64, -128]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes the attributes \(a=np\.int64"):
        kernel("limits", 3, np.float64)  # its default is no literal
    bits = [np.float16(1.5).view(np.uint16), ml_dtypes.bfloat16(0.1).view(np.uint16)]
    assert kernel("spelled", 4, np.float64).tolist() == [-(2.0**63), *bits, np.inf]


def test_names_and_texts_have_defaults(kernel: Kernel):
    assert kernel("named", 2, np.int32).tolist() == [1, 1]
    assert kernel("named", 2, np.int32, m="slow").tolist() == [7, 1]
    assert kernel("named", 2, np.int32, s="").tolist() == [1, 0]


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


def test_an_empty_array_is_not_an_absent_one(kernel: Kernel):
    empty = np.zeros((0,), np.float32)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"takes 2 arguments and 1 result, but the call passes 3 and 1"
    ):
        kernel("optional", 4, np.float32, empty, *one(2, 3), be_present=np.int64(2))
    message = r"takes 3 arguments .* passes 1 and 1; the bits of the attribute be_present say which optional arguments"
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        kernel("optional", 4, np.float32, *one(2))
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"optional zeta=np\.int32\(\.\.\.\), optional be_present=np\.int"
    ):
        kernel("optional", 4, np.float32, *one(2), be_present="a")


def floats(*shapes: tuple[int, ...]) -> list[jax.ShapeDtypeStruct]:
    return [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]


def test_any_number_of_arrays(kernel: Kernel):
    for count in (0, 1, 2, 60):
        *outs, counted = kernel("sums", floats(*[(1,)] * count, (1,)), None, *one(*range(count), 100))
        assert [out.tolist() for out in outs] == [[100 + index] for index in range(count)]
        assert counted.tolist() == [count]
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"takes at least 1 argument and at least 1 result, but .* 0 and 1"
    ):
        kernel("sums", floats((1,)), None)
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"far: array 3 of 2\b"):
        kernel("far", 1, np.float32, *one(1, 2))


def test_optional_arrays_beside_any_number_of_them(kernel: Kernel):
    for present, arrays, expected in [
        (1, (1, 5, 6, 2), [1, 112, 2, 1]),
        (0, (5, 2), [-1, 51, 2, 1]),
        (0, (2,), [-1, 0, 2, 1]),
    ]:
        filled, out = kernel("mixed", floats((1,), (4,)), None, *one(*arrays), be_present=np.int64(present))
        assert out.tolist() == expected
        assert filled.tolist() == [1]
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"takes at least 2 arguments and at least 1 result, but .* 1 and 1"
    ):
        kernel("mixed", floats((4,)), None, *one(1))


def test_a_tensor_that_cannot_be_one_is_named(kernel: Kernel):
    deep = np.zeros((1,) * 9, np.float32)
    with pytest.raises(jax.errors.JaxRuntimeError, match="argument 1 has 9 dimensions"):
        kernel("far", 1, np.float32, *one(1), deep)


@pytest.mark.parametrize(
    ("present", "shapes", "outs", "message"),
    [
        (1, [(2,), (2, 3), (2, 3)], [(3,), (3,), (2,)], ""),
        (0, [(2, 3)], [(2,)], ""),
        (0, [], [(5,)], ""),
        (1, [(2,), (2, 3), (2, 4)], [(3,), (2,)], r"axis k is 3 in argument 1 \(axis 1\) and 4 in argument 2"),
        (1, [(4,), (2, 3)], [(2,)], r"axis n is 4 in argument 0 \(axis 0\) and 2 in argument 1 \(axis 0\)"),
        (0, [(2, 3), (2, 3)], [(3,), (2,), (2,)], r"axis k is 3 in argument 0 \(axis 1\) and 2 in result 1 \(axis 0\)"),
        (0, [(2, 3), (2,)], [(2,)], r"argument 1 has the shape \(2,\), but its axes are declared as \[n k\]"),
    ],
)  # fmt: skip
def test_declared_axes_hold_for_each_array(
    kernel: Kernel, present: int, shapes: list[tuple[int, ...]], outs: list[tuple[int, ...]], message: str
):
    def run() -> None:
        arrays = [np.ones(shape, np.float32) for shape in shapes]
        kernel("shaped", floats(*outs), None, *arrays, be_present=np.int64(present))

    if not message:
        run()
        return
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        run()
