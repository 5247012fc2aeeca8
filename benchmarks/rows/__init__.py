"""The rows: every module of this package is one, defines ``ROW`` and says in its docstring what it measures."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from ..figure import Row


def row_names() -> tuple[str, ...]:
    """Every row there is, sorted."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def load_row(name: str) -> Row:
    """The row of a name that `row_names` lists."""
    row = import_module(f"{__name__}.{name}").ROW
    assert isinstance(row, Row), f"{name}.ROW is not a Row"
    return row
