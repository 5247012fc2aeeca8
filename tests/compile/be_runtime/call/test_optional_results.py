"""Results that a call asks for, or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.errors import ArgumentError, SpecError

SOURCE = r"""
#include <optional>
#include "brainevent/common.h"
// @BE top arg[n k]:float32 arg?[k]:float32 ret[n]:float32 ret?[n]:int32 ret?[n k]:float32 scratch[4*n] parallel[n]
void top(const BE::Tensor x, const BE::Tensor* bias, BE::Tensor best, BE::Tensor* argmax,
         std::optional<BE::Tensor> sums, BE::Workspace memory) {
  BE_CHECK(static_cast<int64_t>(memory.size()) == 4 * x.shape(0)) << memory.size();
  int32_t* index = static_cast<int32_t*>(memory.data());
  for (int64_t i = 0; i < x.shape(0); ++i) {
    for (int64_t j = 0; j < x.shape(1); ++j) {
      const float sum = x.at<float>(i, j) + (bias ? bias->at<float>(j) : 0);
      if (j == 0 || sum > best.at<float>(i)) best.at<float>(i) = sum, index[i] = static_cast<int32_t>(j);
      if (sums) sums->at<float>(i, j) = sum;
    }
    if (argmax != nullptr) argmax->at<int32_t>(i) = index[i];
  }
}
// @BE scale
void scale(const BE::Tensor x, BE::Tensor y, BE::Tensor* twice) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    y.data_ptr<float>()[i] = 3 * x.data_ptr<float>()[i];
    if (twice) twice->data_ptr<float>()[i] = 6 * x.data_ptr<float>()[i];
  }
}
// @BE filled arg[n]:float32 ret?[n]:float32=0 ret[n]:float32 ret[n]:float32
void filled(const BE::Tensor x, BE::Tensor* sum, BE::Tensor first, BE::Tensor second) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    if (sum) sum->at<float>(i) += x.at<float>(i);
    first.at<float>(i) += 10, second.at<float>(i) = -1;
  }
}
// @BE scale_backward arg:float32 arg?:float32 ret:like(0)
void scale_backward(const BE::Tensor g, const BE::Tensor* g2, BE::Tensor y) {
  for (int64_t i = 0; i < g.numel(); ++i)
    y.data_ptr<float>()[i] = 3 * g.data_ptr<float>()[i] + (g2 ? 6 * g2->data_ptr<float>()[i] : 0);
}
"""
X = jnp.array([[0.0, 1, 2], [3, 0, 1]])
BIAS = jnp.array([9.0, 0, 0])


@pytest.fixture(scope="module")
def module() -> Any:
    return be_runtime.load_cpp_inline("optional_results", SOURCE)


@pytest.mark.parametrize("debug", [False, True])
@pytest.mark.parametrize("bias", [None, BIAS])
@pytest.mark.parametrize("want", [(), {"argmax"}, ["sums"], "argmax", frozenset({"sums", "argmax"})])
def test_a_call_has_the_results_that_it_asks_for(want: Any, bias: Any, debug: bool):
    top = be_runtime.load_cpp_inline("optional_results_debug" if debug else "optional_results", SOURCE, debug=debug).top
    expected = X + (0 if bias is None else bias)
    for call in (top, jax.jit(lambda x, b: top(x, b, want=want))):
        best, argmax, sums = call(X, bias) if call is not top else call(X, bias, want=want)
        np.testing.assert_array_equal(best, expected.max(1))
        assert (argmax is None, sums is None) == ("argmax" not in want, "sums" not in want)
        if argmax is not None:
            np.testing.assert_array_equal(argmax, expected.argmax(1))
        if sums is not None:
            np.testing.assert_array_equal(sums, expected)


def test_outs_ask_too_and_a_batch_has_them(module: Any):
    best, index = jax.ShapeDtypeStruct((2,), np.float32), jax.ShapeDtypeStruct((2,), np.int32)
    assert [each is None for each in module.top(X, outs=[best, index, None])] == [False, False, True]
    found = jax.vmap(lambda x: module.top(x, want={"argmax"}))(jnp.stack([X, X[::-1]]))
    np.testing.assert_array_equal(found[1], [[2, 0], [0, 2]])
    assert found[2] is None
    assert module.top(X[:0], want={"argmax"})[1].shape == (0,)
    direct = jax.ffi.ffi_call("optional_results.top", [best, index, jax.ShapeDtypeStruct((8,), np.uint8)])
    np.testing.assert_array_equal(direct(X, be_present=np.int64(0b010))[1], [2, 0])
    with pytest.raises(jax.errors.JaxRuntimeError, match="takes 1 argument and 4 results, but the call passes 1 and 3"):
        direct(X, be_present=np.int64(0b110))


def test_an_optional_result_is_filled_and_aliases_count_the_declared_results(module: Any):
    x = jnp.arange(3.0)
    filled = module.filled.with_options(input_output_aliases={0: 1}, output_layouts=[None, (0,), (0,)])
    for want in ((), {"sum"}):
        total, first, second = jax.jit(lambda x, want=want: filled(x, want=want))(x)
        np.testing.assert_array_equal(first, x + 10)
        np.testing.assert_array_equal(second, [-1, -1, -1])
        assert (total is None) == (not want)
        if want:
            np.testing.assert_array_equal(total, x)


def test_one_described_result_of_several_is_in_a_tuple(module: Any):
    best, argmax, sums = module.top(X, outs=jax.ShapeDtypeStruct((2,), np.float32))
    np.testing.assert_array_equal(best, [2, 3])
    assert argmax is sums is None


def test_a_rule_that_gives_all_results_serves_every_call():
    scale = be_runtime.load_cpp_inline("optional_results", SOURCE).scale
    outs = [jax.ShapeDtypeStruct((2,), np.float32)] * 2

    def forward(x: Any) -> Any:
        y, twice = scale(x, want={"twice"}, outs=outs)
        return (y, twice), None

    scale.defvjp(forward, lambda _, g: (3 * g[0] + (0 if g[1] is None else 6 * g[1]),))
    x = jnp.array([1.0, 2.0])
    np.testing.assert_array_equal(jax.grad(lambda x: scale(x, outs=[outs[0], None])[0].sum())(x), [3, 3])
    np.testing.assert_array_equal(jax.grad(lambda x: scale(x, want={"twice"}, outs=outs)[1].sum())(x), [6, 6])
    scale.defvjp(lambda x: ((x, None), None), lambda _, g: (g[0],))
    with pytest.raises(ArgumentError, match="the rule <lambda> gives None for result 1, which the call asks for"):
        jax.grad(lambda x: scale(x, want={"twice"}, outs=outs)[1].sum())(x)


def test_what_a_call_cannot_ask_for_is_named(module: Any):
    with pytest.raises(ArgumentError, match="not a set of names"):
        module.top(X, want={"argmax": False})
    with pytest.raises(ArgumentError, match=r"outs\[1\] is None, but want asks for 'argmax'"):
        module.top(X, want={"argmax"}, outs=[jax.ShapeDtypeStruct((2,), np.float32), None, None])
    with pytest.raises(ArgumentError, match="has no optional result 'argmin'; its optional results are argmax, sums"):
        module.top(X, want={"argmin"})
    with pytest.raises(ArgumentError, match="want is 3, not a set of names"):
        module.top(X, want=3)
    with pytest.raises(ArgumentError, match="has no attribute 'want'"):
        module.scale_backward(X, want={"y"})
    with pytest.raises(SpecError, match="beside an optional result, want is the argument"):
        be_runtime.load_cpp_inline("w", SOURCE.replace("BE::Tensor* twice", "BE::Tensor* twice, int want"))
    with pytest.raises(SpecError, match="no parameter is an output"):
        be_runtime.load_cpp_inline("w", SOURCE.replace("x, BE::Tensor y, BE::Tensor* twice", "x, BE::Tensor* twice"))


@pytest.mark.parametrize("backward", ["scale_backward", lambda _, g: (3 * g[0] + (0 if g[1] is None else 6 * g[1]),)])
def test_derivatives_follow_the_results_of_the_call(module: Any, backward: Any):
    scale = be_runtime.load_cpp_inline("optional_results", SOURCE).scale
    scale.defvjp(None, backward)
    x = jnp.ones(2)
    outs = [jax.ShapeDtypeStruct((2,), np.float32)] * 2

    def loss(x: Any, want: Any) -> Any:
        y, twice = scale(x, want=want, outs=outs if want else [outs[0], None])
        return y.sum() + (0 if twice is None else twice.sum())

    np.testing.assert_array_equal(jax.grad(loss)(x, ()), [3, 3])
    np.testing.assert_array_equal(jax.grad(loss)(x, {"twice"}), [9, 9])


def test_a_forward_rule_asks_for_a_result_that_its_caller_does_not(module: Any):
    scale = be_runtime.load_cpp_inline("optional_results", SOURCE).scale
    outs = [jax.ShapeDtypeStruct((2,), np.float32)] * 2

    def forward(x: Any) -> Any:
        y, twice = scale(x, want={"twice"}, outs=outs)
        return (y, None), twice

    scale.defvjp(forward, lambda twice, g: (twice * g[0],))
    found = jax.grad(lambda x: scale(x, outs=[outs[0], None])[0].sum())(jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, [6, 12])


def test_a_checked_call_and_a_program_in_another_process_have_them(module: Any, tmp_path: Path):
    with be_runtime.debug() as findings:
        np.testing.assert_array_equal(module.top(X, want={"argmax"})[1], [2, 0])
    assert not findings
    be_runtime.export(lambda x: module.top(x, want={"argmax"}), X).save(tmp_path / "program")
    script = """
import be_runtime, jax.numpy as jnp
print(be_runtime.load_exported("program").call(jnp.array([[0.0, 1, 2], [3, 0, 1]])))
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout == "(Array([2., 3.], dtype=float32), Array([2, 0], dtype=int32), None)\n"


def test_a_call_that_is_split_over_devices_has_them(tmp_path: Path):
    (tmp_path / "source.cc").write_text(SOURCE)
    script = """
import jax, numpy as np, pathlib, be_runtime, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
top = be_runtime.load_cpp_inline("optional_results", pathlib.Path("source.cc").read_text()).top
rows = NamedSharding(Mesh(np.array(jax.devices()), "d"), P("d"))
x = jax.device_put(jnp.arange(24.0).reshape(8, 3), rows)
best, argmax, sums = jax.jit(lambda x: top(x, want={"argmax"}))(x)
assert sums is None and argmax.sharding.is_equivalent_to(rows, 1) and (argmax == 2).all()
print("right")
"""
    found = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout == "right\n", found.stderr
