"""Calls a module's functions, one for each thing that a handler asks of XLA, under whichever JAX runs this.

``python one_library.py`` prints its library's path and hash, and JAX's version, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime

SOURCE = r"""
#include "brainevent/common.h"
#include "brainevent/parallel.h"
#include "brainevent/state.h"

static float* floats(BE::Tensor y) { return y.data_ptr<float>(); }

// @BE twice arg[n] ret[n]
void twice(const BE::Tensor x, BE::Tensor y) {
  for (int64_t i = 0; i < x.numel(); ++i) floats(y)[i] = 2 * x.data_ptr<float>()[i];
}

// @BE scaled arg[n] ret[n] attr.scale attr.least:float64=0
void scaled(const BE::Tensor x, BE::Tensor y, float scale, double least) {
  BE_CHECK(scale >= least) << "a scale of " << scale;
  for (int64_t i = 0; i < x.numel(); ++i) floats(y)[i] = scale * x.data_ptr<float>()[i];
}

// @BE backwards arg[n] ret[n] scratch
void backwards(const BE::Tensor x, BE::Tensor y, BE::Workspace scratch) {
  float* kept = scratch.allocate_as<float>(x.numel());
  for (int64_t i = 0; i < x.numel(); ++i) kept[i] = x.data_ptr<float>()[x.numel() - 1 - i];
  for (int64_t i = 0; i < x.numel(); ++i) floats(y)[i] = kept[i];
}

static int made, deleted;
struct Plan {
  explicit Plan(const BE::Attributes& attributes) : scale(attributes.get<float>("scale")) { ++made; }
  ~Plan() { ++deleted; }
  float scale;
};

// @BE planned arg[n] ret[n] state attr.scale
void planned(const BE::Tensor x, BE::Tensor y, const BE::State<Plan>& plan, [[maybe_unused]] float scale) {
  for (int64_t i = 0; i < x.numel(); ++i) floats(y)[i] = plan->scale * x.data_ptr<float>()[i];
}

// @BE plans ret[2]
void plans(BE::Tensor y) {
  floats(y)[0] = static_cast<float>(made);
  floats(y)[1] = static_cast<float>(deleted);
}

// @BE together arg[n] ret[n]
void together(const BE::Tensor x, BE::Tensor y) {
  const float* in = x.data_ptr<float>();
  float* out = floats(y);
  BE::parallel_for(x.numel(), 64, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out[i] = in[i] + 1;
  });
}

// @BE counted arg[] ret[]
void counted(const BE::Tensor, BE::Tensor y) {
  static float calls;
  floats(y)[0] = ++calls;
}
"""


def main() -> None:
    """Load the module, call each function, and compare."""
    module = be_runtime.load_cpp_inline("one_library", SOURCE)
    x = jnp.arange(1000.0, dtype=jnp.float32)
    like = jax.ShapeDtypeStruct(x.shape, x.dtype)

    def same(found: Any, expected: Any) -> None:
        np.testing.assert_array_equal(np.asarray(found), np.asarray(expected))

    same(jax.jit(lambda x: module.twice(x, outs=like))(x), 2 * x)
    same(jax.jit(lambda x: module.scaled(x, outs=like, scale=3.0))(x), 3 * x)
    same(jax.jit(lambda x: module.backwards(x, outs=like))(x), x[::-1])
    same(jax.jit(lambda x: module.together(x, outs=like))(x), x + 1)
    planned: Any = jax.jit(lambda x: module.planned(x, outs=like, scale=2.0) + module.planned(x, outs=like, scale=5.0))
    same(planned(x), 7 * x)
    same(planned(x), 7 * x)
    planned.clear_cache()
    same(module.plans(outs=jax.ShapeDtypeStruct((2,), x.dtype)), [2, 2])

    one = jax.ShapeDtypeStruct((), x.dtype)
    counted = module.counted.with_options(ordered=True)
    same(jax.jit(lambda x: jnp.stack([counted(x, outs=one) for _ in range(5)]))(x[0]), [1, 2, 3, 4, 5])
    try:
        jax.block_until_ready(jax.jit(lambda x: module.scaled(x, outs=like, scale=-1.0))(x))
    except Exception as error:  # noqa: BLE001 - its type is another in each version of JAX
        message = str(error)
    assert "one_library.scaled: " in message, message
    assert "a scale of -1" in message, message
    sha256 = hashlib.sha256(module.path.read_bytes()).hexdigest()
    json.dump({"jax": jax.__version__, "path": str(module.path), "sha256": sha256}, sys.stdout)


if __name__ == "__main__":
    main()
