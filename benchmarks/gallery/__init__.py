"""The gallery of docs/gallery: its pages are run, measured and drawn, and some become notebooks.

``python -m benchmarks.gallery --help`` says how.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "gallery"
PAGES = ("lif", "histogram", "flock", "adamw", "scan", "photons")
NOTEBOOKS = ("lif", "scan", "photons")
KERNELS = ("cuda", "cpp")
"""The backends that are ours; all others of a page are plain JAX."""


def page_path(name: str) -> Path:
    """The file of a page."""
    return FOLDER / f"{name}.md"
