"""Entry points as methods: shapes, attributes, options and transformations of a call from Python."""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime
from be_runtime import ArgumentError, CompiledModule, RegistrationError, TransformError

SOURCE = r"""
#include "brainevent/common.h"
#include <cmath>
#include <complex>
#include <cstdio>

static const float* floats(const BE::Tensor& x) { return x.data_ptr<float>(); }

// @BE matvec arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1
void matvec(const BE::Tensor a, const BE::Tensor x, BE::Tensor y, float alpha) {
  const int64_t k = x.size(0);
  for (int64_t i = 0; i < y.size(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < k; ++j) sum += floats(a)[i * k + j] * floats(x)[j];
    y.data_ptr<float>()[i] = alpha * sum;
  }
}

// @BE twice arg ret:like(0)
void twice(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * floats(x)[i];
}

// @BE doubled arg[]:float32 ret[]:float32
void doubled(const BE::Tensor x, BE::Tensor y) { *y.data_ptr<float>() = 2 * *floats(x); }
// @BE scale arg ret:like(0) attr.by
void scale(const BE::Tensor x, BE::Tensor y, float by) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = by * floats(x)[i];
}

// @BE add arg[... n] arg[... n] ret[... n]
void add(const BE::Tensor x, const BE::Tensor z, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = floats(x)[i] + floats(z)[i];
}

// @BE path arg ret ret:int32
void path(const BE::Tensor x, BE::Tensor y, BE::Tensor size) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = floats(x)[i % x.numel()];
  if (size.numel() > 0) size.data_ptr<int32_t>()[0] = static_cast<int32_t>(y.numel());
}

// @BE pairs arg[n] ret[n/2 2]
void pairs(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = floats(x)[i];
}

// @BE bins arg[n] ret[attr.count ceil(n/attr.count)-n//n] attr.count
void bins(const BE::Tensor x, BE::Tensor y, int count) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = floats(x)[0] + static_cast<float>(count);
}

enum class Mode { fast, slow };

// @BE choose arg[] ret[]:int32 attr.mode
void choose(const BE::Tensor x, BE::Tensor y, Mode mode) { y.data_ptr<int32_t>()[0] = static_cast<int32_t>(mode); }

// @BE halves arg[n] ret[2]:uint32 attr.of:uint64
void halves(const BE::Tensor, BE::Tensor y, uint64_t of) {
  y.data_ptr<uint32_t>()[0] = uint32_t(of >> 32);
  y.data_ptr<uint32_t>()[1] = uint32_t(of);
}
struct Large { uint64_t k; };
// @BE half_of arg[n] ret[1]:uint32 attr.o
void half_of(const BE::Tensor, BE::Tensor y, Large o) { y.data_ptr<uint32_t>()[0] = uint32_t(o.k >> 32); }
// @BE choose_graph arg[] ret[]:float32 attr.self
void choose_graph(const BE::Tensor x, BE::Tensor y, std::complex<float> self) {
  y.data_ptr<float>()[0] = std::copysign(1.0f, self.imag());
}

static int order = 0;

// @BE stamp arg[] ret[]:int32
void stamp(const BE::Tensor x, BE::Tensor y) { y.data_ptr<int32_t>()[0] = order++; }
"""

X = np.arange(4, dtype=np.float32)


@pytest.fixture(scope="module", params=([], ["-lm"]), ids=("inlined", "shared"), name="module")
def _module(request: pytest.FixtureRequest) -> CompiledModule:
    """The module, whose handlers are compiled with their entry points, and not."""
    with pytest.warns(UserWarning, match=r"its own attributes, which are now module\.info\.path$"):
        return be_runtime.load_cpp_inline(f"callables{len(request.param)}", SOURCE, extra_ldflags=request.param)


def test_a_call_derives_its_result(module: CompiledModule) -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert module.matvec(a, X, alpha=2).tolist() == [28, 76, 124]
    assert module.matvec(a, X, alpha=2.5).tolist() == [35, 95, 155]
    assert jax.jit(lambda x: module.twice(module.twice(x)))(X).tolist() == [0, 4, 8, 12]
    assert module.pairs(X).shape == (2, 2)
    assert module.bins(X, count=3).tolist() == [[3], [3], [3]]
    with jax.disable_jit():
        assert module.twice(X).tolist() == [0, 2, 4, 6]


