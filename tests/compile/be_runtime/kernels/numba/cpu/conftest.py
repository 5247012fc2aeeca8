"""Kernels of Numba by their text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def define(tmp_path: Path) -> Callable[..., Any]:
    """Define a kernel of some parameters by its lines in a file, as messages show them."""

    def defined(*lines: str, parameters: str = "x, out", known: dict[str, Any] | None = None, **options: Any) -> Any:
        numba: Any = pytest.importorskip("numba")
        (tmp_path / "kernel.py").write_text(f"def kernel({parameters}):\n" + "".join(f"    {line}\n" for line in lines))
        namespace = {"np": np, "numba": numba, **(known or {})}
        exec(compile((tmp_path / "kernel.py").read_text(), tmp_path / "kernel.py", "exec"), namespace)  # noqa: S102
        return numba.njit(**options)(namespace["kernel"])

    return defined
