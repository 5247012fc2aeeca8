"""The multiresolution hash grid of torch-ngp: features of points, looked up in tables of several resolutions."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from upstream import fetch

import be_runtime

UPSTREAM, TITLE = "torch-ngp", "hash grid"
LEVELS, FEATURES, BASE, LARGEST = 8, 4, 16, 2**19
HOW = {"log2_growth": 1.0, "base": BASE}
"""Each level is twice as fine as the one before, so that both sides compute the same cells: 16 to 2,048 in a row."""
PRIMES = np.array([1, 2654435761, 805459861], np.uint32)
TOLERANCE = 1e-4


@cache
def load() -> Any:
    """Compile the port; `encode` returns features [levels, points, features]."""
    ops = be_runtime.load_cuda_file(
        Path(__file__).with_name("hash_grid.cu"),
        extra_include_paths=[fetch(UPSTREAM) / "gridencoder" / "src"],
        default_stream="xla",
    )

    def forward(x: Any, table: Any, offsets: Any, **how: Any) -> Any:
        out, slopes = ops.encode(x, table, offsets, want={"slopes"}, **how)
        return (out, None), (x, table, offsets, slopes)

    def backward(kept: Any, g: Any, **how: Any) -> Any:
        dtable, dx = ops.encode_back(g[0], *kept, **how)
        return dx.astype(jnp.float32), dtable, None

    ops.encode.defvjp(forward, backward)
    return ops


def ported(x: Any, table: Any, offsets: Any) -> Any:
    """Features of points x [b 3] in the unit cube, [levels, b, features]."""
    return load().encode(x, table, offsets, **HOW)[0]


def plain(x: Any, table: Any, _offsets: Any) -> Any:
    """The same in JAX."""
    levels = []
    for level, (start, end) in enumerate(itertools.pairwise(sizes())):
        resolution, size = BASE * 2**level, end - start
        place = x * np.float32(resolution - 1) + 0.5
        cell = jnp.floor(place)
        part, cell = place - cell, cell.astype(jnp.uint32)
        features = 0.0
        for corner in np.ndindex(2, 2, 2):
            at = cell + np.array(corner, np.uint32)
            if (resolution + 1) ** 3 > size:
                index = at[:, 0] * PRIMES[0] ^ at[:, 1] * PRIMES[1] ^ at[:, 2] * PRIMES[2]
            else:
                index = at[:, 0] + (at[:, 1] + at[:, 2] * np.uint32(resolution + 1)) * np.uint32(resolution + 1)
            weight = jnp.where(np.array(corner, bool), part, 1 - part).prod(1, keepdims=True)
            features += weight * table[(index % np.uint32(size)).astype(jnp.int32) + start]
        levels.append(features)
    return jnp.stack(levels)


@cache
def sizes() -> tuple[int, ...]:
    """Where each level's table begins, and the end of the last."""
    rows = [(BASE * 2**level + 1) ** 3 for level in range(LEVELS)]
    return tuple(int(each) for each in np.cumsum([0, *(8 * -(-min(LARGEST, each) // 8) for each in rows)]))


def arrays(key: Any) -> tuple[Any, ...]:
    """262,144 points, 3 million rows, and where levels begin. The points' products with a scale are exact."""
    points, table = jax.random.split(key)
    x = jax.random.randint(points, (2**18, 3), 0, 4096).astype(jnp.float32) / 4096
    rows = jax.random.uniform(table, (sizes()[-1], FEATURES), jnp.float32, -1, 1)
    return x, rows, jnp.asarray(sizes(), jnp.int32)
