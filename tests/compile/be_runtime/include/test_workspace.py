"""Scratch memory in both forms: declared, passed as further results by a direct call, and asked for while running."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import be_runtime

SOURCE = r"""
#include "brainevent/common.h"

static float* copy(const BE::Tensor& x, void* memory) {
  BE_CHECK(reinterpret_cast<uintptr_t>(memory) % BE::Workspace::kAlignment == 0);
  float* room = static_cast<float*>(memory);
  for (int64_t i = 0; i < x.numel(); ++i) room[i] = x.data_ptr<float>()[i];
  return room;
}

static void twice(const float* x, BE::Tensor& y) {
  for (int64_t i = 0; i < y.numel(); ++i) y.data_ptr<float>()[i] = 2 * x[i];
}

// @BE declared arg[n] scratch[n*4] ret scratch[128]
void declared(const BE::Tensor x, BE::Workspace first, BE::Tensor y, const BE::Workspace& second) {
  BE_CHECK(second.data_as<char>() != first.data_as<char>());
  y.data_ptr<float>()[0] = static_cast<float>(first.size() * 1000 + second.size());
  if (x.numel() > 1) twice(copy(x, first.data()), y);
}

// @BE megabyte arg[n] ret[n] scratch[n*131072]
void megabyte(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace) { twice(copy(x, workspace.data()), y); }

// @BE spread arg ret scratch[100]
void spread(const BE::Tensor x, BE::Tensor y, BE::Workspace workspace) {
  for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = static_cast<float>(workspace.size());
}

// @BE asked
void asked(const BE::Tensor x, BE::Tensor y, BE::Workspace& workspace) {
  twice(copy(x, workspace.allocate(x.nbytes())), y);
}

// Several pieces of one call: none overlaps another.
// @BE pieces
void pieces(BE::Tensor y, const BE::Workspace workspace, int64_t bytes, int count) {
  unsigned char* at[64];
  for (int i = 0; i < count; ++i) {
    at[i] = workspace.allocate_as<unsigned char>(bytes * (i + 1));
    BE_CHECK(reinterpret_cast<uintptr_t>(at[i]) % BE::Workspace::kAlignment == 0);
    for (int64_t k = 0; k < bytes * (i + 1); ++k) at[i][k] = static_cast<unsigned char>(i);
  }
  int wrong = 0;
  for (int i = 0; i < count; ++i)
    for (int64_t k = 0; k < bytes * (i + 1); ++k) wrong += at[i][k] != i;
  y.data_ptr<int32_t>()[0] = wrong;
}

// @BE sized
void sized(BE::Tensor y, BE::Workspace workspace, int64_t count, int item) {
  const void* got = item == 1   ? workspace.allocate(count)
                    : item == 8 ? workspace.allocate_as<double>(count)
                    : item == 0 ? workspace.data()
                                : workspace.allocate_as<long[512]>(count);
  y.data_ptr<int32_t>()[0] = got == nullptr;
}

