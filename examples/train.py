"""Train a small spiking network whose event-driven product is our kernel, and check it against plain JAX.

The task: tell eight temporal spike patterns apart. In every pattern each input neuron fires once, at a time of its
own, so that spike counts say nothing and only the order counts. Spikes are jittered, some are lost, and noise is added.

The network: input spikes, a recurrent layer of leaky integrate-and-fire neurons with a surrogate gradient, a leaky
readout. All three products in it are of one kind: a spike adds a row of the weights, no spike costs nothing. That
product, and the outer product of its gradient, are kernels written in CUDA and in C++ below; both are registered under
the same names, so that the Python code does not know which of them runs.

The program trains the network twice, with the kernels and with plain `jnp`, and exits with status 1 unless

- the loss, averaged over ten steps, falls to a tenth (`--factor`) within 200 steps (`--steps`),
- the gradients of both agree to 1e-4 of the largest entry, before and after the training,
- the two loss curves never differ by more than 5 % of the first loss.

Run it: ``python train.py [--steps N] [--seed N] [--factor X] [--json] [--plot FILE]``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import be_runtime as brainevent

N_IN, N_HIDDEN, N_CLASSES, N_STEPS, BATCH = 128, 128, 8, 40, 64
JITTER, P_LOST, P_NOISE = 1.5, 0.1, 0.01  # time steps; share of spikes; spikes per neuron and time step
LEAK, READOUT_LEAK, THRESHOLD = 0.8, 0.95, 1.0
LEARNING_RATE = 2e-3
GRADIENT_TOLERANCE, CURVE_TOLERANCE = 1e-4, 0.05
WINDOW = 10  # steps over which the first and the last loss are averaged

# --- the kernels ------------------------------------------------------------------------------------------------------

# Both entry points are one operation, `out[r, :] = sum of rows[k, :] over all k with an event at (r, k)`:
#   matvec: an event is a spike of input k in sample r, and rows are the weights;
#   outer:  an event is a spike of input r in sample k, and rows are the gradients by sample.
# Every sum is taken in the order of k, so that results do not vary from run to run.

CPP_SOURCE = r"""
#include <algorithm>
#include <cstdint>

#include "brainevent/common.h"

namespace {

void accumulate(const float* events, int64_t stride_r, int64_t stride_k, int64_t n_r, int64_t n_k,
                const float* rows, float* out, int64_t n_out) {
    for (int64_t r = 0; r < n_r; ++r, out += n_out) {
        float* __restrict sum = out;
        std::fill_n(sum, n_out, 0.0f);
        // Four rows at a time: one load and one store of the sums serve four additions.
        const float* active[4];
        int n_active = 0;
        for (int64_t k = 0; k < n_k; ++k) {
            if (events[r * stride_r + k * stride_k] == 0.0f) continue;
            active[n_active++] = rows + k * n_out;
            if (n_active < 4) continue;
            n_active = 0;
            const float *a = active[0], *b = active[1], *c = active[2], *d = active[3];
            for (int64_t j = 0; j < n_out; ++j) sum[j] = (((sum[j] + a[j]) + b[j]) + c[j]) + d[j];
        }
        for (int i = 0; i < n_active; ++i) {
            for (int64_t j = 0; j < n_out; ++j) sum[j] += active[i][j];
        }
    }
}

}  // namespace

// @BE matvec arg arg ret
void matvec(const BE::Tensor spikes, const BE::Tensor weights, BE::Tensor out) {
    const int64_t batch = spikes.size(0), n_in = spikes.size(1);
    BE_CHECK(weights.size(0) == n_in) << "weights have " << weights.size(0) << " rows for " << n_in << " inputs";
    accumulate(spikes.data_ptr<float>(), n_in, 1, batch, n_in,
               weights.data_ptr<float>(), out.data_ptr<float>(), out.size(1));
}

