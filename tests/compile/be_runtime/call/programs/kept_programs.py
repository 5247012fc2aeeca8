"""A program of split calls with JAX's persistent compilation cache: how often that hits, and what the program gives."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from tests.support.jax_names import make_mesh


def main(cache: str, shift: str) -> None:
    """Run the program, and print the cache's events."""
    jax.config.update("jax_compilation_cache_dir", cache)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    m = be_runtime.load_cpp_file(Path(__file__).parents[1] / "kernels.cc")
    x = np.arange(16 * 24, dtype=np.float32).reshape(16, 24)
    placed = jax.device_put(x, NamedSharding(make_mesh((8,), "x"), P("x", None)))
    events: Counter[str] = Counter()
    jax.monitoring.register_event_listener(lambda event, **_: events.update([event.rpartition("/")[2]]))
    found = jax.jit(lambda x: m.wsum(m.affine(m.rows(x), by=1, shift=float(shift), power=1), x[:, 0]))(placed)
    right = np.allclose(found, x[:, 0] @ (np.cumsum(x, -1) + float(shift)), rtol=1e-4)
    sys.stdout.write(json.dumps({"right": bool(right), "hits": events["cache_hits"], "misses": events["cache_misses"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
