"""The event-driven layer of `examples/sparse.py` against plain JAX and brainevent: currents, and a training step."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..bench import HERE, Bench
from ..figure import Figure, Row, Unavailable
from ..peer_python import find_peers

EXAMPLES = HERE.parent / "examples"
PEER = "brainevent"
STEP_GOAL = 1 / 3
BASELINES = {"dense": "dense jnp.dot", "scatter-add": "jnp scatter-add", "BCOO": "jax.experimental.sparse.BCOO"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much.

    Parameters
    ----------
    label : str
        For the table.
    neurons : int
        Of a layer; each is connected to a tenth of them.
    firing : tuple of float
        Shares of neurons that fire; the first is that of the training step and of `goals`.
    goals : dict of str to float
        Most that our currents may take, in those of a baseline.
    steps : int
        Training steps in a sample.
    rounds, executions : int
        How often to measure, and how many executions of a program a sample is the fastest of.
    platforms : str or None
        Of JAX.
    """

    label: str
    neurons: int
    firing: tuple[float, ...]
    goals: dict[str, float]
    steps: int
    rounds: int
    executions: int
    platforms: str | None


CPU = Setting(
    label="CPU",
    neurons=4000,
    firing=(0.02,),
    goals={"dense": 1 / 8},
    steps=5,
    rounds=15,
    executions=5,
    platforms="cpu",
)
GPU = Setting(
    label="GPU",
    neurons=50_000,
    firing=(0.02, 0.01, 0.05),
    goals={"dense": 1 / 25, "BCOO": 1 / 45, PEER: 1.0},
    steps=10,
    rounds=10,
    executions=5,
    platforms=None,
)
BATCHES = (1, 8)


def measure(bench: Bench) -> Iterator[Figure]:
    """The CPU, and a GPU where there is one with memory for the dense matrices of two layers."""
    if not (EXAMPLES / "sparse.py").exists():
        raise Unavailable("the examples of a checkout")
    run, peer = _runner(bench)
    for setting in (CPU, GPU) if bench.device is not None and bench.cuda is not None else (CPU,):
        yield from _currents(bench, setting, run, peer)
        yield from _steps(bench, setting, run)


def _runner(bench: Bench) -> tuple[Callable[..., Any], str]:
    """What runs a child, in the peers' environment if there is one, and brainevent's name with its version."""
    try:
        peers = find_peers(bench, [PEER])
    except Unavailable:
        return bench.child, PEER
    return partial(peers.run, bench), f"{PEER} {peers.versions[PEER] or ''}".strip()


def _currents(bench: Bench, setting: Setting, run: Callable[..., Any], peer: str) -> Iterator[Figure]:
    for firing, samples in _child(bench, setting, run, "currents").items():
        label = (
            f"currents, {setting.label}, {setting.neurons:,} neurons, 10 % connected, {float(firing) * 100:g} % firing"
        )
        ours = tuple(samples.pop("ours"))
        if PEER not in samples:
            print(f"events: {peer} is not installed, or can't be called on this {setting.label}", file=sys.stderr)
        for name, theirs in samples.items():
            is_goal = float(firing) == setting.firing[0] or name == PEER
            yield Figure(
                label=label,
                ours=ours,
                baseline=BASELINES.get(name, peer),
                theirs=tuple(theirs),
                goal=setting.goals.get(name) if is_goal else None,
            )


def _steps(bench: Bench, setting: Setting, run: Callable[..., Any]) -> Iterator[Figure]:
    for batch, samples in _child(bench, setting, run, "step").items():
        ours = {name: tuple(samples.pop(name)) for name in ("in place", "by jax.grad")}
        for (kind, mine), (name, theirs) in itertools.product(ours.items(), samples.items()):
            yield Figure(
                label=f"training step {kind}, {setting.label}, two layers of {setting.neurons:,}, batch of {batch}",
                ours=mine,
                baseline=f"plain JAX, {name}",
                theirs=tuple(theirs),
                goal=STEP_GOAL if kind == "in place" else None,
            )


def _child(bench: Bench, setting: Setting, run: Callable[..., Any], what: str) -> dict[str, dict[str, list[float]]]:
    """The samples of `children/events.py`."""
    job = bench.folder("job") / "job.json"
    job.write_text(
        json.dumps(
            {
                "what": what,
                "examples": str(EXAMPLES),
                "neurons": setting.neurons,
                "connections": setting.neurons // 10,
                "firing": setting.firing,
                "batches": BATCHES,
                "lengths": (4, 20),
                "steps": setting.steps,
                "rounds": bench.rounds(setting.rounds),
                "executions": setting.executions,
            }
        ),
        encoding="utf-8",
    )
    variables = {} if setting.platforms is None else {"JAX_PLATFORMS": setting.platforms}
    samples: dict[str, dict[str, list[float]]] = run("events.py", str(job), cache=bench.folder("cache"), **variables)
    return samples


ROW = Row(measure=measure)
