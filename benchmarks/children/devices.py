"""Time programs on one device and on two: ``devices.py JOB.json``.

The job says what is timed, ``kernels`` or ``training``, and how often to measure. What is printed is, for each
contestant, the seconds of each round on ``one`` device and on ``both``. Results on both are compared with those on one.
"""

import contextlib
import importlib
import json
import re
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import be_runtime
from benchmarks.kernels import settle_numba
from benchmarks.stats import alternating

Samples = dict[str, dict[str, list[float]]]
PLACES = ("one", "both")
ROWS = P("x", None)
EXCHANGE = re.compile(r" (?:all-gather|all-reduce|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")


class Contestant(NamedTuple):
    """A function of an array whose rows are split over the devices.

    Parameters
    ----------
    call : callable
        Gives an array like its argument.
    kind : {"automatic", "explicit", "manual"}
        Of the mesh.
    copies : int
        Rows of a batch that come first, 0 for no batch.
    """

    call: Callable[[Any], Any]
    kind: str = "automatic"
    copies: int = 0


def contestants(job: dict[str, Any]) -> dict[str, Contestant]:
    """All that this platform has."""
    steps, is_gpu = job["steps"], jax.default_backend() == "gpu"
    load = be_runtime.load_cuda_inline if is_gpu else be_runtime.load_cpp_inline
    module = load("settle", Path(job["source"]).read_text(encoding="utf-8"))
    module.settle.defvjp(None, "settle_back")
    settle = partial(module.settle, steps=steps)
    operation = be_runtime.XLACustomKernel("settle")
    operation.def_kernel("module", "gpu" if is_gpu else "cpu", lambda **_: settle)
    found = {kind: Contestant(settle, kind) for kind in ("automatic", "explicit", "manual")}
    found |= {
        "grad": Contestant(jax.grad(lambda x: 0.5 * (settle(x) ** 2).sum())),
        "vmap": Contestant(jax.vmap(settle), copies=2),
        "scan": Contestant(lambda x: jax.lax.scan(lambda c, _: (settle(c), None), x, None, length=2)[0]),
        "XLACustomKernel": Contestant(lambda x: operation(x, outs=jax.ShapeDtypeStruct(x.shape, x.dtype))),
    }
    signature = "arg[b n] ret[b n] parallel[b]"
    if is_gpu:
        text = Path(job["raw"]).read_text(encoding="utf-8")
        raw = be_runtime.cuda_kernel(text, "settle", signature=signature, grid="b*n/256", block=256)
        found["cuda_kernel"] = Contestant(lambda x: raw(x, steps=steps))
    if job["with_numba"] and is_gpu:
        kernel = settle_numba.on_gpu(steps)
        launched = be_runtime.numba_cuda_kernel(kernel, signature=signature, launch_dims=("b", "n"))
        found["numba_cuda_kernel"] = Contestant(launched)
    elif job["with_numba"]:
        found["numba_kernel"] = Contestant(be_runtime.numba_kernel(settle_numba.on_cpu(steps), signature=signature))
    return found


class Program:
    """A compiled chain of calls, and its argument.

    Parameters
    ----------
    contestant : Contestant
    place : {"one", "both"}
    length : int
        Number of calls, each on the result of the one before.
    rows, columns : int
        Of the array.
    """

    def __init__(self, contestant: Contestant, place: str, length: int, rows: int, columns: int) -> None:
        def run(x: Any) -> Any:
            for _ in range(length):
                x = contestant.call(x)
            return x

        values = np.linspace(-1, 1, rows * columns, dtype=np.float32).reshape(rows, columns)
        if contestant.copies:
            values = np.stack([values / (1 + copy) for copy in range(contestant.copies)])
        kind = "automatic" if place == "one" else contestant.kind
        axis = AxisType.Explicit if kind == "explicit" else AxisType.Auto
        mesh = Mesh(np.array(jax.devices()[:2]), ("x",), axis_types=(axis,))
        spec = P(None, *ROWS) if contestant.copies else ROWS
        self.x = jax.device_put(values, jax.devices()[0] if place == "one" else NamedSharding(mesh, spec))
        if kind == "manual":
            run = jax.shard_map(run, mesh=mesh, in_specs=spec, out_specs=spec)
        with jax.set_mesh(mesh) if kind == "explicit" else contextlib.nullcontext():
            self.compiled = jax.jit(run).lower(self.x).compile()
        assert not EXCHANGE.findall(str(self.compiled.as_text())), "the devices exchange data"

    def result(self) -> Any:
        """What it computes."""
        return np.asarray(self.compiled(self.x))

    def fastest(self, executions: int) -> float:
        """Seconds of the fastest of several executions."""
        best = float("inf")
        for _ in range(executions):
            start = time.perf_counter()
            self.compiled(self.x).block_until_ready()
            best = min(best, time.perf_counter() - start)
        return best


