"""Entry points as methods: shapes, attributes, options and transformations of a call, and frames of its errors."""

from __future__ import annotations

import enum
import functools
import math
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, CompiledModule, RegistrationError, TransformError, frames

X = np.arange(4, dtype=np.float32)
ROWS = np.arange(12, dtype=np.float32).reshape(3, 4)


def struct(count: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), dtype)


def test_a_call_derives_its_result(m: CompiledModule) -> None:
    assert m.matvec(ROWS, X, alpha=2).tolist() == [28, 76, 124]
    assert m.matvec(ROWS, X, alpha=2.5).tolist() == [35, 95, 155]
    assert jax.jit(lambda x: m.twice(m.twice(x)))(X).tolist() == [0, 4, 8, 12]
    assert m.pairs(X).shape == (2, 2)
    assert m.bins(X, count=3).tolist() == [[3], [3], [3]]
    with jax.disable_jit():
        assert m.twice(X).tolist() == [0, 2, 4, 6]


def test_a_name_that_is_near_is_found_by_python(m: CompiledModule) -> None:
    with pytest.raises(AttributeError, match="has no function 'tice'") as refused:
        _ = m.tice
    assert (refused.value.name, refused.value.obj) == ("tice", m)  # for "Did you mean: 'twice'?"


def test_outs_a_struct_gives_an_array_and_a_sequence_a_tuple(m: CompiledModule) -> None:
    for outs in (None, struct(4), X):
        assert isinstance(m.twice(X, outs=outs), jax.Array)
    for each in ([struct(4)], (struct(4),), [X], (jnp.asarray(X),)):
        (y,) = m.twice(X, outs=each)
        assert y.tolist() == [0, 2, 4, 6]
    y, size = m.repeat(X, outs=[struct(6), struct(1, jnp.int32)])
    assert (y.tolist(), size.tolist()) == ([0, 1, 2, 3, 0, 1], [6])
    like = m.repeat.with_options(outs=lambda x: (struct(2 * x.size, x.dtype), struct(1, jnp.int32)))
    assert [each.shape for each in like(X)] == [(8,), (1,)]


class Number(enum.IntEnum):
    fast = 1


class Other(enum.IntEnum):
    slow = 1


def test_equal_values_with_other_bits_or_types_are_other_attributes(m: CompiledModule) -> None:
    one = np.ones(1, np.float32)
    for by in (0.0, -0.0, 0, -0.0, 0.0, np.float32(-0.0), math.nan, 1, True, 1.0):
        assert np.float32(m.scaled(one, by=by).item()).tobytes() == np.float32(by).tobytes(), by
    assert [m.choose(0, mode=mode).item() for mode in (Number.fast, Other.slow)] == [0, 1]
    with pytest.raises(ArgumentError, match="mode is 1, which is not one of fast, slow"):
        m.choose(0, mode=1)
    numbers = (0.0, 0j, complex(0, -0.0), 1.0, complex(1, -0.0))
    assert [m.sign(0, self=number).item() for number in numbers] == [1, 1, -1, 1, -1]


def test_an_array_that_changes_leaves_programs_alone(m: CompiledModule) -> None:
    count = np.array(3)
    assert m.bins(X, count=count).shape == (3, 1)
    count[...] = 5
    assert m.bins(X[:3], count=3).shape == (3, 0)
    assert m.bins(X[:3], count=count).shape == (5, 0)