def test_a_function_comes_before_what_the_module_has_itself(module: CompiledModule) -> None:
    assert isinstance(module.info.path, Path)
    path: Any = module.path
    assert path is module["path"]
    y, size = path(X, outs=[jax.ShapeDtypeStruct((6,), jnp.float32), jax.ShapeDtypeStruct((1,), jnp.int32)])
    assert y.tolist() == [0, 1, 2, 3, 0, 1]
    assert size.tolist() == [6]
    assert "twice" in dir(module)
    with pytest.raises(AttributeError, match="has no function 'tice'; it has matvec, twice") as refused:
        _ = module.tice
    assert (refused.value.name, refused.value.obj) == ("tice", module)  # for "Did you mean: 'twice'?"
    with pytest.raises(KeyError, match="has no function 'tice'"):
        _ = module["tice"]


def test_outs_a_struct_gives_an_array_and_a_sequence_a_tuple(module: CompiledModule) -> None:
    out = jax.ShapeDtypeStruct((4,), jnp.float32)
    assert isinstance(module.twice(X), jax.Array)
    assert isinstance(module.twice(X, outs=out), jax.Array)
    assert isinstance(module.twice(X, outs=X), jax.Array)
    for outs in ([out], (out,), [X], (jnp.asarray(X),)):
        (y,) = module.twice(X, outs=outs)
        assert y.tolist() == [0, 2, 4, 6]
    like = module["path"].with_options(
        outs=lambda x: (jax.ShapeDtypeStruct((2 * x.size,), x.dtype), jax.ShapeDtypeStruct((1,), jnp.int32))
    )
    assert [each.shape for each in like(X)] == [(8,), (1,)]


def test_the_sign_of_zero_and_the_type_of_a_number_are_kept(module: CompiledModule) -> None:
    one = np.ones(1, np.float32)
    for by in (0.0, -0.0, 0, -0.0, 0.0, np.float32(-0.0), math.nan, 1, True, 1.0):
        found = module.scale(one, by=by).item()
        assert np.float32(found).tobytes() == np.float32(by).tobytes(), by


class Number(enum.IntEnum):
    fast = 1


class Other(enum.IntEnum):
    slow = 1


def test_equal_values_of_other_types_are_other_attributes(module: CompiledModule) -> None:
    assert [module.choose(0, mode=mode).item() for mode in (Number.fast, Other.slow)] == [0, 1]
    with pytest.raises(ArgumentError, match="mode is 1, which is not one of fast, slow"):
        module.choose(0, mode=1)
    numbers = (0.0, 0j, complex(0, -0.0), 1.0, complex(1, -0.0))
    assert [module.choose_graph(0, self=number).item() for number in numbers] == [1, 1, -1, 1, -1]


def test_an_array_that_changes_leaves_programs_alone(module: CompiledModule) -> None:
    count = np.array(3)
    assert module.bins(X, count=count).shape == (3, 1)
    count[...] = 5
    assert module.bins(X[:3], count=3).shape == (3, 0)
    assert module.bins(X[:3], count=count).shape == (5, 0)


@pytest.mark.parametrize(
    ("function", "arrays", "attributes", "message"),
    [
        ("matvec", [(3, 4), (5,)], {}, "axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)"),
        ("matvec", [(3, 4)], {}, "matvec takes 2 arrays (a, x), but the call has 1"),
        ("matvec", [(3, 4), (4,)], {"alhpa": 1}, "has no attribute 'alhpa'; it takes (alpha: float32 = 1.0)"),
        ("scale", [(3,)], {"by": 1e39}, "by is 1e+39, which is not a valid float32"),
        ("scale", [(3,)], {}, "needs the attribute 'by'"),
        ("pairs", [(3,)], {}, "n/2 can't be computed for n = 3: 3 is not divisible by 2"),
        ("path", [(3,)], {}, "the shape of result 0 does not follow from the arg_spec"),
        ("path", [(3,)], {"outs": {"a": X}}, "outs is {'a': array("),
    ],
)
def test_a_bad_call_is_refused_before_anything_runs(
    module: CompiledModule, function: str, arrays: list[tuple[int, ...]], attributes: dict[str, Any], message: str
) -> None:
    given = [np.ones(shape, np.float32) for shape in arrays]
    for run in (module[function], jax.jit(lambda *each: module[function](*each, **attributes))):
        with pytest.raises(ArgumentError) as caught:
            run(*given, **attributes) if run is module[function] else run(*given)
        assert message in caught.value.message


