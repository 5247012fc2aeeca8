"""``python -m mykernels``: calls each kernel, and compares it with the same in jax.numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from mykernels import ops

V = jnp.linspace(-2.0, 2.0, 1001)

ON_CPU: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "neurons.fire": (lambda: ops.neurons.fire(V, threshold=0.5), lambda: jnp.where(V >= 0.5, 1.0, 0.0)),
    "neurons.integrate": (lambda: ops.integrate(V, V, leak=0.5), lambda: 0.5 * V + V),
    "decay": (lambda: ops.decay(V), lambda: V * jnp.exp(-0.1)),
}
ON_GPU: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "neurons.fire": ON_CPU["neurons.fire"],
    "scale": (lambda: ops.scale(V, by=3.0, n=V.size), lambda: 3.0 * V),
    "wave": (lambda: ops.wave(V), lambda: jnp.sin(V)),
}


def check(device: jax.Device, kernels: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]]) -> list[str]:
    """Call kernels on a device; the names of those that differ from jax.numpy."""
    failed = []
    for name, (ours, theirs) in kernels.items():
        with jax.default_device(device):
            agrees = bool(jnp.allclose(jax.jit(ours)(), theirs(), rtol=1e-6, atol=1e-6))
        print(f"{name:<20} {device.platform} {device.id} {'agrees with jax.numpy' if agrees else 'DIFFERS'}")
        failed += [] if agrees else [name]
    return failed


def main() -> int:
    """Check all kernels that this machine can run."""
    failed = check(jax.devices("cpu")[0], ON_CPU)
    gpus = [device for device in jax.devices() if device.platform == "gpu"]
    for gpu in gpus:
        failed += check(gpu, ON_GPU)
    if not gpus:
        for name in ON_GPU:
            print(f"{name:<20} gpu skipped: it needs a GPU, and there is none")
    return 1 if failed else 0


sys.exit(main())