@pytest.mark.parametrize(
    ("function", "arrays", "attributes", "message"),
    [
        ("matvec", [(3, 4), (5,)], {}, "axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)"),
        ("matvec", [(3, 4), (4,)], {"alhpa": 1}, "has no attribute 'alhpa'; it takes (alpha: float32 = 1.0)"),
        ("scaled", [(3,)], {}, "needs the attribute 'by'"),
        ("repeat", [(3,)], {"outs": {"a": X}}, "outs is {'a': array("),
    ],
)
def test_a_bad_call_is_refused_before_anything_runs(
    m: CompiledModule, function: str, arrays: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    bound = functools.partial(m[function], **attributes)
    for run in (bound, jax.jit(bound)):
        with pytest.raises(ArgumentError) as caught:
            run(*(np.ones(shape, np.float32) for shape in arrays))
        assert message in caught.value.message


TRACED: dict[str, Callable[[Any], Any]] = {
    "jit": lambda scaled: jax.jit(scaled)(X, by=2),
    "grad": lambda scaled: jax.grad(lambda by: scaled(X, by=by).sum())(2.0),
    "vmap": lambda scaled: jax.vmap(lambda by: scaled(X, by=by))(X),
    "scan": lambda scaled: jax.lax.scan(lambda none, by: (none, scaled(X, by=by)), None, X),
}


@pytest.mark.parametrize("how", TRACED)
def test_an_attribute_that_is_traced_says_how_to_bind_it(m: CompiledModule, how: str) -> None:
    with pytest.raises(ArgumentError, match="by is an attribute, which is compiled into the program") as caught:
        TRACED[how](m.scaled)
    assert caught.value.hints[0].endswith("jax.jit(functools.partial(scaled, by=...))")
    expected = m.scaled(X, by=2)
    assert (jax.jit(functools.partial(m.scaled, by=2))(X) == expected).all()
    assert (jax.jit(m.scaled, static_argnames=("by",))(X, by=2) == expected).all()


def test_a_number_takes_the_declared_dtype_if_it_is_of_its_kind(m: CompiledModule) -> None:
    for value in (3, 3.0, np.float32(3), jnp.asarray(3)):
        assert float(m.doubled(value)) == float(jax.jit(m.doubled)(value)) == 6
    for other in (3j, np.int32(3), True):
        with pytest.raises(ArgumentError, match="but float32 is declared"):
            m.doubled(other)
    with pytest.raises(ArgumentError, match="doubled: argument 0 is 1099511627776, which is too large"):
        m.doubled(2**40)
    with pytest.raises(ArgumentError, match="times: argument 1 is 'text', which is not an array"):
        m.times(X, "text")


def test_vmap_of_declared_leading_axes_needs_no_method(m: CompiledModule) -> None:
    batched = jax.vmap(m.times, in_axes=(0, None))
    text = str(jax.make_jaxpr(batched)(ROWS, X))
    assert text.count("be_kernel") == 1
    assert "for each element" not in text
    assert jnp.array_equal(batched(ROWS, X), ROWS * X)
    nested = jax.vmap(jax.vmap(m.times, in_axes=(None, 0)), in_axes=(0, None))(ROWS, ROWS)
    assert jnp.array_equal(nested, ROWS[:, None] * ROWS)


def test_vmap_by_a_method(m: CompiledModule) -> None:
    for method in ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"):
        twice = m.twice.with_options(vmap_method=method)
        assert jnp.array_equal(jax.vmap(twice, in_axes=1, out_axes=1)(ROWS), 2 * ROWS), method


def test_a_transformation_without_a_rule_says_what_to_write(m: CompiledModule) -> None:
    with pytest.raises(TransformError, match="has no rule for vmap") as caught:
        jax.vmap(m.twice)(ROWS)
    assert 'with_options(vmap_method="sequential")' in str(caught.value)
    with pytest.raises(TransformError, match="has no derivative"):
        jax.grad(lambda x: m.twice(x).sum())(X)


def test_layouts_and_aliases_are_those_of_ffi_call(m: CompiledModule) -> None:
    same = m.twice.with_options(input_layouts=[(1, 0)], output_layouts=[(1, 0)])
    assert jnp.array_equal(same(ROWS), 2 * ROWS)
    turned = m.twice.with_options(input_layouts=[(1, 0)])
    assert turned(ROWS).ravel().tolist() == (2 * ROWS.T).ravel().tolist()
    assert jnp.array_equal(m.twice.with_options(input_output_aliases={0: 0})(X), 2 * X)
    with pytest.raises(ArgumentError, match="twice: output_layouts describes 2 arrays, but the call has 1"):
        m.twice.with_options(output_layouts=[None, None])(X)
    with pytest.raises(ArgumentError, match="input_layouts must have a sequence of axes"):
        m.twice.with_options(input_layouts=[3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="not a permutation"):
        m.twice.with_options(input_layouts=[(1, 1)])
    with pytest.raises(ArgumentError, match="can't be output 0"):
        m.pairs.with_options(input_output_aliases={0: 0})(X)


def test_a_side_effect_keeps_a_call_whose_result_is_unused(m: CompiledModule) -> None:
    before = int(m.stamp(1.0))
    stamp = m.stamp.with_options(has_side_effect=True)
    jax.jit(lambda x: (m.stamp(x), stamp(x), stamp(x + 1), x)[3])(1.0).block_until_ready()
    assert int(m.stamp(1.0)) == before + 3


def test_ordered_calls_run_in_the_order_of_the_program(m: CompiledModule) -> None:
    stamp = m.stamp.with_options(ordered=True)

    @jax.jit
    def program(x: Any) -> Any:
        first = [stamp(x + i) for i in range(26)]
        looped = jax.lax.fori_loop(0, 5, lambda _, at: stamp(at.astype(jnp.float32)), jnp.int32(0))
        return [*first, looped, stamp(x)]

    found = np.array(program(1.0))
    assert (found - found[0]).tolist() == [*range(26), 30, 31]
    assert [str(each) for each in jax.make_jaxpr(program)(1.0).effects] == ["kernel (ordered)"]


def test_targets_are_named_by_content_and_of_one_platform(m: CompiledModule) -> None:
    target = f"be.{m.content_hash[:32]}.be_ffi_kernels_twice"
    assert f"@{target}" in jax.jit(m.twice).lower(X).as_text()
    assert target in be_runtime.list_registered_targets("cpu")
    with pytest.raises(RegistrationError, match=r"kernels.twice has no kernel for cuda") as caught:
        jax.jit(m.twice).trace(X).lower(lowering_platforms=("cuda",))
    assert "it has cpu" in str(caught.value)
    assert any("put the arrays on another device" in hint for hint in caught.value.hints)


def test_reprs_are_what_an_author_wrote(m: CompiledModule) -> None:
    assert repr(m.matvec) == "<kernels.matvec: arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1.0>"
    assert f"call=kernels.scaled(by={np.float32(2)!r})" in str(jax.make_jaxpr(lambda x: m.scaled(x, by=2))(X))


PACKAGE = str(Path(be_runtime.__file__).parent)
INTS = np.ones(4, np.int32)


def callback(*_: Any, **_keywords: Any) -> Any:
    raise ValueError("mine")


def given_rule(m: CompiledModule) -> Any:
    m.cube.defvjp(None, callback)
    return m.cube


CALLS: dict[str, Callable[[CompiledModule], Any]] = {
    "eager": lambda m: m.adds(INTS, X),
    "jit": lambda m: jax.jit(m.adds)(INTS, X),
    "jit of a function": lambda m: jax.jit(lambda x: m.adds(x + 1, X))(INTS),
    "attribute": lambda m: m.scaled(X, by="a"),
    "attribute inside jit": lambda m: jax.jit(lambda x: m.scaled(x, bye=1))(X),
    "vmap": lambda m: jax.vmap(lambda x: m.twice(x, outs=X))(np.ones((2, 4), np.float32)),
    "grad": lambda m: jax.grad(lambda x: m.twice(x).sum())(X),
    "callback": lambda m: m.twice(X, outs=callback),
    "callback of grad": lambda m: jax.grad(lambda x: given_rule(m)(x).sum())(X),
    "no function": lambda m: m.h,
    "no item": lambda m: m["h"],
    "option": lambda m: m.twice.with_options(vmap_method="x"),
    "rule": lambda m: m.twice.defvjp("a", "b"),
    "compile error": lambda _: be_runtime.load_cpp_inline("bad_frames", "// @BE f\nvoid f(BE::Tensor y) { oops; }"),
}


def caught(call: Callable[[CompiledModule], Any], m: CompiledModule) -> tuple[int, str]:
    """The package's frames in an error, and the function of the last frame."""
    with pytest.raises(Exception) as found:
        call(m)
    text = "".join(traceback.format_exception(found.value))
    return text.count(f'File "{PACKAGE}'), traceback.extract_tb(found.value.__traceback__)[-1].name


@pytest.mark.parametrize("way", CALLS)
def test_an_error_ends_at_the_users_line(way: str, m: CompiledModule) -> None:
    assert caught(CALLS[way], m) == (0, "callback" if "callback" in way else "<lambda>")
    before = frames.filtering()
    jax.config.update("jax_traceback_filtering", "off")
    try:
        assert caught(CALLS[way], m)[0] > 0
    finally:
        jax.config.update("jax_traceback_filtering", before)


def test_checked_calls_too() -> None:
    source = (
        '#include "brainevent/common.h"\n// @BE adds arg[n]:float32 ret\nvoid adds(const BE::Tensor, BE::Tensor) {}'
    )
    m = be_runtime.load_cpp_inline("checked_frames", source)
    with be_runtime.debug(on_finding="collect"):
        assert caught(CALLS["eager"], m) == (0, "<lambda>")
