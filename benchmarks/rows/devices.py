"""Kernels and training whose arrays are split over two GPUs, against the same on one of them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from be_toolchain import probe_devices
from be_toolchain.machine.local_system import LocalSystem

from ..bench import HERE, KERNELS, Bench
from ..figure import Figure, Row, Unavailable
from .launch import has_numba

EXAMPLES = HERE.parent / "examples"
CALL_GOAL, GOAL = 1 / 1.9, 1 / 1.7
CALLS = ("automatic", "explicit", "manual")
"""Contestants that are calls of one kernel of a module, by how their mesh splits arrays."""
WITHOUT_GOAL = ("one call with its dispatch", "by jax.grad, samples split")
"""The second sums the gradients of all weights, as many bytes as the weights have: it can't gain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where and how much.

    Parameters
    ----------
    label : str
        Of one device, for the table.
    source : str
        Of the kernel.
    rows, columns, steps : int
        Of the array, and of the kernel for each element.
    rounds, executions : int
        How often to measure, and how many executions of a program a sample is the fastest of.
    neurons, batch, count : int
        Of the network, and training steps in a sample.
    variables : dict of str to str
        Of the child.
    """

    label: str
    source: str
    rows: int
    columns: int
    steps: int
    rounds: int
    executions: int
    neurons: int
    batch: int
    count: int
    variables: dict[str, str]


GPU = Setting(
    label="one GPU",
    source="settle.cu",
    rows=1024,
    columns=4096,
    steps=4000,
    rounds=8,
    executions=5,
    neurons=50_000,
    batch=8,
    count=10,
    variables={},
)
CPU = Setting(
    label="one part of the CPU",
    source="settle.cc",
    rows=16,
    columns=128,
    steps=500,
    rounds=2,
    executions=3,
    neurons=400,
    batch=8,
    count=2,
    variables={"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
)
"""Two parts of one CPU, which gain nothing: to see that the code works."""


def measure(bench: Bench) -> Iterator[Figure]:
    """Both GPUs against one of them."""
    count = len(probe_devices(LocalSystem()).devices)
    if count < 2 or bench.cuda is None:
        raise Unavailable(f"two GPUs and nvcc; there are {count} GPUs")
    yield from compare(bench, GPU)


def compare(bench: Bench, setting: Setting) -> Iterator[Figure]:
    """Every figure of a setting."""
    for what in ("kernels", "training"):
        if what == "training" and not (EXAMPLES / "sparse.py").exists():
            continue  # of a checkout
        for name, samples in _child(bench, setting, what).items():
            call = f"a kernel, {name}" if what == "kernels" else f"training step {name}"
            goal = None if name in WITHOUT_GOAL else CALL_GOAL if name in CALLS else GOAL
            yield Figure(
                label=f"{call}, on two devices",
                ours=tuple(samples["both"]),
                baseline=setting.label,
                theirs=tuple(samples["one"]),
                goal=goal,
            )


def _child(bench: Bench, setting: Setting, what: str) -> dict[str, dict[str, list[float]]]:
    """The samples of `children/devices.py`."""
    job = bench.folder("job") / "job.json"
    described: dict[str, Any] = {
        "what": what,
        "source": str(KERNELS / setting.source),
        "raw": str(KERNELS / "settle_raw.cu"),
        "with_numba": has_numba(),
        "rows": setting.rows,
        "columns": setting.columns,
        "steps": setting.steps,
        "lengths": (2, 8),
        "rounds": bench.rounds(setting.rounds),
        "executions": setting.executions,
        "examples": str(EXAMPLES),
        "neurons": setting.neurons,
        "connections": setting.neurons // 10,
        "batch": setting.batch,
        "count": setting.count,
    }
    job.write_text(json.dumps(described), encoding="utf-8")
    samples: dict[str, dict[str, list[float]]] = bench.child(
        "devices.py", str(job), cache=bench.folder("cache"), **setting.variables
    )
    return samples


ROW = Row(measure=measure)
