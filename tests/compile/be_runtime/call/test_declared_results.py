"""Results with contents before the call: zeros, or those of an input that is changed in place."""

from __future__ import annotations

import inspect
from typing import Any

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
// @BE momentum inout[n]:float32 arg[n]:float32 inout[n] attr.lr:float32=0.5
void momentum(BE::Tensor p, const BE::Tensor g, BE::Tensor m, float lr) {
  for (int64_t i = 0; i < p.numel(); ++i) {
    m.data_ptr<float>()[i] += g.data_ptr<float>()[i];
    p.data_ptr<float>()[i] -= lr * m.data_ptr<float>()[i];
  }
}
// @BE doubled arg[n]:float32 ret[n]:float32=0
void doubled(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] += 2 * x.data_ptr<float>()[i];
}
// @BE masked arg?:int8 inout ret...
void masked(std::optional<BE::Tensor> mask, BE::Tensor x, BE::Tensors more) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] *= mask ? mask->data_ptr<int8_t>()[i] : 2;
  for (auto& each : more) each.data_ptr<float>()[0] = 3;
}
// @BE scaled arg?:int8 inout ret:like(0)
void scaled(std::optional<BE::Tensor> factor, BE::Tensor x, BE::Tensor copy) {
  for (int64_t i = 0; i < x.numel(); ++i) copy.data_ptr<float>()[i] = x.data_ptr<float>()[i] *= factor ? 5 : 2;
}
"""
P, G, M = jnp.ones(4), jnp.arange(4.0), jnp.full(4, 2.0)
X = jnp.array([0, 1, 1, 3], jnp.int32)


@pytest.fixture(scope="module")
def module() -> be_runtime.CompiledModule:
    return be_runtime.load_cpp_inline("declared_results", SOURCE)


def test_a_direct_call_with_another_dtype_of_an_inout_array_fails(module: be_runtime.CompiledModule):
    outs = [jax.ShapeDtypeStruct((4,), np.float32)] * 2
    call = jax.ffi.ffi_call("declared_results.momentum", outs)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="is 16 bytes of int32 as an input, and 16 bytes of float32 as"
    ):
        call(P.astype(np.int32), G, M, lr=np.float32(1))


@pytest.mark.parametrize("debug", [False, True])
def test_a_result_is_filled_with_zeros_before_each_call(debug: bool):
    module = be_runtime.load_cpp_inline("declared_results_debug" if debug else "declared_results", SOURCE, debug=debug)
    count = jax.jit(lambda x: module.count(x, bins=5))
    for _ in range(20):
        np.testing.assert_array_equal(count(X), [1, 2, 0, 1, 0])
    np.testing.assert_array_equal(jax.vmap(count)(jnp.stack([X, X + 1])), [[1, 2, 0, 1, 0], [0, 1, 2, 0, 1]])
    np.testing.assert_array_equal(count(X[:0]), np.zeros(5))
    assert module.count(X[:0], bins=0).shape == (0,)


def test_zeros_stand_beside_optional_arrays_and_other_results(module: be_runtime.CompiledModule):
    x = jnp.arange(3.0)
    for bias, expected in ((None, np.ones(3)), (2 * x, 2 * x)):
        copied, total = module.beside(x, bias)
        np.testing.assert_array_equal(copied, x)
        np.testing.assert_array_equal(total, expected)


def test_zeros_are_part_of_the_declaration(module: be_runtime.CompiledModule):
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
        ("inout=0", "only a single result"),
        ("inout?", "it stands for one array"),
        ("ret:float8_e8m0fnu=0", "float8_e8m0fnu has no zero"),
        ("ret[n]=0:float32", "the dtype comes before =0"),
    ],
)
def test_other_values_and_places_are_refused(token: str, problem: str):
    with pytest.raises(SpecError, match=problem):
        be_runtime.load_cpp_inline("refused", SOURCE, functions={"beside": ["arg[n]", "arg?[n]", "ret", token]})


@pytest.mark.parametrize("debug", [False, True])
def test_an_array_that_a_call_changes_is_an_input_and_a_result(debug: bool):
    module = be_runtime.load_cpp_inline("in_place_debug" if debug else "in_place", SOURCE, debug=debug)
    for call in (module.momentum, jax.jit(module.momentum)):
        p, m = call(P, G, M)
        np.testing.assert_array_equal(m, M + G)
        np.testing.assert_array_equal(p, P - 0.5 * (M + G))
        np.testing.assert_array_equal(P, np.ones(4), "the caller's array stays")
    donated = jax.jit(module.momentum, donate_argnums=(0, 2))
    np.testing.assert_array_equal(donated(P + 0, G, M + 0)[1], M + G)
    batch = jax.vmap(lambda p, g: module.momentum(p, g, M))(jnp.stack([P, P]), jnp.stack([G, 2 * G]))
    np.testing.assert_array_equal(batch[1], [M + G, M + 2 * G])
    out = jax.ShapeDtypeStruct((4,), jnp.float32)
    by_target = jax.ffi.ffi_call(f"{module.info.name}.momentum", (out, out))(P, G, M, lr=np.float32(0.5))
    np.testing.assert_array_equal(by_target[1], M + G, "copied, since ffi_call was not told of the pair")
    np.testing.assert_array_equal(M, np.full(4, 2))


def test_a_changed_array_stands_beside_optional_arrays_and_any_number_of_results(module: be_runtime.CompiledModule):
    outs = [jax.ShapeDtypeStruct((4,), jnp.float32), *[jax.ShapeDtypeStruct((1,), jnp.float32)] * 2]
    for mask, expected in ((None, 2 * G), (jnp.full(7, 4, jnp.int8), 4 * G)):
        changed, *more = module.masked(mask, G, outs=outs)
        np.testing.assert_array_equal(changed, expected)
        assert [float(each[0]) for each in more] == [3, 3]
        factor = 2 if mask is None else 5
        for scaled in module.scaled(mask, G):  # like the first input that is always there
            np.testing.assert_array_equal(scaled, factor * G)


def test_a_pair_is_one_parameter_to_a_reader(module: be_runtime.CompiledModule):
    handlers = module.info.handlers["momentum"]
    assert handlers.spec == ("inout[n]:float32", "arg[n]:float32", "inout[n]", "attr.lr:float32=0.5")
    assert handlers.names == ("p", "p", "g", "m", "m", "lr")
    assert str(inspect.signature(module.momentum)).startswith(
        "(p: 'ArrayLike', g: 'ArrayLike', m: 'ArrayLike', /, *, lr"
    )
    text = jax.jit(module.momentum).lower(P, G, M).as_text()
    assert text.count("output_tuple_indices = [0], operand_index = 0") == 1
    assert text.count("output_tuple_indices = [1], operand_index = 2") == 1
    with pytest.raises(
        SpecError, match=r"the token 'inout' makes parameter 'g' a result, but it is .*const BE::Tensor"
    ):
        be_runtime.load_cpp_inline("const", SOURCE, functions={"momentum": ["inout", "inout", "inout", "attr.lr"]})


def test_what_would_lose_the_old_contents_is_refused(module: be_runtime.CompiledModule):
    momentum = module.momentum
    with pytest.raises(ArgumentError, match="has 0: 1, but an inout array is an input and a result by itself"):
        momentum.with_options(input_output_aliases={0: 1, 2: 0})(P, G, M)
    with pytest.raises(ArgumentError, match="has 1: 0, but an inout array"):
        momentum.with_options(input_output_aliases={1: 0})(P, G, M)
    np.testing.assert_array_equal(momentum.with_options(input_output_aliases={2: 1})(P, G, M)[1], M + G)
    text = """
