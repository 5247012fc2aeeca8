"""The directive `peers-picture`: the benchmark's row `peers` as a picture, from the file that the benchmark wrote."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from benchmarks.report import duration, origin, our_name

OURS, THEIRS = "#2a9d8f", "#8d99a6"
INKS = {"light": "#22313f", "dark": "#d5dbe1"}


def bars_of(figures: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, float]]]:
    """Group the figures by label: names and median seconds, from the fastest to the slowest.

    Examples
    --------
    >>> figure = {
    ...     "label": "a call",
    ...     "baseline": "x",
    ...     "ours": {"median": 1.0},
    ...     "theirs": {"median": 2.0},
    ... }
    >>> bars_of([figure, {**figure, "baseline": "y", "theirs": {"median": 0.5}}])
    {'a call': [('y', 0.5), ('be_runtime', 1.0), ('x', 2.0)]}
    """
    groups: dict[str, list[tuple[str, float]]] = {}
    for each in figures:
        group = groups.setdefault(each["label"], [(our_name(each["label"]), each["ours"]["median"])])
        group.append((each["baseline"], each["theirs"]["median"]))
    return {label: sorted(group, key=lambda bar: bar[1]) for label, group in groups.items()}


def draw(label: str, bars: Sequence[tuple[str, float]], ink: str, path: Path) -> None:
    """Draw one group as points; the axis is logarithmic, since some take a hundred times as long."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "peers"  # the same figures make the same file
    page, axes = plt.subplots(figsize=(3.7, 0.2 * len(bars) + 0.7), layout="constrained")
    names, seconds = zip(*bars, strict=True)
    ours, places = [name.startswith("be_runtime") for name in names], range(len(bars))
    axes.scatter(seconds, places, s=40, color=[OURS if own else THEIRS for own in ours], zorder=2)
    axes.set_yticks(places, names)
    for text in compress(axes.get_yticklabels(), ours):
        text.set_fontweight("bold")
    axes.set_xscale("log")
    first, last = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds)))
    decades = [10.0**power for power in range(first, last + 1)]
    axes.set_xlim(0.7 * decades[0], 12 * decades[-1])
    decades = decades[:: 1 + len(decades) // 4]
    axes.set_xticks(decades, [re.sub(r"\.0+(?= )", "", duration(each)) for each in decades])
    axes.minorticks_off()
    for place, value in zip(places, seconds, strict=True):
        beside = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(duration(value), (value, place), **beside, color=ink, size=9)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.grid(visible=True, color=THEIRS, alpha=0.3, linewidth=0.6)
    page.suptitle(label, x=0.02, horizontalalignment="left", fontsize=9, fontweight="bold", color=ink)
    axes.tick_params(length=0, labelcolor=ink, labelsize=9)
    axes.spines[:].set_visible(False)
    page.savefig(path, transparent=True, metadata={"Date": None})
    plt.close(page)


def _spoken(bars: Sequence[tuple[str, float]]) -> str:
    """A panel in words, for who does not see it."""
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in bars)


class PeersPicture(SphinxDirective):
    """``{peers-picture} benchmarks/results/cpu.json``: a picture of each group, for both modes of the theme.

    Calls are left out: a table of the row `calls`, which has more samples, compares them.
    """

    required_arguments: ClassVar[int] = 1

    def run(self) -> list[nodes.Node]:
        """Draw it below docs/generated/."""
        docs = Path(self.env.srcdir)
        source = docs.parent / self.arguments[0]
        for each in (str(source), __file__):
            self.env.note_dependency(each)
        results = json.loads(source.read_text(encoding="utf-8"))
        peers = [
            each for each in results["figures"] if each["row"] == "peers" and not each["label"].startswith("call ")
        ]
        groups = bars_of(peers)
        folder = docs / "generated" / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        pictures = nodes.container(classes=["peers"])
        for place, (label, bars) in enumerate(groups.items()):
            for mode, ink in INKS.items():
                path = folder / f"peers-{source.stem}-{place}-{mode}.svg"
                draw(label, bars, ink, path)
                text = f"{label}: {_spoken(bars)}"
                pictures += nodes.image(uri=f"/generated/pictures/{path.name}", alt=text, classes=[f"only-{mode}"])
        text = f"{origin(peers, results['run'], results['machine'])} The axes are logarithmic, and less is better."
        return [pictures, nodes.paragraph("", text, classes=["peers-note"])]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.add_directive("peers-picture", PeersPicture)
    return {"parallel_read_safe": True}
