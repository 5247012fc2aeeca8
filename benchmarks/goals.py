"""Goals that results met and missed: ``python -m benchmarks.goals`` writes their number into this folder's README."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .report import duration

HERE = Path(__file__).resolve().parent
README = HERE / "README.md"
FILES = ("h100", "h200", "h200-compilers", "cpu")
HEAD = "| results | goals met | rows with missed goals |\n|---|---|---|\n"
_TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")


def missed(results: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the figures of a results file that missed their goals."""
    return [each for each in results["figures"] if each["met"] is False]


def count_goals(results: Mapping[str, Any]) -> str:
    """Return how many goals of a results file were met.

    Examples
    --------
    >>> count_goals({"figures": [{"met": True}, {"met": False}, {"met": None}]})
    '1 of 2'
    """
    found = [each["met"] for each in results["figures"] if each["met"] is not None]
    return f"{sum(found)} of {len(found)}"


def goal_cells(figure: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return a figure with a goal as cells: what was measured, the ratio or the time, and the largest good one.

    Ratios have three decimals: some miss a goal by less than a hundredth.

    Examples
    --------
    >>> ours, ratio = {"count": 7, "median": 0.0074}, {"value": 1.14, "low": 1.05, "high": 1.2}
    >>> goal_cells({"label": "load", "ours": ours, "theirs": None, "ratio": None, "goal": 0.006})
    ('load', '7.40 ms', '6.00 ms')
    >>> compared = {"label": "call", "baseline": "a handler", "ours": ours, "theirs": ours, "ratio": ratio}
    >>> goal_cells({**compared, "goal": 1.0, "goal_within_noise": True})
    ('call, compared with a handler', '1.140 [1.050, 1.200]', '1.000 (noise allowed)')
    """
    label, goal = figure["label"], figure["goal"]
    if figure["theirs"] is None:
        return label, duration(figure["ours"]["median"]), duration(goal)
    ratio = "{value:.3f} [{low:.3f}, {high:.3f}]".format(**figure["ratio"])
    noise = " (noise allowed)" if figure["goal_within_noise"] else ""
    return f"{label}, compared with {figure['baseline']}", ratio, f"{goal:.3f}{noise}"


def write_goals(text: str) -> str:
    """Return the text of README with the table of goals that the results files have."""
    table = HEAD
    for name in FILES:
        results = json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))
        rows = Counter(each["row"] for each in missed(results))
        shown = ", ".join(f"`{row}` {count}" for row, count in sorted(rows.items()))
        table += f"| [{name}.json](results/{name}.json) | {count_goals(results)} | {shown} |\n"
    return _TABLE.sub(lambda _: table, text)


if __name__ == "__main__":
    README.write_text(write_goals(README.read_text(encoding="utf-8")), encoding="utf-8")
