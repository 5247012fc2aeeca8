"""The selective scan of mamba: a linear recurrence whose coefficients depend on the input."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from upstream import fetch

import be_runtime

# ruff: noqa: N803, N806 - the names are those of the paper and of upstream

UPSTREAM, TITLE = "mamba", "selective scan"
BATCH, CHANNELS, LENGTH, STATES = 4, 1024, 2048, 16
TOLERANCE = 2e-3


@cache
def load() -> Any:
    """Compile the port and the files of upstream that it calls, for three dtypes."""
    folder = fetch(UPSTREAM) / "csrc" / "selective_scan"
    ops = be_runtime.load_cuda_file(
        [
            Path(__file__).with_name("selective_scan.cu"),
            *folder.glob("selective_scan_fwd_*.cu"),
            *folder.glob("selective_scan_bwd_*_real.cu"),
        ],
        extra_include_paths=[folder],
        extra_cuda_cflags=["-Xcompiler=-ffunction-sections"],  # drop upstream's functions that nobody calls,
        extra_ldflags=["-Wl,--gc-sections"],  # and with them what they need of the other files
    )

    def forward(*inputs: Any) -> Any:
        results = ops.scan(*inputs)
        return results, (*inputs, *results[1:])

    def backward(kept: Any, g: Any) -> Any:
        du, ddelta, dA, dB, dC, dD, dz, dbias = ops.scan_back(*kept, g[0])
        return du, ddelta, dA, dB.astype(du.dtype), dC.astype(du.dtype), dD, dz, dbias

    ops.scan.defvjp(forward, backward)
    return ops


def ported(*inputs: Any) -> Any:
    """Scan u, delta [b d l], A [d n], B, C [b g n l], D [d], z [b d l], bias [d]; return [b d l]."""
    return load().scan(*inputs)[0]


def plain(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, bias: Any) -> Any:
    """The same in JAX."""
    step = jax.nn.softplus(delta + bias[:, None])[..., None]
    decay = jnp.exp(step * A[:, None])
    given = step * u[..., None] * B[:, 0].swapaxes(1, 2)[:, None]

    def join(left: Any, right: Any) -> Any:
        return right[0] * left[0], right[0] * left[1] + right[1]

    state = jax.lax.associative_scan(join, (decay, given), axis=2)[1]
    return (jnp.einsum("bdln,bnl->bdl", state, C[:, 0], precision="highest") + D[:, None] * u) * jax.nn.silu(z)


def arrays(key: Any) -> tuple[Any, ...]:
    """A layer of 1,024 channels with 16 states each, for 4 sequences of 2,048 steps."""
    keys = jax.random.split(key, 6)
    u, delta, z = (jax.random.normal(each, (BATCH, CHANNELS, LENGTH), jnp.float32) for each in keys[:3])
    B, C = (jax.random.normal(each, (BATCH, 1, STATES, LENGTH), jnp.float32) for each in keys[3:5])
    A = -jnp.broadcast_to(jnp.arange(1, STATES + 1, dtype=jnp.float32), (CHANNELS, STATES))
    bias, D = jax.random.uniform(keys[5], (2, CHANNELS), jnp.float32)
    return u, delta, A, B, C, D, z, bias - 4
