"""The plug-in of setuptools: kernels of projects whose ``pyproject.toml`` has a table ``[tool.be-runtime]``.

Setuptools calls `finalize` in each build of an environment that has this distribution, so it looks before it imports.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from setuptools import Distribution


def finalize(distribution: Distribution) -> None:
    """Add our commands to the build of a project that asks for them."""
    try:
        data = Path("pyproject.toml").read_bytes()
        asks = b"be-runtime" in data and "be-runtime" in tomllib.loads(data.decode()).get("tool", {})
    except (OSError, ValueError, RecursionError):  # setuptools says what is wrong with the file
        return
    if asks:
        try:
            from be_runtime.ship.setuptools_commands import add_commands
        except ImportError as error:
            raise SystemExit(f"error: {error}\nhint: kernels need setuptools>=77, as requires says") from None
        add_commands(distribution)
