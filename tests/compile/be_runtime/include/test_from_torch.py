"""Sources in the style of PyTorch on the CPU: right numbers, and errors that say what to do."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from tests.support.runtime import call

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wsign-conversion", "-Werror"]
TORCH: Any = {"extra_cflags": STRICT}
SOURCE = """
#include <torch/extension.h>

// @BE scale
void scale(const at::Tensor x, torch::Tensor y, double factor) {
  TORCH_CHECK(x.dim() == 2, "x has ", x.dim(), std::string(" dimensions"));
  TORCH_CHECK(x.contiguous().is_cpu());
  AT_DISPATCH_ALL_TYPES_AND2(at::ScalarType::Half, at::kBFloat16, x.scalar_type(), "scale", ([&] {
    const auto in = x.accessor<scalar_t, 2>();
    for (int64_t i = 0; i < x.size(0); ++i)
      for (int64_t j = 0; j < x.size(-1); ++j)
        y.data_ptr<scalar_t>()[i * y.stride(0) + j] = static_cast<scalar_t>(in[i][j] * static_cast<scalar_t>(factor));
  }));
}

// @BE square
void square(const at::Tensor& x, at::Tensor y) {
  using T = c10::complex<float>;
  const T* from = x.const_data_ptr<T>();
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<T>()[i] = std::conj(from[i]) * from[i] + 1.0f;
}

// @BE shaped
void shaped(const at::Tensor x, at::Tensor y) {
  TORCH_CHECK(x.sizes() == torch::IntArrayRef({2, 3}) && y.sizes() != torch::IntArrayRef({2, 3}), "shapes");
  TORCH_CHECK(x.scalar_type() == torch::kFloat32);
  *y.data_ptr<float>() = 1;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("shaped", &shaped, "a binding of PyTorch"); }
TORCH_LIBRARY(ours, m) { m.def("shaped(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(ours, CPU, m) { m.impl("shaped", &shaped); }

// @BE wrong
void wrong(const at::Tensor x, at::Tensor y) { y.data_ptr<float>()[0] = *x.data_ptr<float>(); }

// @BE half_rules
void half_rules(const at::Tensor x, at::Tensor y) {
  AT_DISPATCH_REDUCED_FLOATING_TYPES(x.scalar_type(), "half_rules", [&] {
    const scalar_t one = x.data_ptr<scalar_t>()[0];
    static_assert(std::is_same_v<decltype(one + one), scalar_t>);
    static_assert(std::is_same_v<decltype(one * 2), scalar_t>);
    static_assert(std::is_same_v<decltype(2.0f * one), float>);
    static_assert(std::is_same_v<decltype(one / 2.0), double>);
    scalar_t sum = 0;
    sum += one;
    sum -= 3 * one;
    y.data_ptr<float>()[0] = -sum < one ? 0.0f : static_cast<float>(-sum);
    y.data_ptr<float>()[1] = static_cast<float>(std::numeric_limits<scalar_t>::max());
  });
}
"""


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    be_runtime.load_cpp_inline("from_torch", SOURCE, **TORCH)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "int16"])
def test_a_dispatch_computes_with_each_type(dtype: str):
    x = jnp.arange(6, dtype=dtype).reshape(2, 3)
    y = call("from_torch.scale", jax.ShapeDtypeStruct(x.shape, x.dtype), x, factor=np.float64(2))
    np.testing.assert_array_equal(np.asarray(y, np.float32), 2 * np.arange(6).reshape(2, 3))


def test_complex_numbers():
    x = jnp.array([3 + 4j, 1j], jnp.complex64)
    np.testing.assert_array_equal(call("from_torch.square", jax.ShapeDtypeStruct((2,), x.dtype), x), [26, 2])


@pytest.mark.parametrize(("dtype", "largest"), [("float16", 65504), ("bfloat16", 2.0**127 * (2 - 2.0**-7))])
def test_arithmetic_of_16_bits(dtype: str, largest: float):
    y = call("from_torch.half_rules", jax.ShapeDtypeStruct((2,), jnp.float32), jnp.ones(1, dtype))
    np.testing.assert_array_equal(y, np.array([2, largest], np.float32))


@pytest.mark.parametrize(
    ("function", "x", "attributes", "message"),
    [
        (
            "scale",
            np.zeros((2, 2), np.complex64),
            {"factor": np.float64(1)},
            '"scale" is not implemented for complex64',
        ),
        ("scale", np.zeros(3, np.float32), {"factor": np.float64(1)}, "x has 1 dimensions"),
        ("wrong", np.zeros(3, np.int32), {}, r"data_ptr<float>\(\) of a\S* int32 tensor"),
    ],
)
def test_a_wrong_call_is_refused(function: str, x: Any, attributes: dict[str, Any], message: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call(f"from_torch.{function}", jax.ShapeDtypeStruct(x.shape, x.dtype), x, **attributes)


@pytest.mark.parametrize(
    ("statement", "advice"),
    [
        ("y = torch::empty({3});", r"ret\[\.\.\.\], or memory for the call as scratch\[\.\.\.\]"),
        ("y = torch::zeros_like(x);", r"declare it as ret\[\.\.\.\]=0"),
        ("y = at::full({1, 2}, 3, x.scalar_type());", "write it in the kernel"),
        ("y = x.to(at::kFloat);", r"x\.astype"),
        ("y.zero_();", r"ret\[\.\.\.\]=0"),
        ("struct F : torch::autograd::Function<F> {};", "defvjp"),
    ],
)
def test_an_allocation_does_not_compile_and_says_what_to_declare(statement: str, advice: str):
    head = "#include <ATen/ATen.h>\n// @BE f\n"
    text = f"{head}void f(const at::Tensor x, at::Tensor y) {{ (void)x, (void)y; {statement} }}"
    with pytest.raises(be_runtime.BuildError, match=advice):
        be_runtime.load_cpp_inline("refused", text, **TORCH)


def test_with_a_macro_an_allocation_is_an_error_of_the_call():
    text = """
#define BE_TORCH_REFUSE_WHEN_CALLED
#include "brainevent/torch_compat.h"
// @BE f
void f(const at::Tensor x, at::Tensor y) { if (x.numel() == 1) y = torch::empty_like(x); }
"""
    be_runtime.load_cpp_inline("late", text)
    call("late.f", jax.ShapeDtypeStruct((2,), jnp.float32), np.zeros(2, np.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"empty_like\(\) is not available"):
        call("late.f", jax.ShapeDtypeStruct((1,), jnp.float32), np.zeros(1, np.float32))


def test_shapes_and_bindings_of_a_published_file():
    like = jax.ShapeDtypeStruct((), jnp.float32)
    assert call("from_torch.shaped", like, jnp.zeros((2, 3))) == 1
    with pytest.raises(jax.errors.JaxRuntimeError, match="shapes"):
        call("from_torch.shaped", like, jnp.zeros((3, 2)))
