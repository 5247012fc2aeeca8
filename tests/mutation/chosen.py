"""A plugin of pytest that keeps the tests whose ids stand in the file that BE_MUTATION_TESTS names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all other tests."""
    chosen = set(Path(os.environ["BE_MUTATION_TESTS"]).read_text().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
    items[:] = [item for item in items if item.nodeid in chosen]
