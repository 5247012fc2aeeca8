"""The programs of examples/ as modules and as programs, for the tests of each platform."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SHAPES = ((1, 1, 1), (3, 33, 5), (64, 128, 8), (2, 70, 100), (5, 64, 0), (0, 4, 4), (4, 0, 4))
SPARSE_SHAPES = (
    *((1, 1, 1, 1), (1, 300, 40, 500), (3, 70, 9, 50), (4, 33, 12, 30), (8, 64, 20, 41), (13, 20, 7, 9)),
    *((0, 4, 3, 5), (2, 0, 3, 5), (2, 4, 0, 5)),
)
COLLECTIVE = re.compile(r" (all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


def load_module(name: str) -> ModuleType:
    """A program, imported and not run."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def run_program(name: str, *arguments: str, cwd: Path) -> tuple[int, dict[str, Any]]:
    """Run a program with ``--json``: its exit status and its report."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), "--json", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=840)
    assert done.stdout, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return done.returncode, report


def check_product(train: ModuleType, shape: tuple[int, int, int], density: float) -> None:
    """Compare the product of train.py and both of its gradients with numpy's, for `(batch, n_in, n_out)`."""
    import jax

    batch, n_in, n_out = shape
    rng = np.random.default_rng(0)
    spikes = (rng.random((batch, n_in)) < density).astype(np.float32)
    weights = rng.standard_normal((n_in, n_out)).astype(np.float32)
    grads = rng.standard_normal((batch, n_out)).astype(np.float32)
    out, pullback = jax.vjp(train.event_matmul, spikes, weights)
    of_spikes, of_weights = pullback(grads)
    np.testing.assert_allclose(out, spikes @ weights, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_spikes, grads @ weights.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(of_weights, spikes.T @ grads, rtol=1e-4, atol=1e-4)


def check_currents(kernels: Any, shape: tuple[int, int, int, int], dtype: str, density: float) -> None:
    """Compare the currents of sparse.py and both of their gradients with numpy's.

    The shape is `(batch, pre, connections, post)`. Several connections of a neuron may have one target.
    """
    import jax

    batch, pre, connections, post = shape
    rng = np.random.default_rng(0)
    spikes = ((rng.random((batch, pre)) < density) * rng.choice([0.5, 1.0, -2.0], (batch, pre))).astype(np.float32)
    targets = rng.integers(0, post, (pre, connections)).astype(dtype)
    weights = rng.standard_normal((pre, connections)).astype(np.float32)
    grads = rng.standard_normal((batch, post)).astype(np.float32)
    matrix = np.zeros((pre, post), np.float32)
    np.add.at(matrix, (np.arange(pre)[:, None], targets), weights)
    out, pullback = jax.vjp(lambda s, w: kernels.currents(s, targets, w, post=post), spikes, weights)
    of_spikes, of_weights = pullback(grads)
    _check_product(out, spikes, matrix)
    _check_product(of_spikes, grads, matrix.T)
    np.testing.assert_allclose(of_weights, np.einsum("bi,bij->ij", spikes, grads[:, targets]), rtol=1e-4, atol=1e-4)


def _check_product(found: Any, left: Any, right: Any) -> None:
    """Compare with a product of matrices; the order of its sums, and so their rounding, may be any."""
    exact, magnitude = left.astype(np.float64) @ right, np.abs(left) @ np.abs(right)
    assert np.all(np.abs(found - exact) <= 1e-4 + 1e-4 * np.abs(exact) + 2e-6 * magnitude)


def check_learning(kernels: Any) -> None:
    """Compare what sparse.py adds to weights with numpy's, and look for it in their own memory."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    targets = rng.integers(0, 9, (300, 5)).astype(np.int32)
    weights = jnp.asarray(rng.standard_normal((300, 5)).astype(np.float32))
    spikes = rng.choice([0.0, 0.0, 1.0], (2, 300)).astype(np.float32)
    changes = rng.standard_normal((2, 9)).astype(np.float32)
    expected = np.asarray(weights) + np.einsum("bi,bij->ij", spikes, changes[:, targets])
    address = weights.unsafe_buffer_pointer()
    learn = jax.jit(kernels.learn.with_options(input_output_aliases={2: 0}), donate_argnums=2)
    learned = learn(spikes, targets, weights, changes)
    np.testing.assert_allclose(learned, expected, rtol=1e-4, atol=1e-5)
    assert learned.unsafe_buffer_pointer() == address


def check_split(sparse: ModuleType, kernels: Any, devices: Sequence[Any], split: str) -> tuple[list[str], list[str]]:
    """Compare currents and gradients of sparse.py on several devices with those on one; what their programs exchange.

    The split is one of ``SPLITS``. The collectives of the currents come first, then those of the gradients.
    """
    import jax
    import jax.numpy as jnp
    from jax.sharding import Mesh, NamedSharding

    network = sparse.init_network(jax.random.key(0), sparse.Size(64, 8, 0.2, 4))
    spikes = jax.random.bernoulli(jax.random.key(1), 0.2, (4, 64)).astype(jnp.float32)
    mesh = Mesh(np.array(devices), ("devices",))
    of_network, of_batch = (NamedSharding(mesh, spec) for spec in sparse.SPLITS[split])

    def currents(weights: jax.Array, targets: jax.Array, spikes: jax.Array) -> jax.Array:
        result: jax.Array = kernels.currents(spikes, targets, weights, post=64)
        return result

    def energy(weights: jax.Array, targets: jax.Array, spikes: jax.Array) -> jax.Array:
        return (currents(weights, targets, spikes) ** 2).sum()

    arguments = network.weights[0], network.targets[0], spikes
    placed = *(jax.device_put(each, of_network) for each in arguments[:2]), jax.device_put(spikes, of_batch)
    found = []
    for function, out in ((currents, of_batch), (jax.grad(energy), of_network)):
        split_function = jax.jit(function, out_shardings=out)
        np.testing.assert_allclose(split_function(*placed), function(*arguments), rtol=1e-4, atol=1e-4)
        found.append(COLLECTIVE.findall(str(split_function.lower(*placed).compile().as_text())))
    return found[0], found[1]