#include "brainevent/common.h"
// @BE same inout[n k]:float32
void same(BE::Tensor x) {}
"""
    same, x = be_runtime.load_cpp_inline("same", text).same, jnp.arange(6.0).reshape(2, 3)
    with pytest.raises(ArgumentError, match=r"share their memory, but have the layout \(1, 0\) and the usual layout"):
        same.with_options(input_layouts=[(1, 0)])(x)
    np.testing.assert_array_equal(same.with_options(input_layouts=[(1, 0)], output_layouts=[(1, 0)])(x), x)
    with pytest.raises(
        SpecError, match=r"'reduce\[k\]' sums the results of parts, and each part of an inout array has"
    ):
        be_runtime.load_cpp_inline("sums", text.replace("float32", "float32 arg[n k] reduce[k]"))
    with pytest.raises(ArgumentError, match=r"result 0 is float32\[3,2\], but it is inout: input 0 is float32\[2,3\]"):
        be_runtime.load_cpp_inline("any", text.replace("[n k]:float32", "")).same(x, outs=x.T)


@pytest.mark.parametrize(
    ("function", "arrays", "count", "aliases", "attributes"),
    [
        ("momentum", (P, G, M), 2, {2: 0}, {"lr": np.float32(1)}),
        ("momentum", (P, G, M), 2, {1: 1}, {"lr": np.float32(1)}),
        ("doubled", (G,), 1, {0: 0}, {}),
    ],
)
def test_memory_of_another_input_is_refused_in_a_call_by_its_target(
    module: be_runtime.CompiledModule, function: str, arrays: Any, count: int, aliases: Any, attributes: Any
):
    outs = [jax.ShapeDtypeStruct((4,), jnp.float32)] * count
    call = jax.ffi.ffi_call(f"{module.info.name}.{function}", outs, input_output_aliases=aliases)
    with pytest.raises(
        jax.errors.JaxRuntimeError, match="gives a result that is inout or =0 the memory of another input"
    ):
        jax.block_until_ready(call(*arrays, **attributes))


def test_a_kernel_without_host_code_writes_its_own_zeros():
    for token, advice in (("ret=0", "write the zeros yourself"), ("inout", "pass input_output_aliases")):
        with pytest.raises(SpecError, match=f"'{token}' is for functions with host code; .*{advice}"):
            be_runtime.cuda_kernel("__global__ void f(float* y) {}", "f", signature=token, grid=1, block=1)
