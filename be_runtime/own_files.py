"""Folders of the package's own C++ files: headers for authors, and sources that are compiled on the user's machine."""

from __future__ import annotations

from pathlib import Path

INCLUDE_DIR = Path(__file__).parent / "include"
"""Folder of headers, on the search path of every kernel."""

NATIVE_DIR = Path(__file__).parent / "native"
"""Folder of the handler, the launcher, and helpers for compilers."""
