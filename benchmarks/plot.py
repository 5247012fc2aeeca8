"""A picture of the figures: bars with the goal marked, ratios above, durations below. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .figure import Figure, Outcome, Unavailable
from .report import duration, goal_text

MET, MISSED, NO_GOAL = "#2a9d8f", "#e76f51", "#a8b5bf"
INK, FAINT = "#22313f", "#dfe5ea"
BAR_INCHES = 0.42


def draw(outcomes: Sequence[Outcome], machine: Mapping[str, Any], path: Path) -> None:
    """Write the picture; its format follows from the path's ending.

    Raises
    ------
    Unavailable
        matplotlib is not installed, or there is nothing to draw.
    """
    figures = [figure for outcome in outcomes for figure in outcome.figures]
    panels = [[figure for figure in figures if figure.theirs], [figure for figure in figures if not figure.theirs]]
    panels = [panel for panel in panels if panel]
    if not panels:
        raise Unavailable("there is nothing to draw")
    pyplot = _pyplot()
    heights = [len(panel) + 1.2 for panel in panels]
    page, grid = pyplot.subplots(
        len(panels),
        1,
        figsize=(11, BAR_INCHES * sum(heights) + 1.5),
        height_ratios=heights,
        layout="constrained",
        squeeze=False,
    )
    for axes, panel in zip(grid[:, 0], panels, strict=True):
        _draw_panel(axes, panel)
    page.suptitle(f"brainevent-toolchain on {_machine_text(machine)}", x=0.01, ha="left", fontsize=12, color=INK)
    page.supxlabel(_LEGEND, x=0.01, ha="left", fontsize=8, color=INK)
    page.savefig(path, dpi=90, facecolor="white")
    pyplot.close(page)
    if path.suffix == ".png":
        shrink(path)


def shrink(path: Path) -> None:
    """Give a bitmap as many colours as it needs: a third of the size. matplotlib brings Pillow."""
    image = import_module("PIL.Image")
    with image.open(path) as picture:
        few = picture.convert("RGB").quantize(64, dither=image.Dither.NONE)
    few.save(path, optimize=True)


_LEGEND = (
    "green: goal met · orange: goal missed · grey: no goal · black mark: the goal · "
    "line: 95 % interval of a ratio, extremes of a duration"
)


def _pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise Unavailable("matplotlib is not installed: pip install matplotlib") from None
    mpl.use("Agg")
    return import_module("matplotlib.pyplot")


def _machine_text(machine: Mapping[str, Any]) -> str:
    parts = (machine.get("gpu"), f"{machine['cores']} cores of {machine['cpu']}", f"jax {machine['jax']}")
    return ", ".join(str(part) for part in parts if part)


def _draw_panel(axes: Any, figures: Sequence[Figure]) -> None:
    """Ratios, or durations in milliseconds, one bar each from the top."""
    ratios = bool(figures[0].theirs)
    scale = 1.0 if ratios else 1e3
    for position, figure in enumerate(figures):
        value, low, high = (scale * number for number in _value_and_interval(figure))
        axes.barh(position, value, height=0.62, color=_color(figure), zorder=2)
        axes.plot([low, high], [position, position], color=INK, linewidth=1.4, zorder=3)
        if figure.goal is not None:
            goal = scale * figure.goal
            axes.plot([goal, goal], [position - 0.42, position + 0.42], color="black", linewidth=2.4, zorder=4)
    reach = max(_reach(figure) for figure in figures) * scale
    for position, figure in enumerate(figures):
        right = scale * _reach(figure) + 0.012 * reach
        axes.text(right, position, _value_text(figure), va="center", fontsize=8.5, color=INK)
    _style(axes, figures, reach)
    axes.set_xlabel("ours over theirs (less is better)" if ratios else "milliseconds (less is better)", color=INK)
    if ratios:
        axes.axvline(1.0, color=INK, linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)


def _style(axes: Any, figures: Sequence[Figure], reach: float) -> None:
    """Labels beside the bars, a faint grid, no frame."""
    axes.set_yticks(range(len(figures)), [_bar_label(figure) for figure in figures], fontsize=9, color=INK)
    axes.set_ylim(len(figures) - 0.4, -0.6)
    axes.set_xlim(0, 1.3 * reach)
    axes.grid(visible=True, axis="x", color=FAINT, zorder=0)
    axes.tick_params(length=0, labelcolor=INK)
    axes.spines[:].set_visible(False)


def _bar_label(figure: Figure) -> str:
    return f"{figure.label}\nover {figure.baseline}" if figure.theirs else figure.label


def _value_and_interval(figure: Figure) -> tuple[float, float, float]:
    """What the bar shows and the line on it: the ratio's interval, or the samples' extremes."""
    ratio = figure.ratio
    if ratio is not None:
        return ratio.value, ratio.low, ratio.high
    summary = figure.summary
    return summary.median, summary.minimum, summary.maximum


def _reach(figure: Figure) -> float:
    """The right end of everything that is drawn for a figure."""
    return max(*_value_and_interval(figure), figure.goal or 0.0)


def _value_text(figure: Figure) -> str:
    ratio, theirs = figure.ratio, figure.their_summary
    goal = f"  (goal {goal_text(figure).removeprefix('<= ')})" if figure.goal is not None else ""
    if ratio is None or theirs is None:
        return f"{duration(figure.summary.median)}{goal}"
    return f"{ratio.value:.2f}{goal}   {duration(figure.summary.median)} : {duration(theirs.median)}"


def _color(figure: Figure) -> str:
    return {True: MET, False: MISSED, None: NO_GOAL}[figure.met]
