"""Without a device nothing says what to compile for, so the environment does."""

from __future__ import annotations

import pytest

from tests.support.cuda import ARCH


@pytest.fixture(autouse=True)
def _arch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BE_COMPUTE_CAPABILITIES", ARCH)
