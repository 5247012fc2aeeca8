"""Outcomes as a table for people and as JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .figure import Figure, Outcome

COLUMNS = ("row", "figure", "ours", "compared with", "ratio", "goal", "met?")
LATER_BUILD = "be_runtime, later build"
"""In the row `peers`: a build where two others have left what is kept of the toolchain."""
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def duration(seconds: float) -> str:
    """Seconds with three digits, in the unit that suits them.

    Examples
    --------
    >>> duration(0.00512), duration(1.5), duration(108e-9)
    ('5.12 ms', '1.50 s', '108 ns')
    """
    scale, unit = next((pair for pair in _UNITS if abs(seconds) >= pair[0]), _UNITS[-1])
    value = seconds / scale
    digits = max(0, 2 - len(str(int(abs(value)))) + 1)
    return f"{value:.{digits}f} {unit}"


def origin(figures: Sequence[Mapping[str, Any]], run: Mapping[str, Any], machine: Mapping[str, Any]) -> str:
    """Return how often, where and when figures of a results file were measured, as one or two sentences.

    Examples
    --------
    >>> sides = {"ours": {"count": 1}, "theirs": {"count": 1}}
    >>> machine = {"gpu": "NVIDIA X1", "cpu": "AMD EPYC", "cores": 2, "jax": "0.11.2"}
    >>> origin([sides], {"date": "2026-11-22"}, machine)
    'Single runs with JAX 0.11.2 on a machine with an NVIDIA X1, 2026-11-22. Differences of a few percent are noise.'
    >>> origin([{**sides, "ours": {"count": 5}}], {"date": "2026-11-22"}, machine)
    'Medians of 1 to 5 runs with JAX 0.11.2 on a machine with an NVIDIA X1, 2026-11-22.'
    """
    counts = sorted({each[side]["count"] for each in figures for side in ("ours", "theirs") if each[side]})
    cores = f"{machine['cores']} cores of an {machine['cpu']}"
    where = f"a machine with an {machine['gpu']}" if machine["gpu"] else cores
    told = f"with JAX {machine['jax']} on {where}, {run['date']}."
    if counts == [1]:
        return f"Single runs {told} Differences of a few percent are noise."
    return f"Medians of {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} runs {told}"


def our_name(label: str) -> str:
    """Return what the row `peers` measured of ours: results of a "cold load" have a later one beside first ones.

    Examples
    --------
    >>> our_name("first build, CUDA"), our_name("cold load, CUDA")
    ('be_runtime', 'be_runtime, later build')
    """
    return LATER_BUILD if label.startswith("cold load") else "be_runtime"


def how_to_read(figures: Sequence[Mapping[str, Any]]) -> str:
    """Return what a reader has to know about the ratios of these figures; empty where there are none.

    Examples
    --------
    >>> sides = {"label": "a call", "ratio": {"value": 0.5}}
    >>> how_to_read([{**sides, "ours": {"samples": [1.0, 2.0]}}])
    "Each round measures both sides. A ratio is the median of all rounds' ratios, not the ratio of the medians."
    >>> how_to_read([{**sides, "ratio": None, "ours": {"samples": [1.0, 2.0]}}])
    ''
    """
    paired = [each for each in figures if each["ratio"] and len(each["ours"]["samples"]) > 1]
    if not paired:
        return ""
    told = "Each round measures both sides. A ratio is the median of all rounds' ratios, not the ratio of the medians."
    groups = {(each["label"], *each["ours"]["samples"]) for each in paired}
    if len(groups) > len({each["label"] for each in paired}):
        told += " The tools were measured in groups. Each group has its own measurement of be_runtime."
    return told


def compared_cells(figure: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return a figure of a results file as cells: label, our median, the baseline and its median, the ratio.

    The ratio of a single pair has no interval.

    Examples
    --------
    >>> ratio = {"value": 0.25, "low": 0.2, "high": 0.31}
    >>> ours, theirs = {"count": 7, "median": 1.0}, {"count": 7, "median": 4.0}
    >>> compared_cells({"label": "a build", "baseline": "nvcc", "ours": ours, "theirs": theirs, "ratio": ratio})
    ('a build', '1.00 s', 'nvcc: 4.00 s', '0.25 [0.20, 0.31]')
    >>> compared_cells({"label": "a load", "baseline": None, "ours": ours, "theirs": None, "ratio": None})
    ('a load', '1.00 s', '', '')
    """
    theirs, ratio = figure["theirs"], figure["ratio"]
    baseline = f"{figure['baseline']}: {duration(theirs['median'])}" if theirs else ""
    between = f"{ratio['value']:.2f}" if ratio else ""
    if ratio and figure["ours"]["count"] > 1:
        between += f" [{ratio['low']:.2f}, {ratio['high']:.2f}]"
    return figure["label"], duration(figure["ours"]["median"]), baseline, between


