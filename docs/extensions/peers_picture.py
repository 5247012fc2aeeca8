"""The directive `peers-picture`: the benchmark's row `peers` as a picture, from the file that the benchmark wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from benchmarks.report import duration

OURS, THEIRS = "#2a9d8f", "#8d99a6"
COLUMNS = 2
INKS = {"light": "#22313f", "dark": "#d5dbe1"}


def bars_of(figures: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, float]]]:
    """Group the row's figures by what was measured: names and median seconds, ours first, then the fastest.

    Examples
    --------
    >>> figure = {
    ...     "row": "peers",
    ...     "label": "a call",
    ...     "baseline": "x",
    ...     "ours": {"median": 1.0},
    ...     "theirs": {"median": 2.0},
    ... }
    >>> bars_of([figure])
    {'a call': [('this package', 1.0), ('x', 2.0)]}
    """
    groups: dict[str, list[tuple[str, float]]] = {}
    for each in figures:
        if each["row"] == "peers":
            group = groups.setdefault(each["label"], [("this package", each["ours"]["median"])])
            group.append((each["baseline"], each["theirs"]["median"]))
    return {label: [group[0], *sorted(group[1:], key=lambda bar: bar[1])] for label, group in groups.items()}


def draw(groups: Mapping[str, Sequence[tuple[str, float]]], ink: str, path: Path) -> None:
    """Draw a panel of points for each group; the axes are logarithmic, since some take a hundred times as long."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "peers"  # the same figures make the same file
    rows = [len(bars) for bars in list(groups.values())[::COLUMNS]]
    size = (9.5, sum(0.27 * count + 0.75 for count in rows))
    page, grid = plt.subplots(len(rows), COLUMNS, figsize=size, height_ratios=rows, layout="constrained", squeeze=False)
    for axes in grid.flat[len(groups) :]:
        axes.remove()
    for axes, (label, bars) in zip(grid.flat, groups.items(), strict=False):
        _draw_panel(axes, label, bars, ink)
    page.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(page)


def _draw_panel(axes: Any, label: str, bars: Sequence[tuple[str, float]], ink: str) -> None:
    """Draw one group: the fastest is on the left."""
    names, seconds = zip(*bars, strict=True)
    places = range(len(bars))
    colors = [OURS, *[THEIRS] * (len(bars) - 1)]
    axes.scatter(seconds, places, s=64, color=colors, zorder=2)
    axes.set_yticks(places, names)
    axes.set_xscale("log")
    first, last = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    decades = [10.0**power for power in range(first, last + 1)]
    axes.set_xlim(0.7 * decades[0], 5 * decades[-1])
    axes.set_xticks(decades, [re.sub(r"\.0+(?= )", "", duration(each)) for each in decades])
    axes.minorticks_off()
    for place, value in zip(places, seconds, strict=True):
        axes.annotate(
            duration(value), (value, place), (8, 0), textcoords="offset points", va="center", color=ink, size=8
        )
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.grid(visible=True, color=THEIRS, alpha=0.3, linewidth=0.6)
    axes.set_title(label, loc="left", fontsize=10, color=ink)
    axes.tick_params(length=0, labelcolor=ink, labelsize=8)
    axes.spines[:].set_visible(False)


def _spoken(bars: Sequence[tuple[str, float]]) -> str:
    """A panel in words, for who does not see it."""
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in bars)


class PeersPicture(SphinxDirective):
    """``{peers-picture} benchmarks/results/cpu.json``: the picture, in a version for each of the theme's modes."""

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Draw it below docs/generated/."""
        docs = Path(self.env.srcdir)
        source = docs.parent / self.arguments[0]
        self.env.note_dependency(str(source))
        results = json.loads(source.read_text(encoding="utf-8"))
        groups, machine = bars_of(results["figures"]), results["machine"]
        folder = docs / "generated" / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        made: list[nodes.Node] = []
        spoken = "; ".join(
            f"{label}: " + ", ".join(f"{n} {duration(s)}" for n, s in bars) for label, bars in groups.items()
        )
        for mode, ink in INKS.items():
            path = folder / f"peers-{source.stem}-{mode}.svg"
            draw(groups, ink, path)
            uri = f"/generated/pictures/{path.name}"
            image = nodes.image(uri=uri, alt=f"Medians. {spoken}", classes=[f"only-{mode}", "dark-light"])
            made.append(image)
        where = machine["gpu"] or f"{machine['cores']} cores of {machine['cpu']}"
        text = f"Medians on {where}, jax {machine['jax']}. The axes are logarithmic, and less is better."
        return [*made, nodes.paragraph("", text, classes=["peers-note"])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("peers-picture", PeersPicture)
    return {"parallel_read_safe": True}
