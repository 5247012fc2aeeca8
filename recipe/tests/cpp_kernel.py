"""Compiles a C++ kernel with the environment's compiler, and calls it from JAX."""

import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime
import be_toolchain

SOURCE = """
#include "brainevent/common.h"

// @BE scale
void scale(const BE::Tensor x, BE::Tensor out, float factor) {
    for (int64_t i = 0; i < x.numel(); ++i) out.data_ptr<float>()[i] = x.data_ptr<float>()[i] * factor;
}
"""

compiler = be_toolchain.resolve(be_toolchain.ToolchainRequest(need_cuda=False)).cxx
assert compiler is not None
assert compiler.path.is_relative_to(sys.prefix), f"{compiler.path} is not this environment's"

be_runtime.load_cpp_inline("recipe_cpp", SOURCE, force_rebuild=True)
x = jnp.arange(4, dtype=jnp.float32)
call = jax.ffi.ffi_call("recipe_cpp.scale", jax.ShapeDtypeStruct(x.shape, x.dtype))
assert call(x, factor=np.float32(3.0)).tolist() == [0.0, 3.0, 6.0, 9.0]
print("compiled with", compiler.path, "and called from JAX")
