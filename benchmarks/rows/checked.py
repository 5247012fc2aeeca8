"""Calls in checked mode against the same calls without it, eager and in a jitted program."""

from __future__ import annotations

import json
from collections.abc import Iterator

from ..bench import KERNELS, Bench
from ..figure import Figure, Row

ELEMENTS = (1 << 10, 1 << 20)
ROUNDS, EXECUTIONS, CALLS = 20, 5, 10
PLATFORMS = {"CPU": ("cpp", "cc", {"JAX_PLATFORMS": "cpu"}), "GPU": ("cuda", "cu", {})}


def measure(bench: Bench) -> Iterator[Figure]:
    """All checks at once, on what this machine has."""
    rounds = bench.rounds(ROUNDS, quick=2)
    job = bench.folder("job") / "job.json"
    has_gpu = bench.device is not None and bench.cuda is not None
    for platform, (language, ending, variables) in PLATFORMS.items():
        if platform == "GPU" and not has_gpu:
            continue
        described = {
            "language": language,
            "source": str(KERNELS / f"vector_add.{ending}"),
            "elements": ELEMENTS,
            "rounds": rounds,
            "executions": EXECUTIONS,
            "calls": CALLS,
        }
        job.write_text(json.dumps(described), encoding="utf-8")
        found = bench.child("checked_calls.py", str(job), cache=bench.folder("cache"), **variables)
        for form, sizes in found.items():
            for elements, samples in sizes.items():
                yield Figure(
                    label=f"checked call, {platform}, {form}, {int(elements):,} elements",
                    ours=tuple(samples["checked"]),
                    baseline="unchecked call",
                    theirs=tuple(samples["plain"]),
                    block=rounds,
                )


ROW = Row(measure=measure)
