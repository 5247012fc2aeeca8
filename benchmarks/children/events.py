"""Time the event-driven products of `examples/sparse.py` beside plain JAX's and brainevent's: ``events.py JOB.json``.

The job says what is timed, ``currents`` or ``step``, the size of the layers, and how often to measure. What is printed
is, for each share of firing neurons or for each batch, the seconds of every contestant in each round.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import sparse as jax_sparse

from benchmarks.stats import alternating

Product = Callable[..., Any]
"""Currents of one vector of spikes, and of what it is given besides."""

VECTORS = 8
"""Different vectors of spikes, so that what one call has read helps the next little."""


def chain(product: Product, length: int) -> Callable[..., jax.Array]:
    """A program of so many calls, each of which needs the result of the one before."""

    def run(vectors: tuple[jax.Array, ...], *operands: Any) -> jax.Array:
        currents = jnp.zeros_like(vectors[0])
        for index in range(length):
            spikes = jnp.where(currents[0] == jnp.inf, 0.0, vectors[index % VECTORS])
            currents = product(spikes, *operands)
        return currents

    return jax.jit(run)


def fastest(program: Callable[..., Any], arguments: tuple[Any, ...], executions: int) -> float:
    """Seconds of the fastest of several executions."""
    best = float("inf")
    for _ in range(executions):
        start = time.perf_counter()
        jax.block_until_ready(program(*arguments))
        best = min(best, time.perf_counter() - start)
    return best


def contestants(example: Any, neurons: int, connections: int) -> dict[str, tuple[Product, tuple[Any, ...]]]:
    """Each way to compute the currents of one layer, with its arrays."""
    key_targets, key_weights = jax.random.split(jax.random.key(0))
    targets = example.connect(key_targets, neurons, connections)
    weights = jax.random.normal(key_weights, targets.shape)
    rows = jnp.repeat(jnp.arange(neurons, dtype=jnp.int32), connections)
    matrix = jax_sparse.BCOO(
        (weights.reshape(-1), jnp.stack([rows, targets.reshape(-1)], axis=1)),
        shape=(neurons, neurons),
        indices_sorted=True,
        unique_indices=True,
    )
    found: dict[str, tuple[Product, tuple[Any, ...]]] = {
        "ours": (partial(one_vector, example.event_currents), (targets, weights)),
        "dense": (jnp.dot, (example.to_dense(targets, weights),)),
        "scatter-add": (partial(one_vector, example.scatter_currents), (targets, weights)),
        "BCOO": (lambda spikes, bcoo: spikes @ bcoo, (matrix,)),
    }
    try:
        import brainevent

        layer = brainevent.FixedNumPerPre((weights, targets), shape=(neurons, neurons))
        jax.block_until_ready(brainevent.BinaryArray(jnp.ones(neurons)) @ layer)
    except Exception as error:  # noqa: BLE001  # it is not installed, or lacks what it needs: the others go on
        print(f"brainevent: {error}", file=sys.stderr)
        return found
    return found | {"brainevent": (lambda spikes, matrix: brainevent.BinaryArray(spikes) @ matrix, (layer,))}


def one_vector(product: Product, spikes: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
    """A product of batches, for one vector."""
    result: jax.Array = product(spikes[None], targets, weights)[0]
    return result


def time_currents(example: Any, job: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Seconds of the currents of one vector of spikes, for each share of firing neurons."""
    short, long = job["lengths"]
    ways = contestants(example, job["neurons"], job["connections"])
    programs = {name: (chain(way, short), chain(way, long)) for name, (way, _) in ways.items()}
    found = {}
    for firing in job["firing"]:
        keys = jax.random.split(jax.random.key(1), VECTORS)
        vectors = tuple(jax.random.bernoulli(key, firing, (job["neurons"],)).astype(jnp.float32) for key in keys)
        arguments = {name: (vectors, *operands) for name, (_, operands) in ways.items()}
        expected = programs["ours"][0](*arguments["ours"])
        for name, (program, longer) in programs.items():
            assert jnp.allclose(program(*arguments[name]), expected, rtol=5e-2, atol=5e-2), f"{name} differs"
            jax.block_until_ready(longer(*arguments[name]))
        samples: dict[str, list[float]] = {name: [] for name in ways}
        for order in alternating(tuple(ways), job["rounds"]):
            for name in order:
                slow, fast = (fastest(each, arguments[name], job["executions"]) for each in reversed(programs[name]))
                samples[name].append((slow - fast) / (long - short))
        found[str(firing)] = samples
    return found


def time_steps(example: Any, job: dict[str, Any]) -> dict[str, dict[str, list[float]]]:
    """Seconds of a training step, for each number of samples in a batch."""
    sizes = [example.Size(job["neurons"], job["connections"], job["firing"][0], batch) for batch in job["batches"]]
    return {str(size.batch): time_step(example, size, job["rounds"], job["steps"]) for size in sizes}


def time_step(example: Any, size: Any, rounds: int, count: int) -> dict[str, list[float]]:
    """Seconds of a step for each way and round; a sample has so many steps, which wait for each other alone."""
    network = example.init_network(jax.random.key(0), size)
    patterns = jax.random.bernoulli(jax.random.key(1), size.firing, (example.N_CLASSES, size.neurons))
    inputs = example.make_batch(jax.random.key(2), patterns, size)
    by_grad = example.by_grad(example.event_currents)
    ways = {"in place": (example.event_step, network), "by jax.grad": (by_grad, network), **example.plain_ways(network)}
    weights = {name: jax.tree.map(jnp.copy, each.weights) for name, (_, each) in ways.items()}
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for order in (tuple(ways), *alternating(tuple(ways), rounds)):
        for name in order:
            start = time.perf_counter()
            for _ in range(count):
                weights[name], _ = ways[name][0](weights[name], network.targets, *inputs, size.rate)
            jax.block_until_ready(weights[name])
            samples[name].append((time.perf_counter() - start) / count)
    return {name: each[1:] for name, each in samples.items()}  # the first ones compiled


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.insert(0, job["examples"])
    example = importlib.import_module("sparse")
    print(json.dumps({"currents": time_currents, "step": time_steps}[job["what"]](example, job)))


if __name__ == "__main__":
    main()
