"""What the short form, which runs with all tests, leaves to `make test-full` and to `make test-faults`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.support.faults import LEVEL

longer = pytest.mark.faults if LEVEL else pytest.mark.full
"""Marks what takes long."""


def first_of(cases: Iterable[Any], *, count: int = 1) -> list[Any]:
    """Mark the cases of a parametrized test, but for the first ones."""
    return [pytest.param(case, marks=longer if number >= count else ()) for number, case in enumerate(cases)]
