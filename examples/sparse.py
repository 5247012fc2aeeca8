"""Train layers of sparse connections by event-driven kernels, on one device and on several, beside plain JAX.

Each neuron of a layer has connections to a fixed number of others: `targets` and `weights`, both `(neurons,
connections)`. A vector of spikes goes in, and the currents that these send come out. The kernels in `sparse.cc` and
`sparse.cu` look at the connections of those neurons alone that fire. Three of them are products of the same arrays,
each the derivative of another: two lines below make them differentiable, and the tokens `parallel[...]` and
`reduce[...]` in their declarations are all that is needed to split them over devices. The fourth adds a product to the
weights in place: a neuron that did not fire learns nothing, so its weights need not be touched.

The task: tell eight sets of input neurons apart, of which some spikes are lost and others added. The network: spikes, a
sparse layer, a threshold with a surrogate gradient, a sparse layer, and the mean current of eight groups of neurons.

The program trains the network with weights that change in place, then by `jax.grad` with respect to the weights. Where
there are several devices, it does the latter also with the samples and with the neurons split over them, and the former
with the neurons. It exits with status 1 unless

- the loss, averaged over five steps, falls to a tenth,
- the gradients agree with those of plain JAX to 1e-4 of the largest entry, before and after the training,
- the loss curves never differ by more than 5 % of the first loss.

Run it: ``python sparse.py [--neurons N] [--density X] [--firing X] [--cpu-devices N]``; ``--help`` lists the rest.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime as brainevent

N_CLASSES = 8
P_LOST, P_ADDED = 0.2, 0.2  # of the spikes of a sample
LEARNING_RATE = 16.0
FACTOR, GRADIENT_TOLERANCE, CURVE_TOLERANCE = 10.0, 1e-4, 0.05
WINDOW, PLAIN_STEPS = 5, 5
HERE = Path(__file__).resolve().parent

Pair = tuple[jax.Array, jax.Array]
"""An array for each of two layers."""

Product = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Currents `(batch, neurons)` of spikes `(batch, neurons)`, by targets and weights."""

Step = Callable[[Pair, Pair, jax.Array, jax.Array, float], tuple[Pair, Pair]]
"""A training step, of weights, targets, spikes, labels and rate: new weights, the loss, the share that fires."""

# --- the layer --------------------------------------------------------------------------------------------------------


@functools.cache
def load_kernels(platform: str) -> Any:
    """Load the kernels for ``"gpu"`` or ``"cpu"``, and say what their derivatives are."""
    if platform == "gpu":
        module = brainevent.load_cuda_file(HERE / "sparse.cu")
    else:
        module = brainevent.load_cpp_file(HERE / "sparse.cc")

    def spike_gradients(gradients: jax.Array, targets: jax.Array, weights: jax.Array, **_attributes: int) -> Any:
        # The kernel reads the gradients of all samples at once, so they lie side by side.
        return module.spike_gradients(gradients.T, targets, weights)

    # The currents are linear in the spikes and in the weights.
    module.currents.deftranspose(spike_gradients, linear_in=(0,))
    module.currents.deftranspose("weight_gradients", linear_in=(2,))
    return module


