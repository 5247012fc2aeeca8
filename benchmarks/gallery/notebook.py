"""Pure: a page of the gallery as a Jupyter notebook that installs what it needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .page import SITE, Cell

INSTALL = "%pip install --quiet brainevent-toolchain"
"""JAX comes with it, for the CPU; Colab's GPU machines have JAX for CUDA, nvcc and g++."""


def to_notebook(cells: Iterable[Cell]) -> dict[str, Any]:
    """The JSON of a notebook, nbformat 4.5: an installation, then the cells that are not for the site alone."""
    install = Cell(source=INSTALL, line=0, is_code=True)
    kept = [install, *(cell for cell in cells if SITE not in cell.tags)]
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [_cell(number, cell) for number, cell in enumerate(kept)],
    }


def _cell(number: int, cell: Cell) -> dict[str, Any]:
    common = {"id": f"cell-{number}", "metadata": {"tags": list(cell.tags)} if cell.tags else {}}
    source = {"source": cell.source.splitlines(keepends=True)}
    if cell.is_code:
        return {"cell_type": "code", "execution_count": None, "outputs": [], **common, **source}
    return {"cell_type": "markdown", **common, **source}
