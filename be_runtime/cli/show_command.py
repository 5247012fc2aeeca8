"""The command ``show``: tells which kernels a file or folder holds."""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

from be_runtime.cli.answer import Answer
from be_runtime.errors import ArgumentError
from be_runtime.ship.locate import locate_package
from be_runtime.ship.show import describe_file, render_description


def run(arguments: argparse.Namespace) -> Answer:
    """Describe what was built ahead of time, without loading it.

    Raises
    ------
    ArgumentError
        There is nothing of the kind.
    LoadError
        It is damaged, or of a format that this release does not read.
    """
    path = arguments.file
    if not path.exists():
        with contextlib.suppress(ArgumentError):
            path = locate_package(str(path), Path.cwd()).root or path
    found = describe_file(path)
    return Answer("\n".join(map(render_description, found)), {"bundles": found})
