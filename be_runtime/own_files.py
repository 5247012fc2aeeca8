"""Where our C++ lies: headers for authors, and what is compiled on the user's machine."""

from __future__ import annotations

from pathlib import Path

INCLUDE_DIR = Path(__file__).parent / "include"
"""On the search path of every kernel."""

NATIVE_DIR = Path(__file__).parent / "native"
"""The handler, the launcher, and what helps compilers."""