// @BE outer arg arg ret
void outer(const BE::Tensor spikes, const BE::Tensor grads, BE::Tensor out) {
    const int64_t batch = spikes.size(0), n_in = spikes.size(1);
    BE_CHECK(grads.size(0) == batch) << "gradients of " << grads.size(0) << " samples for " << batch;
    accumulate(spikes.data_ptr<float>(), 1, n_in, n_in, batch,
               grads.data_ptr<float>(), out.data_ptr<float>(), out.size(1));
}
"""

CUDA_SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

#include "brainevent/common.h"

namespace {

constexpr int kWarp = 32, kWarpsPerBlock = 4, kUnroll = 4;

// A warp owns 32 columns of one row of `out`. Its lanes look at 32 events at once; a ballot tells all of them which are
// active, and only those rows are read, each as one coalesced load. No atomics, no shared memory.
__global__ void accumulate(const float* __restrict__ events, int64_t stride_r, int64_t stride_k, int n_r, int n_k,
                           const float* __restrict__ rows, float* __restrict__ out, int n_out) {
    const int64_t r = int64_t(blockIdx.x) * kWarpsPerBlock + threadIdx.y;
    const int column = blockIdx.y * kWarp + threadIdx.x;
    if (r >= n_r) return;  // the whole warp
    float sum = 0.0f;
    for (int first = 0; first < n_k; first += kWarp) {
        const int k = first + threadIdx.x;
        const bool event = k < n_k && events[r * stride_r + k * stride_k] != 0.0f;
        unsigned active = __ballot_sync(0xffffffffu, event);
        while (active != 0) {
            // Four loads are in flight before the first sum needs one; past the last event a load is skipped.
            float part[kUnroll];
#pragma unroll
            for (int i = 0; i < kUnroll; ++i) {
                const int64_t row = first + __ffs(active) - 1;
                part[i] = active != 0 && column < n_out ? rows[row * n_out + column] : 0.0f;
                active &= active - 1;
            }
#pragma unroll
            for (int i = 0; i < kUnroll; ++i) sum += part[i];
        }
    }
    if (column < n_out) out[r * n_out + column] = sum;
}

void launch(const float* events, int64_t stride_r, int64_t stride_k, int64_t n_r, int64_t n_k,
            const BE::Tensor& rows, BE::Tensor& out, int64_t stream) {
    const int64_t n_out = out.size(1);
    if (out.numel() == 0) return;
    const dim3 block(kWarp, kWarpsPerBlock);
    const dim3 grid((n_r + kWarpsPerBlock - 1) / kWarpsPerBlock, (n_out + kWarp - 1) / kWarp);
    accumulate<<<grid, block, 0, (cudaStream_t)stream>>>(
        events, stride_r, stride_k, int(n_r), int(n_k), rows.data_ptr<float>(), out.data_ptr<float>(), int(n_out));
    BE_CHECK_KERNEL_LAUNCH();
}

}  // namespace

// @BE matvec arg arg ret stream
void matvec(const BE::Tensor spikes, const BE::Tensor weights, BE::Tensor out, int64_t stream) {
    const int64_t batch = spikes.size(0), n_in = spikes.size(1);
    BE_CHECK(weights.size(0) == n_in) << "weights have " << weights.size(0) << " rows for " << n_in << " inputs";
    launch(spikes.data_ptr<float>(), n_in, 1, batch, n_in, weights, out, stream);
}

// @BE outer arg arg ret stream
void outer(const BE::Tensor spikes, const BE::Tensor grads, BE::Tensor out, int64_t stream) {
    const int64_t batch = spikes.size(0), n_in = spikes.size(1);
    BE_CHECK(grads.size(0) == batch) << "gradients of " << grads.size(0) << " samples for " << batch;
    launch(spikes.data_ptr<float>(), 1, n_in, n_in, batch, grads, out, stream);
}
"""


def load_kernels() -> None:
    """Register the targets `events.matvec` and `events.outer` for JAX's default backend."""
    if jax.default_backend() == "gpu":
        brainevent.load_cuda_inline("events", CUDA_SOURCE)
    else:
        brainevent.load_cpp_inline("events", CPP_SOURCE)


@jax.custom_vjp
def event_matmul(spikes: jax.Array, weights: jax.Array) -> jax.Array:
    """`spikes @ weights` for spikes that are 0 or 1: `(batch, n_in)`, `(n_in, n_out)` to `(batch, n_out)`, float32."""
    out = jax.ShapeDtypeStruct((spikes.shape[0], weights.shape[1]), weights.dtype)
    return jax.ffi.ffi_call("events.matvec", out)(spikes, weights)