TRACED: dict[str, Callable[[Any], Any]] = {
    "jit": lambda scale: jax.jit(scale)(X, by=2),
    "grad": lambda scale: jax.grad(lambda by: scale(X, by=by).sum())(2.0),
    "vmap": lambda scale: jax.vmap(lambda by: scale(X, by=by))(X),
    "scan": lambda scale: jax.lax.scan(lambda none, by: (none, scale(X, by=by)), None, X),
}


@pytest.mark.parametrize("how", TRACED)
def test_an_attribute_that_is_traced_says_how_to_bind_it(module: CompiledModule, how: str) -> None:
    with pytest.raises(ArgumentError, match="by is an attribute, which is compiled into the program") as caught:
        TRACED[how](module.scale)
    assert caught.value.hints[0].endswith("jax.jit(functools.partial(scale, by=...))")
    expected = module.scale(X, by=2)
    assert (jax.jit(functools.partial(module.scale, by=2))(X) == expected).all()
    assert (jax.jit(module.scale, static_argnames=("by",))(X, by=2) == expected).all()


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), jnp.asarray(3)])
def test_a_number_takes_the_declared_dtype(module: CompiledModule, value: Any) -> None:
    assert float(module.doubled(value)) == 6
    assert float(jax.jit(module.doubled)(value)) == 6


@pytest.mark.parametrize("value", [3j, np.int32(3), True])
def test_a_number_of_another_kind_does_not(module: CompiledModule, value: Any) -> None:
    with pytest.raises(ArgumentError, match="but float32 is declared"):
        module.doubled(value)


def test_a_number_that_jax_has_no_integer_for_is_named(module: CompiledModule) -> None:
    with pytest.raises(ArgumentError, match="doubled: argument 0 is 1099511627776, which is too large"):
        module.doubled(2**40)


def test_what_is_no_array_is_named(module: CompiledModule) -> None:
    with pytest.raises(ArgumentError, match="add: argument 1 is 'text', which is not an array"):
        module.add(X, "text")


