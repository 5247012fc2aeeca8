"""Pictures and tables of the gallery, of the JSON that `measure` wrote. Needs matplotlib."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from ..bars import MODES
from . import PAGES
from .comparison import Comparison, compare
from .tables import cards, machine_name, milliseconds, page_table, summary_table

FAINT, KERNEL, BEST, OTHER = "#78828e40", "#2a9d8f", "#e9a23b", "#e9a23b80"
"""The dots and lines are seen on white and on black alike; the background is transparent."""
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "gallery", "font.size": 9, "font.family": "sans-serif"}
_WIDTH, _ROW_INCHES = 3.6, 0.19
"""A phone's width, so that a phone shows 9 points as 9 points."""

CARDS = "NVIDIA H200"
"""The machine whose gains the index shows beside the pictures."""
Machines = dict[str, tuple[Comparison, ...]]
"""What each machine has measured of a page."""


def draw_pages(folder: Path) -> None:
    """Write a picture and a table of each page, and the table of all, beside the JSON files of a folder."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    pages: dict[str, Machines] = {}
    for name in PAGES:
        measured = [each for each in found if name in each["pages"]]
        pages[name] = {machine_name(each["machine"]): compare(each["pages"][name]["operations"]) for each in measured}
        if pages[name]:
            _draw(pages[name], folder / f"{name}.svg")
            (folder / f"{name}.inc").write_text(page_table(pages[name]), encoding="utf-8")
    (folder / "summary.inc").write_text(summary_table(pages), encoding="utf-8")
    (folder / "cards.inc").write_text(cards(pages, CARDS), encoding="utf-8")


def _draw(machines: Machines, path: Path) -> None:
    """A panel for each machine, a group of dots for each problem."""
    mpl = import_module("matplotlib")
    mpl.use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    heights = [_ROW_INCHES * _count_rows(panel) for panel in machines.values()]
    with mpl.rc_context(_STYLE):
        page, grid = pyplot.subplots(
            len(machines),
            1,
            figsize=(_WIDTH, sum(heights) + 0.6 * len(heights)),
            height_ratios=heights,
            layout="constrained",
            squeeze=False,
        )
        for axes, (machine, panel) in zip(grid[:, 0], machines.items(), strict=True):
            _draw_panel(axes, machine, panel)
        grid[-1, 0].set_xlabel("less is better; the axis is logarithmic", loc="left")
        page.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(page)
    head, ending, rest = path.read_text(encoding="utf-8").partition("<defs>")
    path.write_text(f"{head}{MODES}\n {ending}{rest}", encoding="utf-8")


def _count_rows(panel: tuple[Comparison, ...]) -> float:
    """Rows of a panel: a head, the kernel, the forms in plain JAX and a gap, and the names of several operations."""
    operations = len({each.operation for each in panel})
    return sum(len(each.plain) + 2.3 for each in panel) + (operations if operations > 1 else 0)


def _draw_panel(axes: Any, machine: str, panel: tuple[Comparison, ...]) -> None:
    every = [seconds for each in panel for seconds in (each.kernel, *each.plain.values())]
    middle = (min(every) * max(every)) ** 0.5
    titles = len({each.operation for each in panel}) > 1
    row, operation = 0.0, ""
    for each in panel:
        verdict = "no difference" if each.is_faster is None else f"{each.gain.value:.2g} ×"  # noqa: RUF001
        heads = (each.operation, f"{each.label}: {verdict}")
        for head in heads if titles and each.operation != operation else heads[1:]:
            axes.text(0, row, head, fontweight="bold", va="center", transform=axes.get_yaxis_transform())
            row += 1
        row, operation = row - 1, each.operation
        times = {"kernel": each.kernel, **dict(sorted(each.plain.items(), key=lambda item: item[1]))}
        for name, seconds in times.items():
            row += 1
            color = KERNEL if name == "kernel" else BEST if name == each.best else OTHER
            axes.plot(1e3 * seconds, row, "o", color=color, markersize=6)
            side = 1 if seconds <= middle else -1
            beside = {"xytext": (6 * side, 0), "textcoords": "offset points", "va": "center"}
            words = [milliseconds(seconds), name.replace(",", "")][::side]
            axes.annotate(" ".join(words), (1e3 * seconds, row), **beside, ha="left" if side > 0 else "right")
        row += 1.3
    axes.set(xscale="log", ylim=(row - 0.6, -0.7), yticks=[])
    axes.margins(x=0.04)
    axes.xaxis.set_major_formatter("{x:g} ms")
    axes.minorticks_off()
    axes.set_title(machine, loc="left", fontweight="bold", fontsize=10)
    axes.tick_params(which="both", length=0)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
