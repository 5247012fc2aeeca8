"""The bar chart of README and of the site's first page: ``python -m benchmarks.bars`` writes it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import Any

from .report import duration, origin, our_name

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "h100.json"
TITLE = "Time from new CUDA source to callable kernel"
LABELS = ("first build, CUDA", "cold load, CUDA")
FIRST = "cold load_cuda_inline, first on the machine"
"""Our build with an empty cache in the row `cold_cuda`, for results whose row `peers` has a later build alone."""
CONDITIONS = "A new vector-add. Builds began with an empty cache; the later build came after two others."
SEPARATE = "The first build of be_runtime was measured in a separate run."
PICTURE = ROOT / "docs" / "pictures" / "builds.svg"
OURS, THEIRS = "#2a9d8f", "#8d99a6"
"""They are seen on white and on black alike; the background is transparent."""
MODES = "<style>text{fill:#22313f!important}@media (prefers-color-scheme:dark){text{fill:#d5dbe1!important}}</style>"
"""The colour of the text follows the mode of the page that shows the picture."""
_NAMES, _WIDTH, _ROW, _HEAD = 196, 125, 22, 26
"""Pixels; all together, the width of a phone."""


def bar_chart(results: Mapping[str, Any]) -> str:
    """Return an SVG of the medians of the builds in the row `peers`, from the fastest to the slowest."""
    figures = [each for each in results["figures"] if each["row"] == "peers" and each["label"] in LABELS]
    theirs = {each["baseline"]: each["theirs"]["median"] for each in figures}
    ours = {our_name(figures[0]["label"]): figures[0]["ours"]["median"]}
    separate = [each["ours"]["median"] for each in results["figures"] if each["label"] == FIRST]
    if "be_runtime" not in ours and separate:
        ours["be_runtime, first build"] = separate[0]
    bars = sorted({**ours, **theirs}.items(), key=lambda bar: bar[1])
    measured = origin(figures, results["run"], results["machine"])
    return _draw(bars, TITLE, (CONDITIONS, *((SEPARATE,) if separate else ()), measured))


def _draw(bars: Sequence[tuple[str, float]], title: str, notes: Sequence[str]) -> str:
    """Draw a title, horizontal bars from zero on with a time behind each, and notes below them."""
    most = max(seconds for _, seconds in bars)
    notes = [line for note in notes for line in wrap(note, 58)]
    width, height = _NAMES + _WIDTH + 55, _HEAD + _ROW * len(bars) + 17 * len(notes) + 12
    spoken = ", ".join(f"{name} {duration(seconds)}" for name, seconds in bars)
    style = f'width="{1.4 * width:g}" font-family="sans-serif" font-size="13"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {style}>',
        f"<title>{escape(' '.join((f'{title}.', *notes, spoken)))}</title>",
        MODES,
        f'<text x="4" y="16" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for place, (name, seconds) in enumerate(bars):
        top, long = _HEAD + _ROW * place, max(2, round(_WIDTH * seconds / most))
        color, weight = (OURS, "bold") if name.startswith("be_runtime") else (THEIRS, "normal")
        lines += [
            f'<text x="{_NAMES - 8}" y="{top + 15}" text-anchor="end" font-weight="{weight}">{escape(name)}</text>',
            f'<rect x="{_NAMES}" y="{top + 3}" width="{long}" height="{_ROW - 6}" rx="2" fill="{color}"/>',
            f'<text x="{_NAMES + long + 6}" y="{top + 15}" font-weight="{weight}">{duration(seconds)}</text>',
        ]
    for place, note in enumerate(reversed(notes)):
        lines.append(f'<text x="4" y="{height - 6 - 17 * place}">{escape(note)}</text>')
    return "\n".join([*lines, "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(bar_chart(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")
