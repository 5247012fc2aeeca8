"""Programs for any extents: functions of modules in `jax.export` with symbolic shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import be_runtime
from be_runtime import ArgumentError, CompiledModule
from be_runtime.errors import TransformError
from tests.support.runtime import ROOT, run_python

SOURCE = """
#include <cstring>
#include "brainevent/common.h"
// @BE twice arg[n] ret[2*n]:like(0)
void twice(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i / 2];
}
// @BE blocks arg[n] ret[ceil(n/4)]:float32 scratch[4*ceil(n/4)]
void blocks(const BE::Tensor x, BE::Tensor y, BE::Workspace scratch) {
  BE_CHECK(scratch.size() == static_cast<size_t>(y.nbytes())) << scratch.size();
  float* parts = scratch.data_as<float>();
  for (int64_t i = 0; i < y.numel(); ++i) parts[i] = 0;
  for (int64_t i = 0; i < x.numel(); ++i) parts[i / 4] += x.data_ptr<float>()[i];
  std::memcpy(y.data(), parts, scratch.size());
}
// @BE sums arg[b k] ret[b]:like(0) scratch[4*b] parallel[b]
void sums(const BE::Tensor x, BE::Tensor y, BE::Workspace scratch) {
  BE_CHECK(scratch.size() == static_cast<size_t>(y.nbytes())) << scratch.size();
  for (int64_t i = 0; i < x.size(0); ++i) {
    y.data_ptr<float>()[i] = 0;
    for (int64_t j = 0; j < x.size(1); ++j) y.data_ptr<float>()[i] += x.data_ptr<float>()[i * x.size(1) + j];
  }
}
// @BE product arg[n k] arg[k] ret[n]:like(0)
void product(const BE::Tensor a, const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < a.size(0); ++i) {
    y.data_ptr<float>()[i] = 0;
    for (int64_t j = 0; j < a.size(1); ++j)
      y.data_ptr<float>()[i] += a.data_ptr<float>()[i * a.size(1) + j] * x.data_ptr<float>()[j];
  }
}
static void copy(const BE::Tensor& x, BE::Tensor& y) {
  std::memset(y.data(), 0, static_cast<size_t>(y.nbytes()));
  std::memcpy(y.data(), x.data(), static_cast<size_t>(x.nbytes() < y.nbytes() ? x.nbytes() : y.nbytes()));
}
// @BE pick arg[n] ret[n/2]:like(0)
void pick(const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE first arg[n] ret[min(n, 3)]:like(0)
void first(const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE padded arg[n] ret[max(3, n)]:like(0)
void padded(const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE inner arg[n] ret[n-2]:like(0)
void inner(const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE three arg[3 n] ret[n]:like(0)
void three(const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE pairs arg[n] arg[2*n] ret[n]:like(0)
void pairs(const BE::Tensor, const BE::Tensor x, BE::Tensor y) { copy(x, y); }
// @BE rows arg[... n] arg[... n] ret[... n]:like(0)
void rows(const BE::Tensor x, const BE::Tensor, BE::Tensor y) { copy(x, y); }
// @BE repeated arg[n] attr.times:int32 ret[attr.times n]:like(0)
void repeated(const BE::Tensor x, int32_t times, BE::Tensor y) {
  for (int64_t i = 0; i < times * x.numel(); ++i) y.data_ptr<float>()[i] = x.data_ptr<float>()[i % x.numel()];
}
// @BE grow inout[... n]:float32
void grow(BE::Tensor x) {
  for (int64_t i = 0; i < x.numel(); ++i) x.data_ptr<float>()[i] += 1;
}
"""


@pytest.fixture(scope="module")
def m() -> CompiledModule:
    module = be_runtime.load_cpp_inline("symbolic", SOURCE)
    module.twice.deftranspose(lambda g: g.reshape(-1, 2).sum(1))
    return module


def spec(shape: str, **options: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(jax.export.symbolic_shape(shape, **options), jnp.float32)


def example(shape: Sequence[int]) -> jax.Array:
    return jnp.arange(np.prod(shape), dtype=jnp.float32).reshape(shape) ** 2


def by_jax(function: Callable[..., Any], *args: Any) -> Any:
    """Export a function as users of JAX do, and read it again."""
    traced = jax.jit(function)
    traced.trace(*args)
    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in be_runtime.list_registered_targets()]
    return jax.export.deserialize(jax.export.export(traced, disabled_checks=checks)(*args).serialize())


Function = Callable[[CompiledModule, Any], Any]
PROGRAMS: dict[str, tuple[Function, jax.ShapeDtypeStruct, tuple[tuple[int, ...], tuple[int, ...]]]] = {
    "expression": (lambda m, x: m.twice(x), spec("n"), ((3,), (5,))),
    "scratch": (lambda m, x: m.blocks(x), spec("n"), ((3,), (9,))),
    "two axes": (lambda m, x: m.sums(x), spec("b, n"), ((2, 3), (5, 1))),
    "shared axis": (lambda m, x: m.product(x, x[0]), spec("b, n"), ((2, 3), (5, 1))),
    "equal by a constraint": (
        lambda m, x: m.product(x, x[:, 0]),
        spec("b, n", constraints=("b == n",)),
        ((2, 2), (5, 5)),
    ),
    "divisible": (lambda m, x: m.pick(x), spec("2*k"), ((6,), (2,))),
    "known to be divisible": (lambda m, x: m.pick(x), spec("n", constraints=("mod(n, 2) == 0",)), ((6,), (2,))),
    "minimum": (lambda m, x: m.first(x), spec("n"), ((2,), (5,))),
    "maximum": (lambda m, x: m.padded(x), spec("n"), ((2,), (5,))),
    "bounded": (lambda m, x: m.inner(x), spec("n", constraints=("n >= 2",)), ((2,), (5,))),
    "fixed axis": (lambda m, x: m.three(x), spec("3, n"), ((3, 2), (3, 5))),
    "expression of an input": (lambda m, x: m.pairs(x[::2], x), spec("2*k"), ((6,), (2,))),
    "leading axes": (lambda m, x: m.rows(x, x), spec("a, b, n"), ((1, 2, 3), (2, 1, 4))),
    "attribute": (lambda m, x: m.repeated(x, times=2), spec("n"), ((3,), (5,))),
    "in place": (lambda m, x: m.grow(x), spec("b, n"), ((2, 3), (1, 4))),
    "outs": (
        lambda m, x: m.twice(x, outs=jax.ShapeDtypeStruct((2 * x.shape[0],), x.dtype)),
        spec("n"),
        ((3,), (5,)),
    ),
    "function for outs": (
        lambda m, x: m.twice.with_options(outs=lambda a: jax.ShapeDtypeStruct((2 * a.shape[0],), a.dtype))(x),
        spec("n"),
        ((3,), (5,)),
    ),
    "side effect": (lambda m, x: m.grow.with_options(has_side_effect=True)(x), spec("b, n"), ((2, 3), (1, 4))),
    "merged batch": (lambda m, x: jax.vmap(m.sums)(x), spec("a, b, n"), ((2, 3, 4), (3, 1, 5))),
    "batch of known size": (lambda m, x: jax.vmap(m.sums)(x), spec("3, b, n"), ((3, 3, 4), (3, 1, 5))),
    "loop over a batch": (lambda m, x: jax.vmap(m.blocks)(x), spec("b, n"), ((2, 3), (4, 9))),
    "loops within each other": (lambda m, x: jax.vmap(jax.vmap(m.blocks))(x), spec("a, b, n"), ((2, 3, 5), (1, 4, 9))),
    "batch of one argument": (lambda m, x: jax.vmap(m.product, (None, 0))(x, x), spec("b, n"), ((2, 3), (4, 1))),
    "whole batch": (lambda m, x: jax.vmap(m.grow)(x), spec("b, n"), ((2, 3), (4, 1))),
    "gradient": (lambda m, x: jax.grad(lambda x: (m.twice(x) ** 2).sum())(x), spec("n"), ((2,), (5,))),
    "gradients of a batch": (
        lambda m, x: jax.vmap(jax.grad(lambda x: (m.twice(x) ** 2).sum()))(x),
        spec("b, n"),
        ((2, 3), (4, 1)),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_program_gives_the_results_of_the_function_for_each_size(m: CompiledModule, name: str):
    function, argument, shapes = PROGRAMS[name]
    program = by_jax(lambda x: function(m, x), argument)
    for x in map(example, shapes):
        np.testing.assert_array_equal(jax.jit(program.call)(x), jax.jit(lambda x: function(m, x))(x))


def test_the_program_runs_in_a_process_without_a_compiler(m: CompiledModule, tmp_path: Path):
    """It has symbolic shapes in the file, and the kernel's code."""

    def run(x: Any) -> tuple[Any, Any]:
        return m.sums(x), jax.vmap(m.blocks)(jax.vmap(m.grow.with_options(has_side_effect=True))(x))

    path = be_runtime.export(run, spec("b, n")).save(tmp_path / "program.be")
    code = """
import sys, jax, jax.numpy as jnp, be_runtime
program = be_runtime.load_exported(sys.argv[1])
print(program)
for shape in ((2, 5), (3, 1)):
    x = jnp.arange(shape[0] * shape[1], dtype=jnp.float32).reshape(shape)
    for call in (program.call, jax.jit(program.call)):
        print(*(each.tolist() for each in call(x)))
"""
    bare = {"PYTHONPATH": str(ROOT), "BE_CACHE_DIR": "/proc/none", "PATH": "/nowhere", "JAX_PLATFORMS": "cpu"}
    assert run_python(code, str(path), env=bare, cwd=tmp_path).stdout.splitlines() == [
        "<program run(float32[b,n]) -> (float32[b], float32[b,- floordiv(- n, 4)]) for cpu>",
        *["[10.0, 35.0] [[10.0, 5.0], [30.0, 10.0]]"] * 2,
        *["[0.0, 1.0, 2.0] [[1.0], [2.0], [3.0]]"] * 2,
    ]


def test_checked_calls_take_any_size(m: CompiledModule):
    with be_runtime.debug():
        program = by_jax(m.blocks, spec("n"))
        assert [program.call(jnp.ones(n)).tolist() for n in (3, 6)] == [[3], [4, 2]]


REFUSED: dict[str, tuple[Function, jax.ShapeDtypeStruct, str, str]] = {
    "divisibility": (
        lambda m, x: m.pick(x),
        spec("n"),
        "symbolic.pick: n/2 can't be computed for n = n: n is not known to be divisible by 2",
        'write symbolic_shape("2*k") for an even axis',
    ),
    "bounds": (
        lambda m, x: m.inner(x),
        spec("n"),
        "symbolic.inner: n-2 can't be computed for n = n: n - 2 may be less than 0",
        'constraints=("n >= 3",)',
    ),
    "unequal symbols": (
        lambda m, x: m.product(x, x[:, 0]),
        spec("b, n"),
        "symbolic.product: axis k is n in argument 0 (axis 1) and b in argument 1 (axis 0)",
        "use one symbol for equal axes",
    ),
    "known extent": (
        lambda m, x: m.three(x),
        spec("b, n"),
        "symbolic.three: an axis is declared as 3 and is b in argument 0 (axis 0)",
        "use one symbol for equal axes",
    ),
    "expression": (
        lambda m, x: m.pairs(x, x),
        spec("n"),
        "symbolic.pairs: an axis is declared as 2*n = 2*n and is n in argument 1 (axis 0)",
        "2*n where the arg_spec has it",
    ),
    "leading axes": (
        lambda m, x: m.rows(x, x[0]),
        spec("b, n"),
        "symbolic.rows: the leading axes of argument 1 are (), but another array has (b,)",
        "use one symbol for equal axes",
    ),
    "outs": (
        lambda m, x: m.twice(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype)),
        spec("n"),
        "symbolic.twice: outs[0] is float32[n], but [2*n] is (2*n,) in this call",
        "",
    ),
    "attribute of a shape": (
        lambda m, x: m.repeated(x, times=x.shape[0]),
        spec("n"),
        "symbolic.repeated: times is an attribute, which is compiled into the program, but n is a symbolic dimension",
        "read the extent in the kernel: x.size(0)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_axes_that_can_not_be_decided_are_an_error(m: CompiledModule, name: str):
    function, argument, problem, hint = REFUSED[name]
    with pytest.raises(ArgumentError, match=re.escape(problem)) as caught:
        jax.make_jaxpr(lambda x: function(m, x))(argument)
    assert hint in "".join(caught.value.hints)


def test_ordered_calls_and_calls_over_devices_need_known_extents(m: CompiledModule):
    with pytest.raises(TransformError, match=r"symbolic\.grow is ordered and its results have symbolic shapes"):
        by_jax(m.grow.with_options(ordered=True), spec("n"))
    split = NamedSharding(Mesh(np.array(jax.devices("cpu")[:2]), "d"), PartitionSpec("d"))
    with pytest.raises(TransformError, match=r"symbolic\.sums has a symbolic shape, and XLA can't split such a call"):
        by_jax(jax.jit(m.sums, in_shardings=split, out_shardings=split), spec("2*b, n"))


def test_a_launch_that_python_computes_needs_known_extents():
    numba = pytest.importorskip("numba")
    kernel = be_runtime.numba_kernel(numba.njit(lambda x, y: None), signature="arg[n] ret[n]:like(0)")
    with pytest.raises(ArgumentError, match=r"the shape \(n\) is symbolic, but the extents must be known"):
        jax.make_jaxpr(kernel)(spec("n"))
