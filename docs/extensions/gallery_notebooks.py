"""Pages of the gallery: their notebooks below docs/generated/, for the download links, and the order of their runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

from benchmarks.gallery.__main__ import main

FIRST = ("gallery/adamw", "gallery/histogram", "gallery/lif", "gallery/photons")


def write(app: Sphinx, _config: Config) -> None:
    """Write the notebooks before Sphinx reads the pages."""
    main(["notebooks", str(Path(app.srcdir) / "generated" / "notebooks")])


def order(_app: Sphinx, _environment: BuildEnvironment, names: list[str]) -> None:
    """Move half of the pages to the front, so that two processes read and run half of the gallery each."""
    names.sort(key=lambda name: name not in FIRST)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", write)
    app.connect("env-before-read-docs", order)
    return {"parallel_read_safe": True}
