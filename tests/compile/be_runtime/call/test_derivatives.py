"""Derivatives of entry points by their authors' rules: against jnp, in any order of transformations, and bad rules."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, CompiledModule, GradientError, TransformError, gradcheck

Function = Callable[..., Any]

SOURCE = r"""
#include <optional>
#include "brainevent/common.h"

static const float* in(const BE::Tensor& x) { return x.data_ptr<float>(); }

// @BE matvec arg[n k] arg[k] ret[n] attr.alpha:float32
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y, float alpha) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.size(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += in(a)[i * k + j] * in(x)[j];
    y.data_ptr<float>()[i] = alpha * sum;
  }
}
// @BE matvec_t arg[n k] arg[n] ret[k] attr.alpha:float32
void matvec_t(const BE::Tensor a, const BE::Tensor g, BE::Tensor y, float alpha) {
  const int64_t k = y.size(0);
  for (int64_t j = 0; j < k; ++j) {
    float sum = 0;
    for (int64_t i = 0; i < g.size(0); ++i) sum += in(a)[i * k + j] * in(g)[i];
    y.data_ptr<float>()[j] = alpha * sum;
  }
}
// @BE outer arg[n] arg[k] ret[n k] attr.alpha:float32
void outer(const BE::Tensor g, const BE::Tensor x, BE::Tensor y, float alpha) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = alpha * in(g)[i / k] * in(x)[i % k];
}

// @BE cube arg[... n] ret[... n]
void cube(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = in(x)[i] * in(x)[i] * in(x)[i];
}
// @BE cube_bwd arg[... n] arg[... n] ret[... n]
void cube_bwd(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 3 * in(x)[i] * in(x)[i] * in(g)[i];
}
// @BE cube_fwd arg[... n] ret[... n] ret[... n]
void cube_fwd(const BE::Tensor x, BE::Tensor y, BE::Tensor slope) {
  cube(x, y);
  for (int64_t i = 0; i < x.numel(); ++i) slope.data_ptr<float>()[i] = 3 * in(x)[i] * in(x)[i];
}
// @BE times arg[... n] arg[... n] ret[... n]
void times(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = in(x)[i] * in(g)[i];
}
// @BE floor arg[... n] ret[... n]:int32
void floor(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<int32_t>()[i] = static_cast<int32_t>(in(x)[i]);
}

// @BE pick arg[n] arg[k]:int32 ret[k]:like(0)
void pick(const BE::Tensor x, const BE::Tensor at, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = in(x)[at.data_ptr<int32_t>()[i]];
}
// @BE place arg[n] arg[k]:int32 arg[k] ret[n]:like(0)
void place(const BE::Tensor x, const BE::Tensor at, const BE::Tensor g, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = 0;
  for (int64_t i = 0; i < g.numel(); ++i) y.data_ptr<float>()[at.data_ptr<int32_t>()[i]] += in(g)[i];
}

// @BE product arg?[n] arg[n] arg...[n] ret[n]
void product(const std::optional<BE::Tensor>& w, const BE::Tensor x, const BE::Tensors rest, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) {
    float all = w ? in(*w)[i] * in(x)[i] : in(x)[i];
    for (const BE::Tensor& each : rest) all *= in(each)[i];
    y.data_ptr<float>()[i] = all;
  }
}

