"""The lab, made once: a channel of what this machine has, and the recipe's packages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support import requirements

if TYPE_CHECKING:
    from tests.support.conda.lab import Lab


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Skips with the reason where conda packages can't be made; its gigabytes are removed at the end."""
    reason = requirements.missing_conda_tools()
    if reason is not None:
        pytest.skip(reason)
    from tests.support.conda import lab

    reason = lab.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("conda")
    yield lab.make_lab(folder)
    shutil.rmtree(folder)