@pytest.mark.parametrize("value", [1, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_integer_of_64_bits_reaches_the_kernel(module: CompiledModule, value: int) -> None:
    for run in (module.halves, jax.jit(module.halves, static_argnames="of")):
        high, low = run(X, of=value).tolist()
        assert (high << 32 | low, module.half_of(X, o={"k": value}).tolist()) == (value, [value >> 32])


def test_the_handler_checks_computed_axes_of_ffi_call_too(module: CompiledModule) -> None:
    def call(function: str, shape: tuple[int, ...], **attributes: Any) -> Any:
        out = jax.ShapeDtypeStruct(shape, jnp.float32)
        return jax.ffi.ffi_call(f"{module.name}.{function}", out)(X, **attributes)

    assert call("pairs", (2, 2)).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"\[n/2 2\], which makes axis 0 2, and it is 3 in result 0"):
        call("pairs", (3, 2))
    assert call("bins", (3, 1), count=np.int32(3)).shape == (3, 1)
    for shape, count in (((3, 2), 3), ((2, 1), 3), ((1, 1), 0)):
        with pytest.raises(jax.errors.JaxRuntimeError, match="its axes are declared as"):
            call("bins", shape, count=np.int32(count))


def test_vmap_of_declared_leading_axes_needs_no_method(module: CompiledModule) -> None:
    batch = np.arange(12, dtype=np.float32).reshape(3, 4)
    text = str(jax.make_jaxpr(jax.vmap(module.add, in_axes=(0, None)))(batch, X))
    assert text.count("be_kernel") == 1
    assert "for each element" not in text
    assert jnp.array_equal(jax.vmap(module.add, in_axes=(0, None))(batch, X), batch + X)
    nested = jax.vmap(jax.vmap(module.add, in_axes=(None, 0)), in_axes=(0, None))(batch, batch)
    assert jnp.array_equal(nested, batch[:, None] + batch)


@pytest.mark.parametrize(
    "method", ["sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized"]
)
def test_vmap_by_a_method(module: CompiledModule, method: str) -> None:
    batch = np.arange(12, dtype=np.float32).reshape(3, 4)
    twice = module.twice.with_options(vmap_method=method)
    assert jnp.array_equal(jax.vmap(twice, in_axes=1, out_axes=1)(batch), 2 * batch)


def test_a_transformation_without_a_rule_says_what_to_write(module: CompiledModule) -> None:
    with pytest.raises(TransformError, match="has no rule for vmap") as caught:
        jax.vmap(module.twice)(np.ones((2, 3), np.float32))
    assert 'with_options(vmap_method="sequential")' in str(caught.value)
    with pytest.raises(TransformError, match="has no derivative"):
        jax.grad(lambda x: module.twice(x).sum())(X)


def test_layouts_and_aliases_are_those_of_ffi_call(module: CompiledModule) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    same = module.twice.with_options(input_layouts=[(1, 0)], output_layouts=[(1, 0)])
    assert jnp.array_equal(same(x), 2 * x)
    turned = module.twice.with_options(input_layouts=[(1, 0)])
    assert turned(x).ravel().tolist() == (2 * x.T).ravel().tolist()
    assert jnp.array_equal(module.twice.with_options(input_output_aliases={0: 0})(X), 2 * X)
    with pytest.raises(ArgumentError, match="twice: output_layouts describes 2 arrays, but the call has 1"):
        module.twice.with_options(output_layouts=[None, None])(X)
    with pytest.raises(ArgumentError, match="input_layouts must have a sequence of axes"):
        module.twice.with_options(input_layouts=[3])  # type: ignore[list-item]
    with pytest.raises(ArgumentError, match="not a permutation"):
        module.twice.with_options(input_layouts=[(1, 1)])
    with pytest.raises(ArgumentError, match="can't be output 0"):
        module.pairs.with_options(input_output_aliases={0: 0})(X)


def test_a_side_effect_keeps_a_call_whose_result_is_unused(module: CompiledModule) -> None:
    before = int(module.stamp(1.0))
    stamp = module.stamp.with_options(has_side_effect=True)
    jax.jit(lambda x: (module.stamp(x), stamp(x), stamp(x + 1), x)[3])(1.0).block_until_ready()
    assert int(module.stamp(1.0)) == before + 3


def test_ordered_calls_run_in_the_order_of_the_program(module: CompiledModule) -> None:
    stamp = module.stamp.with_options(ordered=True)

    @jax.jit
    def program(x: Any) -> Any:
        first = [stamp(x + i) for i in range(26)]
        looped = jax.lax.fori_loop(0, 5, lambda _, at: stamp(at.astype(jnp.float32)), jnp.int32(0))
        return [*first, looped, stamp(x)]

    found = [int(each) for each in program(1.0)]
    assert found[:26] == list(range(found[0], found[0] + 26))
    assert found[26:] == [found[0] + 30, found[0] + 31]
    assert [str(each) for each in jax.make_jaxpr(program)(1.0).effects] == ["kernel (ordered)"]


def test_targets_are_named_by_content(module: CompiledModule) -> None:
    text = jax.jit(module.twice).lower(X).as_text()
    assert f"@be.{module.content_hash[:32]}.be_ffi_{module.name}_twice" in text
    assert f"be.{module.content_hash[:32]}.be_ffi_{module.name}_twice" in be_runtime.list_registered_targets("cpu")


def test_a_platform_without_a_kernel_is_named(module: CompiledModule) -> None:
    with pytest.raises(RegistrationError, match=rf"{module.name}.twice has no kernel for cuda") as caught:
        jax.jit(module.twice).trace(X).lower(lowering_platforms=("cuda",))
    assert f"be_ffi_{module.name}_twice for cpu" in str(caught.value)


def test_reprs_are_what_an_author_wrote(module: CompiledModule) -> None:
    assert repr(module.matvec) == f"<{module.name}.matvec: arg[n k] arg[k] ret[n]:like(0) attr.alpha:float32=1.0>"
    assert f"call={module.name}.scale(by={np.float32(2)!r})" in str(jax.make_jaxpr(lambda x: module.scale(x, by=2))(X))