def time_kernels(job: dict[str, Any]) -> Samples:
    """Seconds of one call: the difference of two lengths leaves the dispatch out. And of one call with its dispatch."""
    short, long = job["lengths"]
    found: Samples = {}
    for name, contestant in contestants(job).items():
        make = partial(Program, contestant, rows=job["rows"], columns=job["columns"])
        lengths = (1, short, long) if name == "automatic" else (short, long)
        programs = {place: {length: make(place, length) for length in lengths} for place in PLACES}
        one, both = (programs[place][short].result() for place in PLACES)
        assert np.allclose(one, both, rtol=1e-5), f"{name} differs on two devices"
        samples: dict[str, list[float]] = {place: [] for place in PLACES}
        dispatched: dict[str, list[float]] = {place: [] for place in PLACES}
        for order in (PLACES, *alternating(PLACES, job["rounds"])):
            for place in order:
                each = {length: program.fastest(job["executions"]) for length, program in programs[place].items()}
                samples[place].append((each[long] - each[short]) / (long - short))
                dispatched[place].append(each[lengths[0]])
        found[name] = {place: values[1:] for place, values in samples.items()}  # the first round warms up
        if 1 in lengths:
            found["one call with its dispatch"] = {place: values[1:] for place, values in dispatched.items()}
    return found


def time_training(job: dict[str, Any]) -> Samples:
    """Seconds of a training step of `examples/sparse.py`: each way on one device, and split over both."""
    sys.path.insert(0, job["examples"])
    example = importlib.import_module("sparse")
    size = example.Size(job["neurons"], job["connections"], 0.02, job["batch"])
    network = example.init_network(jax.random.key(0), size)
    patterns = jax.random.bernoulli(jax.random.key(1), size.firing, (example.N_CLASSES, size.neurons))
    inputs = example.make_batch(jax.random.key(2), patterns, size)
    mesh = Mesh(np.array(jax.devices()[:2]), ("devices",))
    steps = {"by jax.grad": example.by_grad(example.event_currents), "in place": example.event_step}
    found: Samples = {}
    for kind, split in (("by jax.grad", "neurons"), ("in place", "neurons"), ("by jax.grad", "samples")):
        of_network, of_batch = (NamedSharding(mesh, spec) for spec in example.SPLITS[split])
        given = {
            "one": (network.targets, inputs),
            "both": (jax.device_put(network.targets, of_network), jax.device_put(inputs, of_batch)),
        }
        weights = {
            "one": jax.tree.map(jnp.copy, network.weights),
            "both": jax.device_put(network.weights, of_network, may_alias=False),
        }
        samples: dict[str, list[float]] = {place: [] for place in PLACES}
        losses = dict.fromkeys(PLACES, 0.0)
        for order in (PLACES, *alternating(PLACES, job["rounds"])):
            for place in order:
                targets, batch = given[place]
                start = time.perf_counter()
                for _ in range(job["count"]):
                    weights[place], report = steps[kind](weights[place], targets, *batch, size.rate)
                jax.block_until_ready(weights[place])
                samples[place].append((time.perf_counter() - start) / job["count"])
                losses[place] = float(report[0])
            if order is PLACES and not samples["one"][1:]:
                assert np.isclose(losses["one"], losses["both"], atol=0.05), f"{kind}, {split}: {losses}"
        found[f"{kind}, {split} split"] = {place: values[1:] for place, values in samples.items()}
        del given, weights
    return found


def main() -> None:
    """Read the job, do it, print the samples."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    print(json.dumps({"kernels": time_kernels, "training": time_training}[job["what"]](job)))


if __name__ == "__main__":
    main()
