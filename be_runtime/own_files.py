"""Folders of the package's own files that are no Python: C++ headers and sources, and the package for CMake."""

from __future__ import annotations

from pathlib import Path

INCLUDE_DIR = Path(__file__).parent / "include"
"""Folder of headers, on the search path of every kernel."""

NATIVE_DIR = Path(__file__).parent / "native"
"""Folder of the handler, the launcher, and helpers for compilers."""

CMAKE_DIR = Path(__file__).parent / "cmake"
"""Folder of the package for CMake."""