// @BE scale arg[b n] arg[n] ret[b n] parallel[b]
void scale(const BE::Tensor x, const BE::Tensor w, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = in(x)[i] * in(w)[i % w.size(0)];
}
// @BE scale_w arg[b n] arg[b n] ret[n] reduce[b]
void scale_w(const BE::Tensor x, const BE::Tensor g, BE::Tensor y) {
  for (int64_t k = 0; k < y.numel(); ++k) y.data_ptr<float>()[k] = 0;
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i % y.numel()] += in(x)[i] * in(g)[i];
}
"""

RANDOM = np.random.default_rng(3)
A, X, BATCH_A, BATCH_X = (RANDOM.normal(size=s).astype(np.float32) for s in ((3, 4), (4,), (5, 3, 4), (5, 4)))
AT = np.array([1, 1, 3], np.int32)


@pytest.fixture(name="m")
def _module() -> CompiledModule:
    """The module, whose functions have no rules yet."""
    return be_runtime.load_cpp_inline("derivatives", SOURCE)


def linear(m: CompiledModule) -> Function:
    """``sin(a @ x)``, whose product has transposes, and those have some too."""
    m.matvec.deftranspose("outer", linear_in=0)
    m.matvec.deftranspose("matvec_t", linear_in=(1,))
    m.matvec_t.deftranspose(lambda w, g, alpha: m.outer(g, w, alpha=alpha), linear_in=0)
    m.matvec_t.deftranspose("matvec", linear_in=1)
    m.outer.deftranspose("matvec", linear_in=0)
    m.outer.deftranspose(lambda g, w, alpha: m.matvec_t(w, g, alpha=alpha), linear_in=1)
    return lambda a, x: jnp.sin(m.matvec(a, x, alpha=0.5)).sum()


def ruled(m: CompiledModule) -> Function:
    """The same by backward rules, one of them a Python function that calls kernels."""
    rule = lambda given, g, alpha: (m.outer(g, given[1], alpha=alpha), m.matvec_t(given[0], g, alpha=alpha))  # noqa: E731
    m.matvec.defvjp(None, rule)
    m.matvec_t.defvjp(
        None, lambda given, w, alpha: (m.outer(given[1], w, alpha=alpha), m.matvec(given[0], w, alpha=alpha))
    )
    m.outer.defvjp(
        None, lambda given, w, alpha: (m.matvec(w, given[1], alpha=alpha), m.matvec_t(w, given[0], alpha=alpha))
    )
    return lambda a, x: jnp.sin(m.matvec(a, x, alpha=0.5)).sum()


def reference(a: Any, x: Any) -> Any:
    return jnp.sin(0.5 * a @ x).sum()


def agree(found: Any, expected: Any) -> None:
    pairs = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


BOTH = (0, 1)
ORDERS: dict[str, Callable[[Function, Any], Function]] = {
    "grad of vmap": lambda f, axes: jax.grad(lambda *args: jax.vmap(f, axes)(*args).sum(), BOTH),
    "jit of vmap of grad of jit": lambda f, axes: jax.jit(jax.vmap(jax.grad(jax.jit(f), BOTH), axes)),
    "vmap of grad of checkpoint": lambda f, axes: jax.vmap(jax.grad(jax.checkpoint(f), BOTH), axes),
    "grad of checkpoint of vmap": lambda f, axes: jax.grad(
        jax.checkpoint(lambda *args: jax.vmap(f, axes)(*args).sum()), BOTH
    ),
    "grad of scan of vmap": lambda f, axes: jax.grad(
        lambda *args: jax.lax.scan(lambda c, _: (c + jax.vmap(f, axes)(*args).sum(), c), 0.0, None, length=2)[0], BOTH
    ),
    "vmap of grad of grad": lambda f, axes: jax.vmap(jax.grad(lambda *args: jax.grad(f, 1)(*args).sum(), BOTH), axes),
}


@pytest.mark.parametrize("axes", [(None, 0), (0, None), (0, 0)], ids=str)
@pytest.mark.parametrize("rules", [linear, ruled])
@pytest.mark.parametrize("order", ORDERS)
def test_transformations_in_any_order(m: CompiledModule, order: str, rules: Callable[..., Function], axes: Any):
    function = rules(m)
    args = (A if axes[0] is None else BATCH_A, X if axes[1] is None else BATCH_X)
    agree(ORDERS[order](function, axes)(*args), ORDERS[order](reference, axes)(*args))


FORWARD: dict[str, Callable[[Function], Function]] = {
    "jvp": lambda f: lambda a, x: jax.jvp(f, (a, x), (a, x)),
    "vmap of jvp": lambda f: lambda a, x: jax.vmap(lambda t: jax.jvp(lambda x: f(a, x), (x,), (t,)))(jnp.eye(4)),
    "linearize": lambda f: lambda a, x: jax.linearize(lambda x: f(a, x), x)[1](x),
    "hessian": lambda f: jax.jit(jax.hessian(f, BOTH)),
    "linear_transpose": lambda f: lambda a, x: jax.grad(lambda x: jax.jvp(lambda a: f(a, x), (a,), (a,))[1])(x),
}


@pytest.mark.parametrize("order", FORWARD)
def test_a_linear_kernel_has_tangents(m: CompiledModule, order: str):
    agree(FORWARD[order](linear(m))(A, X), FORWARD[order](reference)(A, X))


@pytest.mark.parametrize(
    ("forward", "backward"),
    [
        (None, "cube_bwd"),
        ("cube_fwd", "times"),
        (lambda x: (x**3, x), lambda kept, g: (3 * kept * kept * g,)),
        (None, lambda given, g: (3 * given[0] ** 2 * g,)),
        ("cube_fwd", lambda residuals, g: (residuals[0] * g,)),
        (lambda x: (x**3, 3 * x * x), "times"),
    ],
)
def test_rules_are_kernels_or_functions(m: CompiledModule, forward: Any, backward: Any):
    m.cube.defvjp(forward, backward)
    gradcheck(m.cube, [X])
    agree(jax.vmap(jax.grad(lambda x: m.cube(x).sum()))(BATCH_X), 3 * BATCH_X**2)
    agree(jax.grad(lambda x: jax.vmap(m.cube)(x).sum())(BATCH_X), 3 * BATCH_X**2)


def test_a_second_derivative_uses_the_rules_of_kernels_in_the_first(m: CompiledModule):
    m.cube.defvjp(None, "cube_bwd")
    with pytest.raises(TransformError, match=r"derivatives\.cube_bwd has no derivative"):
        jax.jacrev(jax.jacrev(lambda x: m.cube(x).sum()))(X)
    m.cube_bwd.defvjp(None, lambda given, w: (6 * m.times(given[0], m.times(given[1], w)), 3 * given[0] ** 2 * w))
    agree(jax.jit(jax.jacrev(jax.jacrev(lambda x: m.cube(x).sum())))(X), np.diag(6 * X))


def test_integers_have_no_cotangents(m: CompiledModule):
    m.pick.defvjp(None, "place")
    agree(jax.jit(jax.grad(lambda x: (m.pick(x, AT) ** 2).sum()))(X), np.array([0, 4 * X[1], 0, 2 * X[3]]))
    gradcheck(m.pick, [X, AT])
    m.floor.deftranspose(lambda g: g)
    assert jax.jvp(m.floor, (X,), (X,))[1].dtype == jax.dtypes.float0


@pytest.mark.parametrize("w", [None, 2 * X])
@pytest.mark.parametrize("count", [0, 2])
def test_optional_arrays_and_any_number_of_them(m: CompiledModule, w: Any, count: int):
    def reference(w: Any, x: Any, rest: Any) -> Any:
        return math.prod(rest, start=x if w is None else w * x)

    m.product.deftranspose(lambda w, g, rest: reference(w, g, rest or ()), linear_in=1)
    args = (X, [X + 1, X + 2][:count])
    losses = [lambda *args, f=f: jnp.sin(f(w, *args)).sum() for f in (m.product, reference)]
    agree(jax.grad(losses[0])(*args), jax.grad(losses[1])(*args))
    tangents = [jax.jvp(lambda x, f=f: f(w, x, args[1]), (X,), (X,)) for f in (m.product, reference)]
    agree(*tangents)

    def backward(given: Any, g: Any) -> Any:
        w, x, rest = given
        slopes = [g * reference(w, x, rest) / each for each in (x, *rest)]
        return None if w is None else g * reference(None, x, rest), slopes[0], slopes[1:]

    m.product.defvjp(None, backward)
    agree(jax.grad(losses[0], BOTH)(*args), jax.grad(losses[1], BOTH)(*args))


def test_a_batch_of_a_parallel_kernel_is_one_call_with_derivatives(m: CompiledModule):
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    batched = jax.vmap(m.scale, (0, None))
    assert "for each element" not in str(jax.make_jaxpr(batched)(BATCH_A, X))
    assert "for each element" in str(jax.make_jaxpr(jax.vmap(m.scale))(BATCH_A, BATCH_X)), (
        "no axis b for the batch of w"
    )
    agree(batched(BATCH_A, X), BATCH_A * X)
    agree(jax.vmap(m.scale)(BATCH_A, BATCH_X), BATCH_A * BATCH_X[:, None])
    agree(jax.vmap(jax.vmap(m.scale, (0, None)), (None, 0))(BATCH_A, BATCH_X), BATCH_A * BATCH_X[:, None, None])
    agree(jax.vmap(m.scale, (None, 0))(A, BATCH_X), A * BATCH_X[:, None])
    square: Any = lambda f: jax.grad(lambda *args: (f(*args) ** 2).sum(), BOTH)  # noqa: E731
    agree(square(batched)(BATCH_A, X), square(jnp.multiply)(BATCH_A, X))


def test_rules_hold_from_their_definition_on_and_for_options(m: CompiledModule):
    m.cube.defvjp(None, lambda given, g: (g,))
    slope: Any = lambda f: jax.grad(lambda x: f(x).sum())(X)  # noqa: E731
    agree(slope(m.cube), np.ones(4))
    m.cube.defvjp(None, "cube_bwd")
    agree(slope(m.cube), 3 * X**2)
    agree(slope(m.cube.with_options(has_side_effect=True)), 3 * X**2)


def defvjp(name: str, forward: Any, backward: Any) -> Callable[[CompiledModule], Any]:
    def run(m: CompiledModule) -> Any:
        function, args = m[name], {"cube": (X,), "matvec": (A, X), "times": (X, X)}[name]
        function.defvjp(forward, backward)
        attributes = {"alpha": 1.0} if name == "matvec" else {}
        return jax.grad(lambda *each: function(*each, **attributes).sum())(*args)

    return run


def deftranspose(rule: Any, linear_in: Any = 1) -> Callable[[CompiledModule], Any]:
    def run(m: CompiledModule) -> Any:
        m.matvec.deftranspose(rule, linear_in=linear_in)
        return jax.grad(lambda x: m.matvec(A, x, alpha=1.0).sum())(X)

    return run


def transposed(function: Any, rule: str) -> Any:
    function.deftranspose(rule)
    return function


BAD: dict[str, tuple[Callable[[CompiledModule], Any], str]] = {
    "no rule": (
        lambda m: jax.grad(lambda x: m.cube(x).sum())(X),
        'derivatives.cube.defvjp(forward, backward), with kernels by name, such as "cube_bwd"',
    ),
    "no rule for an argument": (
        lambda m: jax.grad(lambda x: transposed(m.times, "times")(X, x).sum())(X),
        "derivatives.times has no derivative with respect to argument 1",
    ),
    "no such kernel": (
        defvjp("cube", None, "cube_back"),
        "the backward rule of derivatives.cube: module 'derivatives' has no function 'cube_back'; it has matvec",
    ),
    "no function": (
        defvjp("cube", None, 3),
        "the backward rule of derivatives.cube is 3, neither a name nor a function",
    ),
    "forward with other inputs": (
        defvjp("cube", "times", "times"),
        "derivatives.cube: the rule derivatives.times takes 2 arrays (x, g), but the call has 1",
    ),
    "forward without residuals": (
        defvjp("cube", lambda x: x, "times"),
        "must return a pair: the results, and what the backward rule needs",
    ),
    "backward with other axes": (
        defvjp("matvec", None, "place"),
        "derivatives.matvec: the rule derivatives.place: argument 0 has the shape (3, 4), but its axes are declared",
    ),
    "backward with other arrays": (
        defvjp("times", None, "times"),
        "the rule derivatives.times takes 2 arrays, but there are 2 inputs, 0 residuals and 1 cotangents",
    ),
    "backward with another attribute": (
        defvjp("cube", None, "outer"),
        "the rule derivatives.outer needs the attribute 'alpha'",
    ),
    "backward of another dtype": (
        defvjp("cube", "cube_fwd", lambda _, g: (g.astype(jnp.int32),)),
        "gives int32[4] for argument 0, which is float32[4]",
    ),
    "backward of another shape": (
        defvjp("cube", None, lambda _, g: (g[:2],)),
        "gives float32[2] for argument 0, which is float32[4]",
    ),
    "backward with too few": (defvjp("matvec", None, lambda _, g, alpha: (None,)), "gives 1 cotangents for 2 inputs"),
    "backward without a tuple": (defvjp("cube", None, lambda _, g: g), "gives no tuple of cotangents for 1 inputs"),
    "backward kernel with too few": (
        defvjp("times", lambda x, y: (x * y, ()), "cube"),
        "the rule derivatives.cube gives 1 results, but 2 inputs have derivatives",
    ),
    "transpose with other axes": (
        deftranspose("outer"),
        "derivatives.matvec: the rule derivatives.outer: argument 0 has the shape (3, 4)",
    ),
    "transpose of another shape": (
        deftranspose(lambda a, g, alpha: g),
        "gives float32[3] for argument 1, which is float32[4]",
    ),
    "transpose of nothing": (deftranspose(lambda a, g, alpha: None), "gives None for argument 1, which is float32[4]"),
    "linear in no input": (deftranspose("matvec_t", ()), "linear_in is (), but derivatives.matvec has inputs 0 to 1"),
    "linear in an absent input": (
        deftranspose("matvec_t", 2),
        "linear_in is 2, but derivatives.matvec has inputs 0 to 1",
    ),
    "donated twice": (
        lambda m: m.times.with_options(input_output_aliases={0: 0, 1: 0})(X, X),
        "input_output_aliases gives output 0 the memory of inputs 0 and 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_rule_is_named(m: CompiledModule, case: str):
    run, message = BAD[case]
    with pytest.raises((ArgumentError, TransformError), match=re.escape(message)):
        run(m)


def test_a_donated_array_that_is_used_again_is_kept(m: CompiledModule):
    times = m.times.with_options(input_output_aliases={0: 0})
    program = jax.jit(lambda x: times(x, x) + x, donate_argnums=0)
    agree(program(jnp.asarray(X)), X * X + X)


def test_gradcheck_says_where_a_derivative_is_off_and_by_how_much(m: CompiledModule):
    m.cube.defvjp(None, lambda given, g: ((3 * given[0] ** 2 + jnp.array([0, 0, 0.5, 0])) * g,))
    with pytest.raises(GradientError) as caught:
        gradcheck(m.cube, [X])
    text = r".*\.cube: the derivative with respect to argument 0\[2\] is (\S+), but differences give (\S+): (\S+) off"
    found = re.fullmatch(text, caught.value.message)
    assert found, caught.value.message
    given, expected, off = map(float, found.groups())
    assert abs(given - expected) == pytest.approx(off, rel=0.02)
    gradcheck(m.cube, [X], atol=1.0)
    m.matvec.defvjp(None, lambda given, g, alpha: (m.outer(g, given[1], alpha=alpha), m.matvec_t(given[0], g, alpha=1)))
    gradcheck(m.matvec, [A, X], alpha=1)
    with pytest.raises(GradientError, match=r"with respect to argument 1\["):
        gradcheck(m.matvec, [A, X], alpha=2)
    with pytest.raises(ArgumentError, match="none is of floats"):
        gradcheck(m.cube, [AT])
