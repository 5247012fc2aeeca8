"""What a declaration says of results beside their shapes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.errors import ArgumentError, SpecError

SOURCE = """
#include <optional>
#include "brainevent/common.h"
// @BE count arg[n]:int32 attr.bins:int32 ret[attr.bins]:int32=0
void count(const BE::Tensor x, int bins, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<int32_t>()[x.data_ptr<int32_t>()[i]] += 1;
}
// @BE beside arg[n]:float32 arg?[n]:float32 ret[n]:float32 ret[n]:float32=0
void beside(const BE::Tensor x, std::optional<BE::Tensor> bias, BE::Tensor copied, BE::Tensor sum) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    copied.data_ptr<float>()[i] = x.data_ptr<float>()[i];
    sum.data_ptr<float>()[i] += bias ? bias->data_ptr<float>()[i] : 1;
  }
}
"""
X = jnp.array([0, 1, 1, 3], jnp.int32)


@pytest.fixture(scope="module")
def module() -> be_runtime.LoadedModule:
    return be_runtime.load_cpp_inline("declared_results", SOURCE)


@pytest.mark.parametrize("debug", [False, True])
def test_a_result_is_filled_with_zeros_before_each_call(debug: bool):
    module = be_runtime.load_cpp_inline("declared_results_debug" if debug else "declared_results", SOURCE, debug=debug)
    count = jax.jit(lambda x: module.count(x, bins=5))
    for _ in range(20):
        np.testing.assert_array_equal(count(X), [1, 2, 0, 1, 0])
    np.testing.assert_array_equal(jax.vmap(count)(jnp.stack([X, X + 1])), [[1, 2, 0, 1, 0], [0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(count(X[:0]), np.zeros(5))
    assert module.count(X[:0], bins=0).shape == (0,)


def test_zeros_stand_beside_optional_arrays_and_other_results(module: be_runtime.LoadedModule):
    x = jnp.arange(3.0)
    for bias, expected in ((None, np.ones(3)), (2 * x, 2 * x)):
        copied, total = module.beside(x, bias)
        np.testing.assert_array_equal(copied, x)
        np.testing.assert_array_equal(total, expected)


def test_zeros_are_part_of_the_declaration(module: be_runtime.LoadedModule):
    assert module.info.handlers["count"].spec[-1] == "ret[attr.bins]:int32=0"
    in_place = module.beside.with_options(input_output_aliases={0: 0})
    np.testing.assert_array_equal(in_place(jnp.arange(3.0))[1], np.ones(3))
    with pytest.raises(ArgumentError, match="puts result 1 into an input's memory, which =0 would clear"):
        module.beside.with_options(input_output_aliases={0: 1})(jnp.arange(3.0))


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("ret=1", "a result can be filled with zeros only: write =0, not =1"),
        ("ret[n]:float32=0.0", "write =0, not =0.0"),
        ("ret[n]=", "write =0, not ="),
        ("ret...=0", "only a single result"),
        ("arg=0", "only a single result"),
    ],
)
def test_other_values_and_places_are_refused(token: str, problem: str):
    with pytest.raises(SpecError, match=problem):
        be_runtime.load_cpp_inline("refused", SOURCE, functions={"beside": ["arg[n]", "arg?[n]", "ret", token]})


def test_a_kernel_without_host_code_writes_its_own_zeros():
    with pytest.raises(SpecError, match="'ret=0' is for functions with host code; let the kernel write the zeros"):
        be_runtime.cuda_kernel("__global__ void f(float* y) {}", "f", signature="ret=0", grid=1, block=1)
