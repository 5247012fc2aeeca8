"""Pictures and tables of the gallery, of the JSON that `measure` wrote. Needs matplotlib."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from . import PAGES
from .comparison import Comparison, compare
from .tables import machine_name, milliseconds, page_table, summary_table

INK, FAINT, KERNEL, BEST, OTHER = "#78828e", "#78828e40", "#2a9d8f", "#e9a23b", "#e9a23b80"
"""They are seen on white and on black alike; the background is transparent."""
_STYLE = {"svg.fonttype": "none", "svg.hashsalt": "gallery", "font.size": 9, "font.family": "sans-serif"}
_ROW_INCHES = 0.2

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


def _draw(machines: Machines, path: Path) -> None:
    """A panel for each machine, a group of dots for each problem."""
    mpl = import_module("matplotlib")
    mpl.use("Agg")
    pyplot = import_module("matplotlib.pyplot")
    heights = [_ROW_INCHES * sum(len(each.plain) + 2 for each in panel) for panel in machines.values()]
    with mpl.rc_context(_STYLE):
        page, grid = pyplot.subplots(
            len(machines),
            1,
            figsize=(5.4, sum(heights) + 0.6 * len(heights)),
            height_ratios=heights,
            layout="constrained",
            squeeze=False,
        )
        for axes, (machine, panel) in zip(grid[:, 0], machines.items(), strict=True):
            _draw_panel(axes, machine, panel)
        page.savefig(path, transparent=True, metadata={"Date": None})
        pyplot.close(page)


def _draw_panel(axes: Any, machine: str, panel: tuple[Comparison, ...]) -> None:
    row, ticks = 0, []
    titles = len({each.operation for each in panel}) > 1
    for each in panel:
        label = f"{each.operation}, {each.label}" if titles else each.label
        verdict = "neither is faster" if each.is_faster is None else f"{each.gain.value:.2g} times as fast"
        axes.text(0, row, f"{label}: {verdict}", fontweight="bold", color=INK, va="center",
                  transform=axes.get_yaxis_transform())  # fmt: skip
        times = {"kernel": each.kernel, **dict(sorted(each.plain.items(), key=lambda item: item[1]))}
        for name, seconds in times.items():
            row += 1
            color = KERNEL if name == "kernel" else BEST if name == each.best else OTHER
            axes.plot(1e3 * seconds, row, "o", color=color)
            beside = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
            axes.annotate(milliseconds(seconds), (1e3 * seconds, row), **beside, color=INK, fontsize=8)
            ticks.append((row, name))
        row += 1
    axes.set_yticks([row for row, _ in ticks], [name for _, name in ticks])
    axes.set(xscale="log", ylim=(row - 0.4, -0.6), xlabel="less is better; the axis is logarithmic")
    axes.set_xlim(right=5 * axes.get_xlim()[1])
    axes.xaxis.set_major_formatter("{x:g} ms")
    axes.minorticks_off()
    axes.set_title(machine, loc="left", color=INK, fontweight="bold")
    axes.xaxis.label.set_color(INK)
    axes.tick_params(which="both", length=0, labelcolor=INK)
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
