"""What a kernel on XLA's own header needs in Python: its registration, and a function that calls it."""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np


def register(library: Path) -> None:
    """Make the handlers known to XLA, the type of their state first."""
    loaded = ctypes.CDLL(str(library))
    for function in (loaded.plan_type_id, loaded.plan_type_info):
        function.restype = ctypes.c_void_p
    type_id, type_info = (
        jax.ffi.pycapsule(ctypes.c_void_p(function())) for function in (loaded.plan_type_id, loaded.plan_type_info)
    )
    jax.ffi.register_ffi_type("fft_by_hand.Plan", {"type_id": type_id, "type_info": type_info}, platform="cpu")
    stages = {stage: jax.ffi.pycapsule(getattr(loaded, f"fft_{stage}")) for stage in ("instantiate", "execute")}
    jax.ffi.register_ffi_target("fft_by_hand", stages, platform="cpu")


@partial(jax.jit, static_argnames=("n", "norm", "inverse"))
def fft(x: jax.Array, *, n: int, norm: str = "backward", inverse: bool = False) -> jax.Array:
    """The discrete Fourier transform of each row, cut or filled with zeros to n."""
    if x.ndim == 0 or x.dtype != jnp.complex64:
        raise ValueError(f"x is {x.dtype}{list(x.shape)}, not complex64 with a last axis")
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f"norm is {norm!r}, not 'backward', 'ortho' or 'forward'")
    if n < 0:
        raise ValueError(f"n is {n}")
    out = jax.ShapeDtypeStruct((*x.shape[:-1], n), x.dtype)
    call = jax.ffi.ffi_call("fft_by_hand", out, vmap_method="broadcast_all")
    return jnp.asarray(call(x, n=np.int64(n), norm=norm, inverse=np.bool_(inverse)))
