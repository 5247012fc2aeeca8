"""``2 * x + y`` through the JAX bridge of each project; `NAMES` has the bridges by source."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from tests.gpu.sources.ours import LANGUAGES, library

NAMES = {"tvm_ffi": "jax-tvm-ffi", "triton": "jax-triton", "cute": "cutlass.jax", "cutile": "cuda.tile.jax"}


def function(source: str) -> Callable[[Any, Any], Any]:
    """The function of a source, by its own project's bridge."""
    sys.path.insert(0, str(LANGUAGES))
    match source:
        case "tvm_ffi":
            return _tvm_ffi()
        case "triton":
            return _triton
        case "cute":
            return _cute
    return _cutile


def _tvm_ffi() -> Callable[[Any, Any], Any]:
    import jax_tvm_ffi
    import tvm_ffi

    axpy = tvm_ffi.load_module(str(library(Path.cwd()))).get_function("axpy")
    jax_tvm_ffi.register_ffi_target(
        "bridge.axpy", axpy, ["args", "rets", "attrs.less"], platform="gpu", allow_cuda_graph=True
    )

    def call(x: Any, y: Any) -> Any:
        return jax.ffi.ffi_call("bridge.axpy", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y, less=0)

    return call


def _triton(x: Any, y: Any) -> Any:
    import jax_triton
    import triton_axpy

    out = jax.ShapeDtypeStruct(x.shape, x.dtype)
    grid = (-(-x.size // 256),)
    return jax_triton.triton_call(x, y, x.size, kernel=triton_axpy.axpy, out_shape=out, grid=grid, BLOCK=256, LESS=0)


def _cute(x: Any, y: Any) -> Any:
    import cute_axpy
    from cutlass import cute
    from cutlass.jax import cutlass_call

    @cute.jit  # type: ignore[untyped-decorator]
    def launch(stream, x: cute.Tensor, y: cute.Tensor, out: cute.Tensor):  # noqa: ANN001
        cute_axpy.axpy(x, y, out, stream)

    return cutlass_call(launch, output_shape_dtype=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)


def _cutile(x: Any, y: Any) -> Any:
    import cutile_axpy
    from cuda.tile.jax import OutputPlaceholder, cutile_call

    grid, flat = (-(-x.size // 256),), OutputPlaceholder((x.size,), jnp.dtype(x.dtype))
    # The kernel takes arrays of one axis.
    return cutile_call(grid, cutile_axpy.axpy, (x.reshape(-1), y.reshape(-1), flat, 256)).reshape(x.shape)