def event_currents(spikes: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
    """The currents by our kernels."""
    module = load_kernels(jax.default_backend())
    currents: jax.Array = module.currents(spikes, targets, weights, post=spikes.shape[1])
    return currents


def scatter_currents(spikes: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
    """The same in plain JAX: every connection is added."""

    def sample(each: jax.Array) -> jax.Array:
        return jnp.zeros(each.shape, weights.dtype).at[targets].add(weights * each[:, None])

    return jax.lax.map(sample, spikes) if len(spikes) > 1 else sample(spikes[0])[None]


def dense_currents(spikes: jax.Array, _targets: jax.Array, weights: jax.Array) -> jax.Array:
    """The same by a matrix of all weights, `(neurons, neurons)`, most of which are 0."""
    return spikes @ weights


def connect(key: jax.Array, neurons: int, connections: int) -> jax.Array:
    """Targets `(neurons, connections)`: those of a neuron are all different, each is drawn from a range of its own."""
    bounds = np.arange(connections + 1) * neurons // connections
    low, width = bounds[:-1].astype(np.int32), np.diff(bounds).astype(np.int32)
    return jnp.asarray(low) + jax.random.randint(key, (neurons, connections), 0, jnp.asarray(width), jnp.int32)


@jax.jit
def to_dense(targets: jax.Array, weights: jax.Array) -> jax.Array:
    """The matrix of all weights."""
    neurons = targets.shape[0]
    return jnp.zeros((neurons, neurons), weights.dtype).at[jnp.arange(neurons)[:, None], targets].add(weights)


# --- the network ------------------------------------------------------------------------------------------------------


class Size(NamedTuple):
    """What the work of a step depends on; `firing` is the share of inputs that fire."""

    neurons: int
    connections: int
    firing: float
    batch: int

    @property
    def rate(self) -> float:
        """The learning rate: the more spikes a neuron gets, the smaller."""
        return LEARNING_RATE / (self.firing * self.connections)


class Network(NamedTuple):
    """Two layers: their targets, and their weights, which learn."""

    targets: Pair
    weights: Pair


@jax.custom_vjp
def spike(potential: jax.Array) -> jax.Array:
    """1 where the potential is above 0, else 0; the gradient is that of a fast sigmoid."""
    return (potential > 0.0).astype(potential.dtype)


def _spike_fwd(potential: jax.Array) -> tuple[jax.Array, jax.Array]:
    return spike(potential), potential


def _spike_bwd(potential: jax.Array, grads: jax.Array) -> tuple[jax.Array]:
    return (grads / (1.0 + jnp.abs(potential)) ** 2,)


spike.defvjp(_spike_fwd, _spike_bwd)


def init_network(key: jax.Array, size: Size) -> Network:
    """Random connections, such that the currents of a layer have a variance of about 1.

    Weights are multiples of 2**-12. Their sums are then exact in any order, and no rounding error at the threshold
    makes one of two networks fire and the other not.
    """
    keys = jax.random.split(key, 4)
    scale = 1.0 / np.sqrt(size.firing * size.connections)
    targets = [connect(each, size.neurons, size.connections) for each in keys[:2]]
    weights = [scale * jax.random.normal(each, (size.neurons, size.connections)) for each in keys[2:]]
    return Network((targets[0], targets[1]), (_rounded(weights[0]), _rounded(weights[1])))


def _rounded(weights: jax.Array) -> jax.Array:
    return jnp.round(weights * 4096) / 4096


def loss_fn(
    weights: Pair,
    shifts: Pair | tuple[float, float],
    targets: Pair,
    spikes: jax.Array,
    labels: jax.Array,
    product: Product,
) -> Pair:
    """Cross entropy, and the spikes of the hidden neurons; the shifts are added to the currents of each layer."""
    hidden = spike(product(spikes, targets[0], weights[0]) + shifts[0] - 2.0)  # about 2 % of a normal distribution
    currents = product(hidden, targets[1], weights[1]) + shifts[1]
    groups = currents[:, : currents.shape[1] // N_CLASSES * N_CLASSES].reshape(len(spikes), N_CLASSES, -1)
    scores = groups.mean(axis=2) * jnp.sqrt(groups.shape[2])
    return -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean(), hidden


@functools.partial(jax.jit, static_argnames="product")
def gradients(weights: Pair, targets: Pair, spikes: jax.Array, labels: jax.Array, product: Product) -> tuple[Any, Pair]:
    """What `loss_fn` gives, and the gradients with respect to the weights."""
    found: tuple[Any, Pair] = jax.value_and_grad(loss_fn, has_aux=True)(
        weights, (0.0, 0.0), targets, spikes, labels, product
    )
    return found


@functools.partial(jax.jit, static_argnames="product", donate_argnames="weights")
def train_step(
    weights: Pair, targets: Pair, spikes: jax.Array, labels: jax.Array, rate: float, product: Product
) -> tuple[Pair, Pair]:
    """A step of gradient descent as JAX's users write it."""
    (loss, hidden), (first, second) = gradients(weights, targets, spikes, labels, product)
    return (weights[0] - rate * first, weights[1] - rate * second), (loss, hidden.mean())


@jax.jit
def _current_gradients(weights: Pair, targets: Pair, spikes: jax.Array, labels: jax.Array) -> tuple[Pair, Pair, Pair]:
    """The loss and the share of hidden neurons that fire, the spikes of both layers, the gradients of the currents."""
    shifts = jnp.zeros_like(spikes), jnp.zeros_like(spikes)
    (loss, hidden), grads = jax.value_and_grad(loss_fn, argnums=1, has_aux=True)(
        weights, shifts, targets, spikes, labels, event_currents
    )
    return (loss, hidden.mean()), (spikes, hidden), grads


@functools.partial(jax.jit, donate_argnames="weights")
def _learn(weights: Pair, targets: Pair, spikes: Pair, grads: Pair, rate: float) -> Pair:
    """Weights that have changed in their own memory."""
    learn = load_kernels(jax.default_backend()).learn
    return tuple(learn(s, t, w, -rate * g) for s, t, w, g in zip(spikes, targets, weights, grads, strict=True))


def event_step(weights: Pair, targets: Pair, spikes: jax.Array, labels: jax.Array, rate: float) -> tuple[Pair, Pair]:
    """The same step in two programs: the second one can have the weights' memory, since the first one is done."""
    report, fired, grads = _current_gradients(weights, targets, spikes, labels)
    return _learn(weights, targets, fired, grads, rate), report


@functools.partial(jax.jit, static_argnames="size")
def make_batch(key: jax.Array, patterns: jax.Array, size: Size) -> Pair:
    """Spikes `(batch, neurons)` and labels `(batch,)` of noisy samples of the patterns `(classes, neurons)`."""
    key_label, key_lost, key_added = jax.random.split(key, 3)
    labels = jax.random.randint(key_label, (size.batch,), 0, N_CLASSES)
    shape = (size.batch, size.neurons)
    kept = patterns[labels] & ~jax.random.bernoulli(key_lost, P_LOST, shape)
    return (kept | jax.random.bernoulli(key_added, P_ADDED * size.firing, shape)).astype(jnp.float32), labels


# --- training and checks ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a training has reported: losses, the share of hidden neurons that fire, seconds of a step."""

    losses: list[float]
    rate: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One condition for success: `value` must not exceed `limit`."""

    name: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the condition holds; a value that is no number never does."""
        return self.value <= self.limit


def train(step: Step, network: Network, batches: Callable[[int], Pair], count: int, rate: float) -> tuple[Network, Run]:
    """Train for so many steps; the weights are copied first, since a step reuses their memory."""
    weights = jax.tree.map(jnp.copy, network.weights)
    reports, seconds = [], []
    for number in range(count):
        batch = jax.block_until_ready(batches(number))
        start = time.perf_counter()
        weights, report = jax.block_until_ready(step(weights, network.targets, batch[0], batch[1], rate))
        seconds.append(time.perf_counter() - start)
        reports.append([float(each) for each in report])
    run = Run(losses=[loss for loss, _ in reports], rate=reports[-1][1], seconds=median(seconds[1:] or seconds))
    return Network(network.targets, weights), run


def gradient_error(network: Network, spikes: jax.Array, labels: jax.Array) -> float:
    """Largest difference between our gradients and plain JAX's, over the largest entry of each weight's gradient."""
    weights = _rounded(network.weights[0]), _rounded(network.weights[1])
    ours, plain = (
        gradients(weights, network.targets, spikes, labels, product)[1]
        for product in (event_currents, scatter_currents)
    )
    return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in zip(ours, plain, strict=True))


SPLITS = {"samples": (P(), P("devices")), "neurons": (P("devices"), P())}
"""What is split over devices: the specs of targets and weights, and of spikes and labels."""


def on_several_devices(
    split: str, network: Network, batches: Callable[[int], Pair]
) -> tuple[Network, Callable[[int], Any]]:
    """The network, and its batches, on all devices."""
    mesh = Mesh(np.array(jax.devices()), ("devices",))
    of_network, of_batch = (NamedSharding(mesh, spec) for spec in SPLITS[split])
    return jax.device_put(network, of_network), lambda number: jax.device_put(batches(number), of_batch)


def by_grad(product: Product) -> Step:
    """The step by `jax.grad`, with some product."""
    return functools.partial(train_step, product=product)


def plain_ways(network: Network) -> dict[str, tuple[Step, Network]]:
    """The training in plain JAX, in two ways."""
    matrices = to_dense(network.targets[0], network.weights[0]), to_dense(network.targets[1], network.weights[1])
    return {
        "dense matrices": (by_grad(dense_currents), network._replace(weights=matrices)),
        "scatter-add": (by_grad(scatter_currents), network),
    }


def check(runs: dict[str, Run], errors: tuple[float, float]) -> tuple[Check, ...]:
    """The conditions stated at the top of this file."""
    one = runs["in place"].losses
    return (
        Check(name="last loss over first loss", value=float(np.mean(one[-WINDOW:]) / one[0]), limit=1.0 / FACTOR),
        Check(name="gradients apart, before training", value=errors[0], limit=GRADIENT_TOLERANCE),
        Check(name="gradients apart, after training", value=errors[1], limit=GRADIENT_TOLERANCE),
        *(
            Check(
                name=f"losses apart, {name}",
                value=float(np.abs(np.subtract(run.losses, one)).max() / one[0]),
                limit=CURVE_TOLERANCE,
            )
            for name, run in runs.items()
            if run.losses is not one
        ),
    )


# --- the command line -------------------------------------------------------------------------------------------------


def main() -> int:
    """Train, report, and say by the exit status whether every check passed."""
    parser = argparse.ArgumentParser(description="Train layers of sparse connections by event-driven kernels.")
    parser.add_argument("--neurons", type=int, help="in each layer (default 4000, on a GPU 20000)")
    parser.add_argument(
        "--density", type=float, default=0.1, help="share of neurons that one connects to (default 0.1)"
    )
    parser.add_argument("--firing", type=float, default=0.02, help="share of inputs that fire (default 0.02)")
    parser.add_argument("--batch", type=int, default=8, help="samples in a step (default 8)")
    parser.add_argument("--steps", type=int, default=40, help="training steps (default 40)")
    parser.add_argument("--seed", type=int, default=0, help="of connections, weights and samples (default 0)")
    parser.add_argument("--cpu-devices", type=int, help="parts of the CPU that are devices of their own")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")
    args = parser.parse_args()
    if args.cpu_devices:
        jax.config.update("jax_num_cpu_devices", args.cpu_devices)
    # With the neurons split, each device needs the gradients of all currents, since its neurons may send to any.
    for gathered in ("weight_gradients: argument 2", "learn: argument 3"):
        warnings.filterwarnings("ignore", f"sparse.{gathered} is gathered", brainevent.GatherWarning)

    device = jax.devices()[0]
    neurons = args.neurons or (20000 if device.platform == "gpu" else 4000)
    size = Size(neurons, max(round(args.density * neurons), 1), args.firing, args.batch)
    key_network, key_patterns, key_data = jax.random.split(jax.random.key(args.seed), 3)
    network = init_network(key_network, size)
    patterns = jax.random.bernoulli(key_patterns, size.firing, (N_CLASSES, neurons))

    def batches(number: int) -> Pair:
        batch: Pair = make_batch(jax.random.fold_in(key_data, number), patterns, size)
        return batch

    trained, one = train(event_step, network, batches, args.steps, size.rate)
    step = by_grad(event_currents)
    ways: dict[str, tuple[Step, Network, Callable[[int], Any]]] = {"by jax.grad": (step, network, batches)}
    if len(jax.devices()) > 1:
        over = f"split over {len(jax.devices())}"
        for split in SPLITS:
            ways[f"{split} {over}"] = (step, *on_several_devices(split, network, batches))
        ways[f"in place, neurons {over}"] = (event_step, *on_several_devices("neurons", network, batches))
    runs = {"in place": one} | {name: train(*way, args.steps, size.rate)[1] for name, way in ways.items()}
    checks = check(runs, (gradient_error(network, *batches(0)), gradient_error(trained, *batches(args.steps))))
    plain = {
        name: train(plain_step, each, batches, 1 + PLAIN_STEPS, size.rate)[1].seconds
        for name, (plain_step, each) in plain_ways(network).items()
    }
    if args.json:
        shown = {
            "platform": device.platform,
            "size": size._asdict(),
            "checks": [asdict(each) | {"passed": each.passed} for each in checks],
            "runs": {name: asdict(run) for name, run in runs.items()},
            "plain_s": plain,
        }
        print(json.dumps(shown))
    else:
        print_report(size, device, runs, checks, plain)
    return 0 if all(each.passed for each in checks) else 1


def print_report(
    size: Size, device: jax.Device, runs: dict[str, Run], checks: tuple[Check, ...], plain: dict[str, float]
) -> None:
    """The size and sparsity, the loss, the checks, and the times."""
    one = runs["in place"]
    print(
        f"Two layers of {size.neurons:,} neurons on {device.device_kind} ({device.platform}), {size.connections:,} "
        f"connections each ({size.connections / size.neurons:.0%}).\n"
        f"{size.firing:.1%} of the inputs fire, and {one.rate:.1%} of the neurons of the first layer; "
        f"a batch has {size.batch}.\n"
    )
    for step in range(0, len(one.losses), max(len(one.losses) // 8, 1)):
        print(f"step {step:4d}   loss {one.losses[step]:.4f}")
    print()
    for each in checks:
        print(f"{'ok ' if each.passed else 'BAD'}  {each.name:<34} {each.value:9.2e}  (at most {each.limit:.0e})")
    print()
    for name, run in runs.items():
        print(f"{1e3 * run.seconds:8.2f} ms a step with the kernels, {name}")
    for name, seconds in plain.items():
        print(f"{1e3 * seconds:8.2f} ms a step in plain JAX with {name}, {seconds / one.seconds:.1f} times as long")
    print("Trained: the kernels and plain JAX agree." if all(c.passed for c in checks) else "FAILED, see above.")


if __name__ == "__main__":
    sys.exit(main())