def _event_matmul_fwd(spikes: jax.Array, weights: jax.Array) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return event_matmul(spikes, weights), (spikes, weights)


def _event_matmul_bwd(residuals: tuple[jax.Array, jax.Array], grads: jax.Array) -> tuple[jax.Array, jax.Array]:
    # The gradient with respect to the spikes is dense: the surrogate lets silent neurons learn as well.
    spikes, weights = residuals
    out = jax.ShapeDtypeStruct(weights.shape, weights.dtype)
    return jnp.matmul(grads, weights.T, precision="highest"), jax.ffi.ffi_call("events.outer", out)(spikes, grads)


event_matmul.defvjp(_event_matmul_fwd, _event_matmul_bwd)

# --- the network ------------------------------------------------------------------------------------------------------

Product = Callable[[jax.Array, jax.Array], jax.Array]


class Params(NamedTuple):
    """Weights, each `(n_from, n_to)` and float32."""

    w_in: jax.Array
    w_hidden: jax.Array
    w_out: jax.Array


class State(NamedTuple):
    """What passes from one time step to the next, each `(batch, n)`."""

    potential: jax.Array
    spikes: jax.Array
    readout: jax.Array


class Adam(NamedTuple):
    """Optimizer state: the step number and the running moments of each weight."""

    step: jax.Array
    mean: Params
    square: Params


@jax.custom_vjp
def spike(potential: jax.Array) -> jax.Array:
    """1 where the potential reaches the threshold, else 0; the gradient is that of a fast sigmoid."""
    return (potential >= THRESHOLD).astype(potential.dtype)


def _spike_fwd(potential: jax.Array) -> tuple[jax.Array, jax.Array]:
    return spike(potential), potential


def _spike_bwd(potential: jax.Array, grads: jax.Array) -> tuple[jax.Array]:
    return (grads / (1.0 + 5.0 * jnp.abs(potential - THRESHOLD)) ** 2,)


spike.defvjp(_spike_fwd, _spike_bwd)


def init_params(key: jax.Array) -> Params:
    """Random weights that let about a tenth of the hidden neurons fire in a time step."""
    keys = jax.random.split(key, 3)
    return Params(
        w_in=0.5 * jax.random.normal(keys[0], (N_IN, N_HIDDEN)),
        w_hidden=0.1 * jax.random.normal(keys[1], (N_HIDDEN, N_HIDDEN)),
        w_out=0.1 * jax.random.normal(keys[2], (N_HIDDEN, N_CLASSES)),
    )


