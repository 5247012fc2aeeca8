"""Programs of split calls beyond one process: on a mesh of all their devices, and from JAX's persistent cache."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from tests.support.jax_names import make_mesh

X, W, V = (np.random.default_rng(2).normal(size=size).astype(np.float32) for size in ((16, 24), (16,), (24,)))


def kernels() -> Any:
    return be_runtime.load_cpp_file(Path(__file__).parents[1] / "kernels.cc")


def global_arrays(port: str, count: str, number: str) -> dict[str, Any]:
    """Join the others, and say which results are right in the parts of this process."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number))
    mesh = make_mesh((len(jax.devices()),), "x")

    def placed(array: Any, spec: P) -> Any:
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda at: array[at])

    m = kernels()
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    x, w, v = placed(X, P("x", None)), placed(W, P("x")), placed(V, P())
    found = {
        "rows": (jax.jit(m.rows)(x), np.cumsum(X, -1)),
        "wsum": (jax.jit(m.wsum)(x, w), W @ X),
        "whole": (jax.jit(m.whole)(x), np.cumsum(X, -1)),
        "grad": (jax.jit(jax.grad(lambda x, v: (m.scale(x, v) ** 2).sum(), 1))(x, v), 2 * (X * X).sum(0) * V),
    }
    right = {
        name: all(np.allclose(part.data, expected[part.index], 1e-3, 1e-3) for part in array.addressable_shards)
        for name, (array, expected) in found.items()
    }
    return {"devices": [len(jax.devices()), len(jax.local_devices())], **right}


def kept_program(cache: str, shift: str) -> dict[str, Any]:
    """Run a program with JAX's cache, and count the cache's events."""
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    m, placed = kernels(), jax.device_put(X, NamedSharding(make_mesh((8,), "x"), P("x", None)))
    events: Counter[str] = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))
    found = jax.jit(lambda x: m.wsum(m.affine(m.rows(x), by=1, shift=float(shift), power=1), x[:, 0]))(placed)
    right = np.allclose(found, X[:, 0] @ (np.cumsum(X, -1) + float(shift)), 1e-3, 1e-3)
    return {"right": bool(right), "hits": events["cache_hits"], "misses": events["cache_misses"]}


if __name__ == "__main__":
    programs: dict[str, Callable[..., Any]] = {"global": global_arrays, "kept": kept_program}
    sys.stdout.write(json.dumps(programs[sys.argv[1]](*sys.argv[2:])) + "\n")
    jax.distributed.shutdown()
