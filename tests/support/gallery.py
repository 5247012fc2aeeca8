"""Pages of the gallery at sizes for tests."""

from __future__ import annotations

from typing import Any

from benchmarks.gallery import page_path
from benchmarks.gallery.page import FIGURE, Run
from tests.support.requirements import has_matplotlib

_ONCE = "ROUNDS, CALLS = 1, 1"
SHORT = {
    "lif": "NEURONS, CONNECTIONS, STEPS = (300,), 50, 60",
    "histogram": "POINTS, BINS = 2**14, (16, 256)",
    "flock": "CELLS, STEPS = (5,), 20",
    "adamw": "SIZES, TRAINING = (2**10,), 20",
    "scan": "BATCH, CHANNELS, LENGTHS, TRAINING = 2, 40, (17,), 30",
    "photons": "LANES, PHOTONS = (512,), 8",
}
"""Statements behind each page's cell of parameters. 300 neurons and 40 channels fill no block, 17 steps no group."""


def run_short(name: str) -> dict[str, Any]:
    """Run a page, and give back its names; pictures are drawn where there is matplotlib."""
    without = () if has_matplotlib() else (FIGURE,)
    return Run(page_path(name), f"{SHORT[name]}; {_ONCE}", without).until()
