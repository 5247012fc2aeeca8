"""One of several processes whose devices make one mesh: calls on global arrays, forward and backward."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from tests.support.jax_names import make_mesh

X, W, V = (np.random.default_rng(2).normal(size=size).astype(np.float32) for size in ((16, 24), (16,), (24,)))


def main(port: str, count: str, number: str) -> None:
    """Join the others, and print which results are right in the parts of this process."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"localhost:{port}", int(count), int(number))
    mesh = make_mesh((len(jax.devices()),), "x")

    def placed(array: Any, spec: P) -> Any:
        return jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), lambda at: array[at])

    m = be_runtime.load_cpp_file(Path(__file__).parents[1] / "kernels.cc")
    m.scale.defvjp(None, lambda given, g: (m.scale(g, given[1]), m.scale_w(given[0], g)))
    x, w, v = placed(X, P("x", None)), placed(W, P("x")), placed(V, P())
    found = {
        "rows": (jax.jit(m.rows)(x), np.cumsum(X, -1)),
        "wsum": (jax.jit(m.wsum)(x, w), W @ X),
        "whole": (jax.jit(m.whole)(x), np.cumsum(X, -1)),
        "grad": (jax.jit(jax.grad(lambda x, v: (m.scale(x, v) ** 2).sum(), 1))(x, v), 2 * (X * X).sum(0) * V),
    }
    right = {
        name: all(
            np.allclose(part.data, expected[part.index], rtol=1e-3, atol=1e-3) for part in array.addressable_shards
        )
        for name, (array, expected) in found.items()
    }
    sys.stdout.write(json.dumps({"devices": [len(jax.devices()), len(jax.local_devices())], **right}) + "\n")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