def forward(product: Product, params: Params, inputs: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Class scores `(batch, n_classes)` and the share of hidden neurons that fire, for inputs `(time, batch, n_in)`."""

    def step(state: State, spikes_in: jax.Array) -> tuple[State, tuple[jax.Array, jax.Array]]:
        current = product(spikes_in, params.w_in) + product(state.spikes, params.w_hidden)
        potential = LEAK * state.potential * (1.0 - state.spikes) + current  # a spike resets its neuron
        spikes = spike(potential)
        readout = READOUT_LEAK * state.readout + product(spikes, params.w_out)
        return State(potential, spikes, readout), (readout, spikes.mean())

    batch = inputs.shape[1]
    zero = jnp.zeros((batch, N_HIDDEN))
    _, (readouts, rates) = jax.lax.scan(step, State(zero, zero, jnp.zeros((batch, N_CLASSES))), inputs)
    return readouts.mean(axis=0), rates.mean()


def make_batch(patterns: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Spikes `(time, batch, n_in)` and labels `(batch,)` of noisy samples of the patterns `(n_classes, n_in)`."""
    key_label, key_jitter, key_lost, key_noise = jax.random.split(key, 4)
    labels = jax.random.randint(key_label, (BATCH,), 0, N_CLASSES)
    jitter = JITTER * jax.random.normal(key_jitter, (BATCH, N_IN))
    times = jnp.round(patterns[labels] + jitter)
    times = jnp.where(jax.random.bernoulli(key_lost, P_LOST, times.shape), -1.0, times)
    fired = times[None] == jnp.arange(N_STEPS)[:, None, None]
    noise = jax.random.bernoulli(key_noise, P_NOISE, fired.shape)
    return (fired | noise).astype(jnp.float32), labels


def loss_fn(
    product: Product, params: Params, inputs: jax.Array, labels: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Cross entropy, with the share of right answers and of neurons that fire."""
    scores, rate = forward(product, params, inputs)
    loss = -jnp.take_along_axis(jax.nn.log_softmax(scores), labels[:, None], axis=1).mean()
    return loss, ((scores.argmax(axis=1) == labels).mean(), rate)


def adam(params: Params, grads: Params, state: Adam) -> tuple[Params, Adam]:
    """One step of Adam (Kingma and Ba, 2015)."""
    step = state.step + 1
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state.mean, grads)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, state.square, grads)
    rate = LEARNING_RATE * jnp.sqrt(1.0 - 0.999**step) / (1.0 - 0.9**step)
    params = jax.tree.map(lambda p, m, s: p - rate * m / (jnp.sqrt(s) + 1e-8), params, mean, square)
    return params, Adam(step, mean, square)


# --- training and checks ----------------------------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Run:
    """One network under training, with what it has reported so far."""

    product: Product
    params: Params
    adam: Adam
    losses: list[float]
    accuracy: float = 0.0
    rate: float = 0.0
    seconds: float = 0.0


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


@partial(jax.jit, static_argnums=0)
def train_step(
    product: Product, params: Params, state: Adam, patterns: jax.Array, key: jax.Array
) -> tuple[Params, Adam, jax.Array]:
    """One step on a batch made from the key; the last result holds loss, accuracy and firing rate."""
    inputs, labels = make_batch(patterns, key)
    (loss, (accuracy, rate)), grads = jax.value_and_grad(partial(loss_fn, product), has_aux=True)(
        params, inputs, labels
    )
    params, state = adam(params, grads, state)
    return params, state, jnp.stack([loss, accuracy, rate])


@partial(jax.jit, static_argnums=0)
def gradients(product: Product, params: Params, patterns: jax.Array, key: jax.Array) -> Params:
    """Gradients of the loss on one batch."""
    inputs, labels = make_batch(patterns, key)
    grads: Params = jax.grad(lambda p: loss_fn(product, p, inputs, labels)[0])(params)
    return grads


def gradient_error(params: Params, patterns: jax.Array, key: jax.Array) -> float:
    """Largest difference between the two models' gradients, over the largest entry of each weight's gradient.

    The weights are rounded to multiples of 2**-12 first. Their sums are then exact in any order, so that both models
    see the same spikes: else a rounding error at the threshold could flip one.
    """
    params = jax.tree.map(lambda p: jnp.round(p * 4096) / 4096, params)
    ours = gradients(event_matmul, params, patterns, key)
    plain = gradients(plain_matmul, params, patterns, key)
    errors = jax.tree.map(lambda a, b: jnp.abs(a - b).max() / jnp.abs(b).max(), ours, plain)
    return float(jnp.stack(errors).max())


def plain_matmul(spikes: jax.Array, weights: jax.Array) -> jax.Array:
    """The product as plain JAX has it, in full float32 on every device."""
    return jnp.matmul(spikes, weights, precision="highest")


def advance(run: Run, patterns: jax.Array, key: jax.Array) -> None:
    """Train one step and note what it reports."""
    start = time.perf_counter()
    run.params, run.adam, report = train_step(run.product, run.params, run.adam, patterns, key)
    loss, run.accuracy, run.rate = np.asarray(report).tolist()
    if run.losses:  # the first step compiles
        run.seconds += time.perf_counter() - start
    run.losses.append(loss)


def train(
    steps: int, seed: int, report: Callable[[int, Run, Run], None] | None
) -> tuple[Run, Run, tuple[float, float]]:
    """Train with the kernels and with plain JAX on the same batches; the last result has the gradient errors."""
    key_patterns, key_params, key_data = jax.random.split(jax.random.key(seed), 3)
    patterns = jax.random.uniform(key_patterns, (N_CLASSES, N_IN), maxval=N_STEPS)
    params = init_params(key_params)
    zero = jax.tree.map(jnp.zeros_like, params)
    state = Adam(jnp.zeros(()), zero, zero)
    ours = Run(product=event_matmul, params=params, adam=state, losses=[])
    plain = Run(product=plain_matmul, params=params, adam=state, losses=[])
    error_before = gradient_error(params, patterns, key_data)
    for step in range(steps):
        key = jax.random.fold_in(key_data, step)
        advance(ours, patterns, key)
        advance(plain, patterns, key)
        if report is not None:
            report(step, ours, plain)
    return ours, plain, (error_before, gradient_error(ours.params, patterns, key_data))


def check(ours: Run, plain: Run, errors: tuple[float, float], factor: float) -> tuple[Check, ...]:
    """The conditions stated at the top of this file."""
    first, last = np.mean(ours.losses[:WINDOW]), np.mean(ours.losses[-WINDOW:])
    apart = np.abs(np.subtract(ours.losses, plain.losses)).max() / plain.losses[0]
    return (
        Check(name="last loss over first loss", value=float(last / first), limit=1.0 / factor),
        Check(name="gradients apart, before training", value=errors[0], limit=GRADIENT_TOLERANCE),
        Check(name="gradients apart, after training", value=errors[1], limit=GRADIENT_TOLERANCE),
        Check(name="loss curves apart", value=float(apart), limit=CURVE_TOLERANCE),
    )


# --- the command line -------------------------------------------------------------------------------------------------


def print_step(steps: int, step: int, ours: Run, plain: Run) -> None:
    """A row of the table, every tenth of the way."""
    if step == 0:
        print(f"{'step':>6} {'loss':>10} {'plain jnp':>10} {'right':>7} {'firing':>7}")
    if step % max(steps // 10, 1) == 0 or step == steps - 1:
        row = f"{ours.losses[-1]:10.4f} {plain.losses[-1]:10.4f} {ours.accuracy:7.1%} {ours.rate:7.1%}"
        print(f"{step:6d} {row}", flush=True)


def print_verdict(checks: tuple[Check, ...], ours: Run, plain: Run) -> None:
    """Each condition with its value, then the times."""
    print()
    for each in checks:
        print(f"{'ok ' if each.passed else 'BAD'}  {each.name:<34} {each.value:9.2e}  (at most {each.limit:.0e})")
    timed = max(len(ours.losses) - 1, 1)
    print(f"\n{1e3 * ours.seconds / timed:.1f} ms a step with the kernels, {1e3 * plain.seconds / timed:.1f} without.")
    print("Trained: the kernels and plain JAX agree." if all(c.passed for c in checks) else "FAILED, see above.")


def plot(path: Path, ours: Run, plain: Run) -> None:
    """Draw both loss curves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="cross entropy", yscale="log")
    axes.plot(plain.losses, linewidth=4, alpha=0.4, label="plain jnp")
    axes.plot(ours.losses, linewidth=1.2, label="event-driven kernels")
    axes.legend()
    figure.savefig(path, dpi=150)


def main() -> int:
    """Train, report, and say by the exit status whether every check passed."""
    parser = argparse.ArgumentParser(description="Train a small spiking network with kernels of our own.")
    parser.add_argument("--steps", type=int, default=200, help="training steps (default 200)")
    parser.add_argument("--seed", type=int, default=0, help="of patterns, weights and batches (default 0)")
    parser.add_argument("--factor", type=float, default=10.0, help="by which the loss must fall (default 10)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the loss curves (needs matplotlib)")
    args = parser.parse_args()
    if args.steps < 1:
        parser.error("--steps must be at least 1")

    start = time.perf_counter()
    load_kernels()
    load_s = time.perf_counter() - start
    device = jax.devices()[0]
    if not args.json:
        print(f"Kernels ready in {load_s:.2f} s, training on {device.device_kind} ({device.platform}).\n")

    ours, plain, errors = train(args.steps, args.seed, None if args.json else partial(print_step, args.steps))
    checks = check(ours, plain, errors, args.factor)
    if args.plot:
        plot(args.plot, ours, plain)
    if args.json:
        report = {
            "platform": device.platform,
            "device": device.device_kind,
            "load_s": load_s,
            "checks": [asdict(each) | {"passed": each.passed} for each in checks],
            "accuracy": ours.accuracy,
            "firing_rate": ours.rate,
            "losses": ours.losses,
            "losses_plain": plain.losses,
        }
        print(json.dumps(report))
    else:
        print_verdict(checks, ours, plain)
    return 0 if all(each.passed for each in checks) else 1


if __name__ == "__main__":
    sys.exit(main())
