"""The command ``cmake-dir``: where CMake finds our package."""

from __future__ import annotations

import argparse

from be_runtime.cli.answer import Answer
from be_runtime.own_files import CMAKE_DIR


def run(_arguments: argparse.Namespace) -> Answer:
    """Say the folder that CMake is told as ``BeRuntime_ROOT``."""
    return Answer(str(CMAKE_DIR), {"folder": str(CMAKE_DIR)})
