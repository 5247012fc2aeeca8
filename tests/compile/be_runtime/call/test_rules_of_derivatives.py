"""Derivatives of entry points: rules by kernels and by Python functions, and what they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, CompiledModule, gradcheck

SOURCE = r"""
#include "brainevent/common.h"

using BE::Tensor;
static const float* in(const Tensor& x) { return x.data_ptr<float>(); }

// @BE scale arg[... n] arg?[... n] ret[... n] attr.by:float32=3
void scale(const Tensor x, const Tensor* add, Tensor y, float by) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = by * in(x)[i] + (add ? in(*add)[i] : 0);
}

// The default is not that of `scale`, so that a rule which is not given the call's shows.
// @BE scale_bwd arg[... n] arg?[... n] arg[... n] ret[... n] ret[... n] attr.by:float32=1
void scale_bwd(const Tensor x, const Tensor* add, const Tensor g, Tensor dx, Tensor dadd, float by) {
  for (int64_t i = 0; i < g.numel(); ++i) {
    dx.data_ptr<float>()[i] = by * in(g)[i];
    dadd.data_ptr<float>()[i] = in(g)[i];
  }
}

// @BE total arg...[n]:float32 ret[n]:float32
void total(const BE::Tensors xs, Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    y.data_ptr<float>()[i] = 0;
    for (const Tensor& x : xs) y.data_ptr<float>()[i] += in(x)[i];
  }
}

// @BE weighted arg[n] ret[n] attr.weights
void weighted(const Tensor x, Tensor y, BE::Span<const float> weights) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = weights[i] * in(x)[i];
}
"""

X = jnp.array([1.0, 2.0])


@pytest.fixture
def module() -> CompiledModule:
    """Functions without rules."""
    return be_runtime.load_cpp_inline("derived", SOURCE, auto_register=False)


def gradient(function: Callable[..., Any], *arrays: Any) -> Any:
    """The derivatives of the sum of the results, with respect to every argument."""
    return jax.grad(lambda *given: function(*given).sum(), argnums=tuple(range(len(arrays))))(*arrays)


@pytest.mark.parametrize("backward", ["scale_bwd", lambda arrays, g, by: (by * g, None if arrays[1] is None else g)])
def test_a_backward_rule_sees_defaults_and_absent_inputs(module: CompiledModule, backward: Any) -> None:
    module.scale.defvjp(None, backward)
    dx, dadd = gradient(module.scale, X, X)
    assert (dx.tolist(), dadd.tolist()) == ([3, 3], [1, 1])
    for absent in ((), (None,)):
        assert gradient(lambda x, rest=absent: module.scale(x, *rest), X)[0].tolist() == [3, 3]
        assert gradient(lambda x, rest=absent: module.scale(x, *rest, by=5), X)[0].tolist() == [5, 5]
    gradcheck(module.scale, [X, X], by=2)
    gradcheck(jax.vmap(lambda x: module.scale(x, None)), [jnp.stack([X, X])])


def test_a_sequence_of_inputs_has_a_sequence_of_cotangents(module: CompiledModule) -> None:
    module.total.defvjp(None, lambda arrays, g: ([g, 2 * g],))
    assert gradient(lambda x, y: module.total([x, y]), X, X)[1].tolist() == [2, 2]
    with pytest.raises(ArgumentError, match=r"total: argument 0\[1\] is None, which is not an array"):
        module.total([X, None])
    with pytest.raises(ArgumentError, match="total: no array of this call has the axis n"):
        module.total([])


@pytest.mark.parametrize("weights", [[1, 2], np.array([1.0, 2.0])], ids=["list", "array"])
def test_a_transpose_is_given_attributes_that_have_no_hash(module: CompiledModule, weights: Any) -> None:
    module.weighted.deftranspose("weighted")
    for run in (gradient, jax.jit(gradient, static_argnums=0)):
        assert run(lambda x: module.weighted(x, weights=weights), X)[0].tolist() == [1, 2]
