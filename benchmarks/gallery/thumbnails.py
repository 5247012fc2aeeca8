"""Small pictures of the gallery's pages, from the figures that the pages draw. Needs matplotlib and a C++ compiler."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ..plot import shrink
from . import PAGES, page_path
from .page import Run

_INCHES, _DOTS = (4.0, 2.4), 120


def draw_thumbnails(folder: Path) -> None:
    """Run the pages up to their first figures, and write each figure without its text."""
    import_module("matplotlib").use("Agg")
    for name in PAGES:
        figure = Run(page_path(name)).until("figure")["figure"]
        axes, *scales = figure.axes
        for each in scales:
            each.remove()
        if axes.get_legend():
            axes.get_legend().remove()
        axes.set(title="", position=(0, 0, 1, 1), aspect="auto")
        axes.set_axis_off()
        figure.set_layout_engine("none")
        figure.set_size_inches(_INCHES)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=_DOTS)
        shrink(path)
