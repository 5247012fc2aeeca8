"""pytorch_scatter's sum and maximum of rows with the same index, as in a graph network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from upstream import fetch

import be_runtime

UPSTREAM, TITLE = "pytorch_scatter", "scatter"
EDGES, NODES, WIDTH = 2**18, 2**14, 64
TOLERANCE = 1e-4


@cache
def load() -> Any:
    """Compile the port. Indices are int64, as upstream's kernels have them, and have the shape of the source."""
    ops = be_runtime.load_cuda_file(
        Path(__file__).with_name("scatter.cu"), extra_include_paths=[fetch(UPSTREAM) / "csrc"]
    )

    def sum_forward(src: Any, index: Any, n: int) -> Any:
        return ops.scatter_sum(src, index, n=n), index

    def sum_backward(index: Any, g: Any, n: int) -> Any:  # noqa: ARG001 - rules get the attributes
        return jnp.take_along_axis(g, index, 0), None

    def max_forward(src: Any, index: Any, out: Any, argmax: Any) -> Any:
        results = ops.scatter_max(src, index, out, argmax)
        return results, (index, results[1])

    def max_backward(kept: Any, g: Any) -> Any:
        index, argmax = kept
        is_most = jnp.take_along_axis(argmax, index, 0) == jnp.arange(len(index))[:, None]
        return jnp.where(is_most, jnp.take_along_axis(g[0], index, 0), 0), None, None, None

    ops.scatter_sum.defvjp(sum_forward, sum_backward)
    ops.scatter_max.defvjp(max_forward, max_backward)
    return ops


def ported(src: Any, index: Any) -> Any:
    """The sum and the maximum of the rows of src [e k] with each index [e], both [n k]."""
    places = jnp.broadcast_to(index[:, None], src.shape)
    lowest = jnp.full((NODES, src.shape[1]), -jnp.inf, src.dtype)
    nowhere = jnp.full(lowest.shape, len(src), index.dtype)
    most, _ = load().scatter_max(src, places, lowest, nowhere)
    return jnp.stack([load().scatter_sum(src, places, n=NODES), most])


def plain(src: Any, index: Any) -> Any:
    """The same in JAX."""
    return jnp.stack([jax.ops.segment_sum(src, index, NODES), jax.ops.segment_max(src, index, NODES)])


def arrays(key: Any) -> tuple[Any, ...]:
    """Messages of 262,144 edges to 16,384 nodes. No two numbers are equal, so there is one maximum."""
    rows, order = jax.random.split(key)
    numbers = jax.random.permutation(rows, jnp.arange(EDGES * WIDTH, dtype=jnp.float32)) / 2**21 - 4
    return numbers.reshape(EDGES, WIDTH), jax.random.permutation(order, jnp.arange(EDGES, dtype=jnp.int64) % NODES)
