"""The plug-in of setuptools for projects whose ``pyproject.toml`` has a table ``[tool.be-runtime]``.

Setuptools calls `finalize` in every build of an environment with this distribution, so the commands are imported late.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Distribution


def finalize(distribution: Distribution) -> None:
    """Add the commands for kernels to the build of a project that has the table."""
    try:
        data = Path("pyproject.toml").read_bytes()
        asks = b"be-runtime" in data and "be-runtime" in tomllib.loads(data.decode()).get("tool", {})
    except (OSError, ValueError, RecursionError):  # setuptools reports the error in the file
        return
    if asks:
        try:
            from be_runtime.ship.setuptools_commands import add_commands
        except ImportError as error:
            raise SystemExit(f"error: {error}\nhint: kernels need setuptools>=77 in [build-system] requires") from None
        add_commands(distribution)
