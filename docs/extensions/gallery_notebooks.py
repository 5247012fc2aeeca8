"""Pages of the gallery as notebooks below docs/generated/, for the download links of the pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.config import Config

from benchmarks.gallery.__main__ import main


def write(app: Sphinx, _config: Config) -> None:
    """Write them before Sphinx reads the pages."""
    main(["notebooks", str(Path(app.srcdir) / "generated" / "notebooks")])


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("config-inited", write)
    return {"parallel_read_safe": True}