// @BE confused ret scratch[8]
void confused(BE::Tensor y, BE::Workspace workspace) { workspace.allocate(y.numel()); }
"""

HANDLERS: dict[str, list[str]] = {"inlined": [], "shared": ["-lm"]}
"""What makes g++ compile a handler with its entry point, and what keeps it from that."""
X = jnp.arange(8, dtype=jnp.float32)
LIKE = jax.ShapeDtypeStruct(X.shape, X.dtype)
NUMBER = jax.ShapeDtypeStruct((1,), jnp.int32)


def memory(count: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((count,), jnp.uint8)


@pytest.fixture(scope="module", params=HANDLERS, name="name")
def _name(request: pytest.FixtureRequest) -> str:
    name = f"scratch_{request.param}"
    be_runtime.load_cpp_inline(name, SOURCE, extra_ldflags=HANDLERS[request.param])
    return name


def call(target: str, outs: Any, *args: Any, vmap_method: str | None = None, **attrs: Any) -> Any:
    caller: Any = jax.ffi.ffi_call(target, outs, vmap_method=vmap_method)
    return caller(*args, **attrs)


def test_declared_memory_is_a_result_that_nobody_keeps(name: str):
    @jax.jit
    def run(x: jax.Array) -> Any:
        for _ in range(20):
            x = call(f"{name}.megabyte", (LIKE, memory(1 << 20)), x)[0]
        return x

    np.testing.assert_array_equal(run(X), np.arange(8) * 2.0**20)
    analysis: Any = run.lower(X).compile().memory_analysis()
    assert analysis.temp_size_in_bytes < 2 << 20, "20 calls share one buffer of a megabyte"


def test_declared_memory_of_another_size_is_refused(name: str):
    with pytest.raises(
        jax.errors.JaxRuntimeError, match=r"declared as \[\.\.\. n\*131072\], which makes axis 0 1048576"
    ):
        call(f"{name}.megabyte", (LIKE, memory(1 << 19)), X)


def test_declared_memory_has_the_size_that_the_call_passes(name: str):
    out = jax.ShapeDtypeStruct((1,), jnp.float32)
    assert call(f"{name}.declared", (out, memory(4), memory(128)), X[:1])[0][0] == 4128
    with pytest.raises(jax.errors.JaxRuntimeError, match="declared with 128 bytes, and the call passes 127"):
        call(f"{name}.declared", (out, memory(4), memory(127)), X[:1])


def test_vmap_gives_declared_memory_the_batch_too(name: str):
    out = jax.ShapeDtypeStruct((1,), jnp.float32)

    def run(x: jax.Array, method: str) -> Any:
        return jax.vmap(lambda x: call(f"{name}.spread", (out, memory(100)), x, vmap_method=method)[0])(x)

    np.testing.assert_array_equal(run(X[:, None], "sequential"), np.full((8, 1), 100))
    assert run(X[:, None], "broadcast_all")[0, 0] == 800


def test_a_call_without_results_is_skipped_whatever_its_memory(name: str):
    empty = jax.ShapeDtypeStruct((0,), jnp.float32)
    assert call(f"{name}.declared", (empty, memory(4), memory(128)), X[:0])[0].shape == (0,)


def test_a_call_that_passes_too_few_results_is_told_their_number(name: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"takes 1 arguments and 3 results, .* passes 1 and 1"):
        call(f"{name}.declared", (LIKE,), X)


def test_memory_that_is_asked_for(name: str):
    np.testing.assert_array_equal(call(f"{name}.asked", LIKE, X), 2 * X)
    np.testing.assert_array_equal(
        jax.jit(lambda x: call(f"{name}.asked", LIKE, call(f"{name}.asked", LIKE, x)))(X), 4 * X
    )
    assert not call(f"{name}.asked", jax.ShapeDtypeStruct((0,), jnp.float32), X[:0]).size


@pytest.mark.parametrize(("size", "count"), [(1, 64), (1000, 64), (100_000, 30), (20_000_000, 3)])
def test_no_piece_overlaps_another(name: str, size: int, count: int):
    for _ in range(3):
        assert call(f"{name}.pieces", NUMBER, bytes=np.int64(size), count=np.int32(count))[0] == 0


@pytest.mark.parametrize(
    ("count", "item", "message"),
    [
        (-4, 1, "INVALID_ARGUMENT: .*sized: allocate of -4 bytes: a size lies between 0 and 140737488355328 bytes"),
        (2**62, 1, "INVALID_ARGUMENT: .*allocate of 4611686018427387904 bytes"),
        (2**61, 8, "INVALID_ARGUMENT: .*allocate of 2305843009213693952 objects of 8 bytes"),
        (-1, 4096, "INVALID_ARGUMENT: .*allocate of -1 objects of 4096 bytes"),
        (2**47, 1, "RESOURCE_EXHAUSTED: .*allocate of 140737488355328 bytes: the host has no more"),
        (1, 0, r"INVALID_ARGUMENT: .*bare scratch.*call allocate\(bytes\), or declare it, as in scratch\[n\*4\]"),
    ],
)
def test_a_size_that_is_none_is_refused(name: str, count: int, item: int, message: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        call(f"{name}.sized", NUMBER, count=np.int64(count), item=np.int32(item))
    assert call(f"{name}.sized", NUMBER, count=np.int64(1), item=np.int32(8))[0] == 0, "the next call has its memory"


def test_nothing_is_null(name: str):
    assert call(f"{name}.sized", NUMBER, count=np.int64(0), item=np.int32(1))[0] == 1


def test_declared_memory_does_not_grow(name: str):
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"declared scratch.*write a bare `scratch` in the arg_spec"):
        call(f"{name}.confused", (NUMBER, memory(8)))
