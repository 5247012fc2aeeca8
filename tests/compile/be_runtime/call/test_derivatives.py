"""Derivatives of entry points by their authors' rules, in any order, also of high-level primitives; and bad rules."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from be_runtime import ArgumentError, CompiledModule, GradientError, TransformError, gradcheck
from be_runtime.jax import internals
from tests.support.jax_names import make_mesh, set_mesh
from tests.support.requirements import OPTIONAL

Function = Callable[..., Any]
RANDOM = np.random.default_rng(3)
A, X, BATCH_A, BATCH_X = (RANDOM.normal(size=s).astype(np.float32) for s in ((3, 4), (4,), (5, 3, 4), (5, 4)))
AT = np.array([1, 1, 3], np.int32)
BOTH = (0, 1)


def linear(m: CompiledModule) -> Function:
    """``sin(a @ x)``, whose product has transposes, and those have some too."""
    m.matvec.deftranspose("product_of", linear_in=0)
    m.matvec.deftranspose("matvec_t", linear_in=(1,))
    m.matvec_t.deftranspose(lambda w, g, alpha: m.product_of(g, w, alpha=alpha), linear_in=0)
    m.matvec_t.deftranspose("matvec", linear_in=1)
    m.product_of.deftranspose("matvec", linear_in=0)
    m.product_of.deftranspose(lambda g, w, alpha: m.matvec_t(w, g, alpha=alpha), linear_in=1)
    return lambda a, x: jnp.sin(m.matvec(a, x, alpha=0.5)).sum()


def ruled(m: CompiledModule) -> Function:
    """The same by backward rules, which are Python functions that call kernels."""
    m.matvec.defvjp(None, lambda x, g, alpha: (m.product_of(g, x[1], alpha=alpha), m.matvec_t(x[0], g, alpha=alpha)))
    m.matvec_t.defvjp(None, lambda x, g, alpha: (m.product_of(x[1], g, alpha=alpha), m.matvec(x[0], g, alpha=alpha)))
    m.product_of.defvjp(None, lambda x, g, alpha: (m.matvec(g, x[1], alpha=alpha), m.matvec_t(g, x[0], alpha=alpha)))
    return lambda a, x: jnp.sin(m.matvec(a, x, alpha=0.5)).sum()


@pytest.mark.parametrize("rules", [linear, ruled])
def test_a_function_with_other_options_keeps_its_rules(m: CompiledModule, rules: Callable[[CompiledModule], Function]):
    expected = jax.grad(rules(m), BOTH)(A, X)
    changed = m.matvec.with_options(has_side_effect=True).with_options(vmap_method="sequential")
    found = jax.grad(lambda a, x: jnp.sin(changed(a, x, alpha=0.5)).sum(), BOTH)(A, X)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def has_high_level_primitives() -> bool:
    try:
        internals.high_level_primitive()
    except TransformError:
        return False
    return True


needs_hijax = pytest.mark.skipif(not has_high_level_primitives(), reason=f"{OPTIONAL}JAX 0.10")


def high_level(m: CompiledModule) -> Function:
    """The same by a high-level primitive of the kernel with transposes."""
    linear(m)
    product = m.matvec.as_hijax()
    return lambda a, x: jnp.sin(product(a, x, alpha=0.5)).sum()


def reference(a: Any, x: Any) -> Any:
    return jnp.sin(0.5 * a @ x).sum()


def square(function: Function) -> Function:
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), BOTH)


def agree(found: Any, expected: Any) -> None:
    pairs = zip(jax.tree_util.tree_leaves(found), jax.tree_util.tree_leaves(expected), strict=True)
    for one, other in pairs:
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-4)


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


AXES = [(None, 0), (0, None), (0, 0)]
CASES = [
    pytest.param(
        order, rules, AXES[(row + shift) % 3], marks=[pytest.mark.full] * ((shift + (rules is linear)) % 3 > 0)
    )
    for row, order in enumerate(ORDERS)
    for rules in (linear, ruled)
    for shift in range(3)
]
"""Each order with each kind of rules once; with all axes in full."""


@pytest.mark.parametrize(("order", "rules", "axes"), CASES)
def test_transformations_in_any_order(m: CompiledModule, order: str, rules: Callable[..., Function], axes: Any):
    args = (A if axes[0] is None else BATCH_A, X if axes[1] is None else BATCH_X)
    agree(ORDERS[order](rules(m), axes)(*args), ORDERS[order](reference, axes)(*args))


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


@needs_hijax
def test_a_high_level_primitive_has_the_rules_of_its_kernel(m: CompiledModule):
    function = high_level(m)
    for forward in FORWARD.values():
        agree(forward(function)(A, X), forward(reference)(A, X))
    for order in ORDERS.values():
        agree(order(function, (0, None))(BATCH_A, X), order(reference, (0, None))(BATCH_A, X))


@needs_hijax
@pytest.mark.parametrize("axes", AXES)
def test_a_second_derivative_follows_arrays_that_the_first_one_keeps(m: CompiledModule, axes: Any):
    args = (A if axes[0] is None else BATCH_A, X if axes[1] is None else BATCH_X)
    order = ORDERS["vmap of grad of grad"]
    agree(order(high_level(m), axes)(*args), order(reference, axes)(*args))


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
    with pytest.raises(ArgumentError, match="a sequence of arrays, not one array"):
        gradcheck(m.cube, X)  # type: ignore[arg-type]
    agree(jax.vmap(jax.grad(lambda x: m.cube(x).sum()))(BATCH_X), 3 * BATCH_X**2)
    agree(jax.grad(lambda x: jax.vmap(m.cube)(x).sum())(BATCH_X), 3 * BATCH_X**2)


def test_a_second_derivative_uses_the_rules_of_kernels_in_the_first(m: CompiledModule):
    m.cube.defvjp(None, "cube_bwd")
    with pytest.raises(TransformError, match=r"kernels\.cube_bwd has no derivative"):
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
    agree(*(jax.jvp(lambda x, f=f: f(w, x, args[1]), (X,), (X,)) for f in (m.product, reference)))

    def backward(given: Any, g: Any) -> Any:
        w, x, rest = given
        slopes = [g * reference(w, x, rest) / each for each in (x, *rest)]
        return None if w is None else g * reference(None, x, rest), slopes[0], slopes[1:]

    m.product.defvjp(None, backward)
    agree(jax.grad(losses[0], BOTH)(*args), jax.grad(losses[1], BOTH)(*args))


@pytest.mark.parametrize("backward", ["shifted_bwd", lambda arrays, g, by: (by * g, None if arrays[1] is None else g)])
def test_a_backward_rule_sees_defaults_and_absent_inputs(m: CompiledModule, backward: Any):
    m.shifted.defvjp(None, backward)
    ones = np.ones_like(X)
    agree(jax.grad(lambda x, y: m.shifted(x, y).sum(), BOTH)(X, X), (3 * ones, ones))
    for absent in ((), (None,)):
        for given, slope in (({}, 3), ({"by": 5}, 5)):
            agree(jax.grad(lambda x, rest=absent, given=given: m.shifted(x, *rest, **given).sum())(X), slope * ones)
    gradcheck(m.shifted, [X, X], by=2)
    gradcheck(jax.vmap(lambda x: m.shifted(x, None)), [jnp.stack([X, X])])


def test_a_sequence_of_inputs_has_a_sequence_of_cotangents(m: CompiledModule):
    m.total.defvjp(None, lambda arrays, g: ([g, 2 * g],))
    agree(jax.grad(lambda x, y: m.total([x, y]).sum(), 1)(X, X), 2 * np.ones(4))
    with pytest.raises(ArgumentError, match=r"total: argument 0\[1\] is None, which is not an array"):
        m.total([X, None])
    with pytest.raises(ArgumentError, match="total: no array of this call has the axis n"):
        m.total([])


def test_a_transpose_is_given_attributes_that_have_no_hash(m: CompiledModule):
    m.weighted.deftranspose("weighted")
    for weights in ([1, 2, 3, 4], np.array([1.0, 2.0, 3.0, 4.0])):
        loss: Any = lambda x, weights=weights: m.weighted(x, weights=weights).sum()  # noqa: E731
        agree([jax.grad(loss)(X), jax.jit(jax.grad(loss))(X)], [np.array(weights)] * 2)


def test_a_batch_of_a_parallel_kernel_is_one_call_with_derivatives(m: CompiledModule):
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    batched, every = jax.vmap(m.scale, (0, None)), jax.vmap(m.scale)
    assert "for each element" not in str(jax.make_jaxpr(batched)(BATCH_A, X))
    assert "for each element" in str(jax.make_jaxpr(every)(BATCH_A, BATCH_X)), "no axis b for the batch of w"
    agree(batched(BATCH_A, X), BATCH_A * X)
    agree(every(BATCH_A, BATCH_X), BATCH_A * BATCH_X[:, None])
    agree(jax.vmap(batched, (None, 0))(BATCH_A, BATCH_X), BATCH_A * BATCH_X[:, None, None])
    agree(jax.vmap(m.scale, (None, 0))(A, BATCH_X), A * BATCH_X[:, None])
    agree(square(batched)(BATCH_A, X), square(jnp.multiply)(BATCH_A, X))


def test_rules_hold_from_their_definition_on_and_for_options(m: CompiledModule):
    m.cube.defvjp(None, lambda given, g: (g,))
    slope: Any = lambda f: jax.grad(lambda x: f(x).sum())(X)  # noqa: E731
    agree(slope(m.cube), np.ones(4))
    m.cube.defvjp(None, "cube_bwd")
    agree(slope(m.cube), 3 * X**2)
    agree(slope(m.cube.with_options(has_side_effect=True)), 3 * X**2)


def defvjp(name: str, *rules: Any) -> Callable[[CompiledModule], Any]:
    def run(m: CompiledModule) -> Any:
        if rules:
            m[name].defvjp(*rules)
        args = {"cube": (X,), "matvec": (A, X), "times": (X, X)}[name]
        return jax.grad(lambda *each: m[name](*each).sum())(*args)

    return run


def deftranspose(rule: Any, linear_in: Any = 1) -> Callable[[CompiledModule], Any]:
    def run(m: CompiledModule) -> Any:
        m.matvec.deftranspose(rule, linear_in=linear_in)
        return jax.grad(lambda x: m.matvec(A, x, alpha=1.0).sum())(X)

    return run


def first_of_two(m: CompiledModule) -> Any:
    m.times.deftranspose("times")
    return jax.grad(lambda x: m.times(X, x).sum())(X)


def donated_twice(m: CompiledModule) -> Any:
    return m.times.with_options(input_output_aliases={0: 0, 1: 0})(X, X)


BAD: list[tuple[Callable[[CompiledModule], Any], str]] = [
    (defvjp("cube"), 'kernels.cube.defvjp(forward, backward), or the names of kernels, such as "cube_bwd"'),
    (first_of_two, "kernels.times has no derivative with respect to argument 1"),
    (defvjp("cube", None, "cub"), "the backward rule of kernels.cube: module 'kernels' has no function 'cub'; it has"),
    (defvjp("cube", None, 3), "the backward rule of kernels.cube is 3, neither a name nor a function"),
    (
        defvjp("cube", "times", "times"),
        "kernels.cube: the rule kernels.times takes 2 arrays (x, g), but the call has 1",
    ),
    (defvjp("cube", lambda x: x, "times"), "must return a pair: the results, and what the backward rule needs"),
    (defvjp("matvec", None, "place"), "kernels.matvec: the rule kernels.place: argument 0 has the shape (3, 4), but"),
    (defvjp("times", None, "times"), "takes 2 arrays, but the call has 2 inputs, 0 residuals and 1 cotangent"),
    (defvjp("cube", None, "product_of"), "the rule kernels.product_of needs the attribute 'alpha'"),
    (defvjp("cube", None, lambda _, g: (g.astype(jnp.int32),)), "gives int32[4] for argument 0, which is float32[4]"),
    (defvjp("cube", "cube_fwd", lambda _, g: (g[:2],)), "gives float32[2] for argument 0, which is float32[4]"),
    (defvjp("matvec", None, lambda _, g, alpha: (None,)), "gives 1 cotangent for 2 inputs"),
    (defvjp("cube", None, lambda _, g: g), "gives no tuple of cotangents for 1 input"),
    (
        defvjp("times", lambda x, y: (x * y, ()), "cube"),
        "gives 1 result, but the call has 2 inputs with derivatives",
    ),
    (deftranspose("product_of"), "kernels.matvec: the rule kernels.product_of: argument 0 has the shape (3, 4)"),
    (deftranspose(lambda a, g, alpha: g), "gives float32[3] for argument 1, which is float32[4]"),
    (deftranspose(lambda a, g, alpha: None), "gives None for argument 1, which is float32[4]"),
    (deftranspose("matvec_t", ()), "linear_in is (), but kernels.matvec has inputs 0 to 1"),
    (deftranspose("matvec_t", 2), "linear_in is 2, but kernels.matvec has inputs 0 to 1"),
    (donated_twice, "input_output_aliases gives output 0 the memory of inputs 0 and 1"),
]


@pytest.mark.parametrize(("run", "message"), BAD, ids=range(len(BAD)))
def test_a_bad_rule_is_named(m: CompiledModule, run: Callable[[CompiledModule], Any], message: str):
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
    text = (
        r".*\.cube: the derivative with respect to argument 0\[2\] is (\S+), but finite differences give (\S+): "
        r"(\S+) off, for a weighted sum of the results"
    )
    found = re.fullmatch(text, caught.value.message)
    assert found, caught.value.message
    given, expected, off = map(float, found.groups())
    assert abs(given - expected) == pytest.approx(off, rel=0.02)
    gradcheck(m.cube, [X], atol=1.0)
    m.matvec.defvjp(None, lambda x, g, alpha: (m.product_of(g, x[1], alpha=alpha), m.matvec_t(x[0], g, alpha=1)))
    gradcheck(m.matvec, [A, X], alpha=1)
    with pytest.raises(GradientError, match=r"with respect to argument 1\["):
        gradcheck(m.matvec, [A, X], alpha=2)
    with pytest.raises(ArgumentError, match="needs an argument with a floating-point dtype"):
        gradcheck(m.cube, [AT])


ROWS, W = (np.random.default_rng(1).normal(size=s).astype(np.float32) for s in ((6, 4), (6,)))


@needs_hijax
def test_it_is_one_equation_with_the_kernels_name_effects_attributes_and_outs(m: CompiledModule):
    text = str(jax.make_jaxpr(m.moments.as_hijax())(ROWS))
    assert "moments" in text
    assert "be_kernel" not in text
    noting = m.note.with_options(has_side_effect=True).as_hijax()
    program = jax.jit(lambda x: (noting(x), x)[1])
    int(m.noted(0.0))
    program(W).block_until_ready()
    assert int(m.noted(0.0)) == 1
    assert [str(effect) for effect in jax.make_jaxpr(program)(W).effects] == ["kernel (side effect)"]
    affine = m.affine.as_hijax()
    np.testing.assert_allclose(jax.jit(lambda x: affine(x, by=2, shift=1, power=2))(ROWS), 2 * ROWS**2 + 1, rtol=1e-6)
    np.testing.assert_allclose(affine(ROWS, by=3, shift=0, power=1), 3 * ROWS, rtol=1e-6)
    with pytest.raises(be_runtime.ArgumentError, match="needs the attribute"):
        affine(ROWS, by=3)


@needs_hijax
@pytest.mark.parametrize("kind", ["automatic", "explicit"])
def test_a_backward_rule_is_used_and_split_as_the_kernels(m: CompiledModule, kind: str):
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    mesh = make_mesh((2,), "x", kind)
    args = [jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((ROWS, P("x", None)), (ROWS[0], P()))]
    program = jax.jit(square(m.scale.as_hijax()))
    with set_mesh(mesh):
        found, text = program(*args), str(program.lower(*args).compile().as_text())
    assert "all-gather" not in text
    assert text.count(" all-reduce(") == 1
    agree(found, square(jnp.multiply)(ROWS, ROWS[0]))


def test_a_jax_without_high_level_primitives_is_named(m: CompiledModule, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax.experimental.hijax", None)
    monkeypatch.delattr(jax.experimental, "hijax", raising=False)
    with pytest.raises(TransformError, match="has no high-level primitives that kernels can be") as caught:
        m.wsum.as_hijax()
    assert "JAX 0.10 or newer" in str(caught.value)
