"""The tuned product of a CSR matrix and a vector, `examples/csr.py`, against its default configuration."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..bench import HERE, Bench
from ..figure import Figure, Row, Unavailable

EXAMPLES = HERE.parent / "examples"
ENTRIES = (4, 16, 64, 300)
ROWS = {"CPU": 1 << 14, "GPU": 1 << 18}
ROUNDS, CALLS = 20, 100


def measure(bench: Bench) -> Iterator[Figure]:
    """One process tunes and is timed; the next one has to find every choice."""
    if not (EXAMPLES / "csr.py").exists():
        raise Unavailable("the examples of a checkout")
    platform = "GPU" if bench.device is not None and bench.cuda is not None else "CPU"
    folder = bench.folder("cache")
    first = _child(bench, platform, folder, bench.rounds(ROUNDS, quick=3))
    second = _child(bench, platform, folder, 0)
    if second["tunings"]:
        raise RuntimeError(f"a second process timed {second['tunings']} sizes again")
    for entries, found in first["sizes"].items():
        config = ", ".join(f"{name} {value}" for name, value in found["config"].items())
        size = f"{ROWS[platform]:,} rows of {entries} entries"
        yield Figure(
            label=f"product of a CSR matrix, {platform}, {size}, tuned ({config})",
            ours=tuple(found["tuned"]),
            baseline="default configuration",
            theirs=tuple(found["default"]),
            goal=1.0,
            within_noise=True,
        )


def _child(bench: Bench, platform: str, cache: Any, rounds: int) -> dict[str, Any]:
    """The samples of `children/tuned.py`."""
    job = bench.folder("job") / "job.json"
    described = {
        "examples": str(EXAMPLES),
        "rows": ROWS[platform],
        "entries": ENTRIES,
        "rounds": rounds,
        "calls": CALLS,
    }
    job.write_text(json.dumps(described), encoding="utf-8")
    variables = {"JAX_PLATFORMS": "cpu"} if platform == "CPU" else {}
    samples: dict[str, Any] = bench.child("tuned.py", str(job), cache=cache, **variables)
    return samples


ROW = Row(measure=measure)