def goal_text(figure: Figure) -> str:
    """The goal as it is compared: a ratio, or a duration where there is no baseline."""
    if figure.goal is None:
        return ""
    return f"<= {figure.goal:.2f}" if figure.theirs else f"<= {duration(figure.goal)}"


def table(outcomes: Sequence[Outcome]) -> str:
    """A table in plain text, and below it the rows that were left out."""
    lines = [COLUMNS, *(_cells(outcome.row, figure) for outcome in outcomes for figure in outcome.figures)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(COLUMNS))]
    rule = tuple("-" * width for width in widths)
    shown = [_aligned(line, widths) for line in (lines[0], rule, *lines[1:])]
    shown += [f"{what}: left out, {reason}" for outcome in outcomes for what, reason in outcome.left_out.items()]
    return "\n".join(shown)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cells(row: str, figure: Figure) -> tuple[str, ...]:
    theirs, ratio = figure.their_summary, figure.ratio
    compared = f"{duration(theirs.median)} {figure.baseline}" if theirs is not None else ""
    shown = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio is not None else ""
    met = {True: "yes", False: "NO", None: ""}[figure.met]
    return (row, figure.label, duration(figure.summary.median), compared, shown, goal_text(figure), met)


def as_json(outcomes: Sequence[Outcome], *, machine: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Everything, with every sample; durations are seconds."""
    return {
        "format": 1,
        "run": dict(run),
        "machine": dict(machine),
        "figures": [_figure_json(outcome.row, figure) for outcome in outcomes for figure in outcome.figures],
        "left_out": {what: reason for outcome in outcomes for what, reason in outcome.left_out.items()},
    }


def compact(found: Mapping[str, Any], *tables: str) -> str:
    """Write JSON with one line for each field, and one for each row of the tables; numbers have six digits.

    A table is a list, or an object whose rows have names.

    Examples
    --------
    >>> print(compact({"format": 1, "figures": [{"median": 0.123456789}, {"median": 2.0}]}, "figures"), end="")
    {
    "format": 1,
    "figures": [
    {"median": 0.123457},
    {"median": 2.0}
    ]
    }
    """
    fields = []
    for name, value in rounded(found).items():
        text = json.dumps(value)
        if name in tables:
            named = [f"{json.dumps(row)}: " for row in value] if isinstance(value, dict) else [""] * len(value)
            rows = value.values() if isinstance(value, dict) else value
            each = ",\n".join(f"{start}{json.dumps(row)}" for start, row in zip(named, rows, strict=True))
            text = f"{text[0]}\n{each}\n{text[-1]}"
        fields.append(f"{json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def rounded(value: Any) -> Any:
    """Round all floats in a JSON value to six digits."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, Mapping):
        return {name: rounded(each) for name, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, (list, tuple)) else value


def _figure_json(row: str, figure: Figure) -> dict[str, Any]:
    theirs, ratio = figure.their_summary, figure.ratio
    return {
        "row": row,
        "label": figure.label,
        "baseline": figure.baseline or None,
        "goal": figure.goal,
        "goal_within_noise": figure.within_noise,
        "met": figure.met,
        "ratio": asdict(ratio) if ratio is not None else None,
        "ours": {**asdict(figure.summary), "samples": list(figure.ours)},
        "theirs": {**asdict(theirs), "samples": list(figure.theirs)} if theirs is not None else None,
        "samples_per_process": figure.block,
    }
