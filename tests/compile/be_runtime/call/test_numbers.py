"""Numbers that change from call to call: inputs without axes that calls pass by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime.errors import ArgumentError, BuildError, SpecError

SOURCE = r"""
#include "brainevent/common.h"
// @BE step inout[n]:float32 arg[n]:float32 scalar.lr:float32=0.5 scalar.t:int32 attr.sign:int32=-1
void step(BE::Tensor p, const BE::Tensor g, float lr, int64_t t, int sign) {
  for (int64_t i = 0; i < p.numel(); ++i) p.at<float>(i) += sign * (lr * g.at<float>(i) + t);
}
// @BE times scalar.k:bool arg[n]:float32 arg?[n]:float32 ret[n]:float32 scalar.by:float64=2
void times(bool k, const BE::Tensor x, const BE::Tensor* bias, BE::Tensor y, BE::Scalar<double> by) {
  for (int64_t i = 0; i < x.numel(); ++i)
    y.at<float>(i) = k ? by * x.at<float>(i) + (bias ? bias->at<float>(i) : 0) : 0;
}
// @BE inferred
void inferred(const BE::Tensor x, const BE::Scalar<float>& k, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = k * x.data_ptr<float>()[i];
}
// @BE fire arg[...]:float32 ret[...]:bool scalar.threshold:float32=1
void fire(const BE::Tensor v, BE::Tensor spikes, float threshold) {
  for (int64_t i = 0; i < v.numel(); ++i) spikes.data_ptr<bool>()[i] = v.data_ptr<float>()[i] >= threshold;
}
// @BE times_backward arg[n]:float32 arg:float32 arg[n]:float32 ret:like(0) ret[]:float32=0
void times_backward(const BE::Tensor x, const BE::Tensor k, const BE::Tensor g, BE::Tensor dx, BE::Tensor dk) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    dx.at<float>(i) = g.at<float>(i) * k.data_ptr<float>()[0];
    dk.data_ptr<float>()[0] += g.at<float>(i) * x.at<float>(i);
  }
}
"""
P, G = jnp.ones(3), jnp.arange(3.0)


@pytest.fixture(scope="module")
def module() -> Any:
    return be_runtime.load_cpp_inline("numbers", SOURCE)


def test_numbers_of_python_numpy_and_jax_are_passed_by_name_or_all_by_position(module: Any):
    with jax.enable_x64(True):
        np.testing.assert_array_equal(module.step(P, G, t=0), P - 0.5 * G)
        np.testing.assert_array_equal(module.step(P, G, lr=2, t=np.int64(1), sign=1), P + 2 * G + 1)
        np.testing.assert_array_equal(module.step(P, G, jnp.float32(2), jnp.int32(1)), P - 2 * G - 1)
        np.testing.assert_array_equal(module.times(G, k=True), 2 * G)
        np.testing.assert_array_equal(module.times(G, P, k=True, by=3), 3 * G + 1)
        np.testing.assert_array_equal(module.times(G, k=False), 0 * G)
    np.testing.assert_array_equal(module.inferred(G, k=3, outs=G), 3 * G)


@pytest.mark.parametrize("kind", [float, np.float32, jnp.float32])
def test_a_new_value_is_no_new_trace_and_no_new_program(module: Any, kind: Any):
    traces = 0

    @jax.jit
    def run(p: Any, lr: Any) -> Any:
        nonlocal traces
        traces += 1
        return module.step(p, G, lr=lr, t=0)

    for value in (0.25, 0.5, 4.0):
        np.testing.assert_array_equal(run(P, kind(value)), P - value * G)
        np.testing.assert_array_equal(module.step(P, G, lr=kind(value), t=0), P - value * G)
    assert traces == 1
    jaxpr = jax.make_jaxpr(run)(P, kind(0.25))
    assert str(jaxpr) == str(jax.make_jaxpr(run)(P, kind(4)))


def test_a_loop_a_batch_and_a_checked_call(module: Any):
    def body(t: Any, p: Any) -> Any:
        return module.step(p, G, lr=1.0, t=t)

    np.testing.assert_array_equal(jax.lax.fori_loop(0, 4, body, P), P - 4 * G - 6)
    batch = jax.vmap(lambda lr: module.step(P, G, lr=lr, t=0))(jnp.array([0.0, 1.0]))
    np.testing.assert_array_equal(batch, [P, P - G])
    fire = jax.vmap(module.fire)
    np.testing.assert_array_equal(fire(jnp.stack([G, 2 * G])), [[False, True, True]] * 2)
    assert "loop" not in str(jax.make_jaxpr(jax.vmap(lambda v: module.fire(v, threshold=2)))(G[None]))
    found = jax.vmap(lambda v, t: module.fire(v, threshold=t))(jnp.stack([G, G]), jnp.array([1.0, 2.0]))
    np.testing.assert_array_equal(found, [[False, True, True], [False, False, True]])
    with be_runtime.debug() as findings:
        np.testing.assert_array_equal(module.step(P, G, lr=1, t=0), P - G)
    assert not findings


@pytest.mark.parametrize("backward", ["times_backward", lambda kept, g: (kept[1] * g, (kept[0] * g).sum())])
def test_a_number_is_an_input_of_derivative_rules(backward: Any):
    inferred = be_runtime.load_cpp_inline("numbers", SOURCE).inferred.with_options(outs=G)
    inferred.defvjp(None, backward)
    found = jax.grad(lambda x, k: inferred(x, k=k).sum(), (0, 1))(G, jnp.float32(5))
    np.testing.assert_array_equal(found[0], [5, 5, 5])
    assert found[1] == 3


def test_signatures_name_them(module: Any):
    parameters = inspect.signature(module.step).parameters
    assert list(parameters) == ["p", "g", "lr", "t", "sign", "outs"]
    assert (parameters["lr"].kind.name, parameters["lr"].default) == ("KEYWORD_ONLY", 0.5)
    assert parameters["t"].default is inspect.Parameter.empty
    assert "scalar.lr:float32=0.5 scalar.t:int32" in repr(module.step)
    assert "scalar.k:float32" in repr(module.inferred)


def test_numbers_of_a_high_level_primitive_and_of_gradcheck(module: Any):
    times = be_runtime.load_cpp_inline("numbers", SOURCE).inferred.with_options(outs=G)
    times.defvjp(None, lambda kept, g: (g * kept[1], None))
    be_runtime.gradcheck(times, [G], k=3)
    if hasattr(jax.experimental, "hijax"):
        np.testing.assert_array_equal(module.fire.as_hijax()(G), [False, True, True])
        np.testing.assert_array_equal(module.fire.as_hijax()(G, threshold=2.0), [False, False, True])


def test_wrong_numbers_are_named(module: Any):
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: module.step(P, G), "numbers.step needs the number 't'"),
        (lambda: module.step(P, G, t=0.5), "t is 0.5, not a valid int32"),
        (lambda: module.step(P, G, t=0, lr="x"), "lr is 'x', not a valid float32"),
        (
            lambda: module.step(P, G, t=jnp.ones(2, np.int32)),
            r"has the shape \(2,\), but its axes are",
        ),
        (lambda: module.step(P, t=1), r"argument 1 \(g\) is None"),
        (lambda: module.step(P, G, t=1, rate=2), "has no attribute 'rate'"),
    ]
    for call, message in calls:
        with pytest.raises(ArgumentError, match=message):
            call()


def test_numbers_follow_the_names_of_the_cpp_parameters():
    head = '#include "brainevent/common.h"\n'
    source = f"{head}// @BE f scalar.b:float32 scalar.a:float32 ret\nvoid f(float a, float b, BE::Tensor y) {{}}"
    with pytest.raises(SpecError, match="is at the position of parameter 'a'; tokens follow the order"):
        be_runtime.load_cpp_inline("numbers_wrong", source)
    for token in ("scalar.s:float32", "attr.s:float32"):
        source = f"{head}// @BE f<T> arg:T {token} ret:T T=float32|int32\n"
        source += "template <typename T> void f(const BE::Tensor x, const T& s, BE::Tensor y) {}"
        with pytest.raises(SpecError, match="the number s is a T, which differs between the instances"):
            be_runtime.load_cpp_inline("numbers_wrong", source)


@pytest.mark.parametrize(
    ("tokens", "message"),
    [("scalar.k:bfloat16 ret", "C[+][+] has no numbers of bfloat16: take an array, arg"),
     ("scalar.k:real ret", "has the unknown type 'real'"), ("scalar.:float32 ret", "not an identifier"),
     ("scalar.outs:float32 ret", "a number can't be called outs"), ("scalar.k:int32=0.5 ret", "can't be the default"),
     ("scalar.k:float32 attr.k:int32 ret", "names the attribute 'k' again"),
     ("scalar.k:float64 ret", "'float' does not hold every float64"), ("arg ret", "the token 'arg' is at")],
)  # fmt: skip
def test_wrong_declarations_are_named(tokens: str, message: str):
    source = '#include "brainevent/common.h"\nvoid f(float k, BE::Tensor y) {}'
    if "attr" in tokens:
        source = source.replace("float k", "float k, int n")
    with pytest.raises((SpecError, BuildError), match=message):
        be_runtime.load_cpp_inline("numbers_wrong", source, functions={"f": tokens.split()})
