"""Write what a project says that it is built with, ``requires`` of ``[build-system]``, as a file for pip.

Run as ``python project.py pyproject.toml FILE``.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main(pyproject: str, file: str) -> None:
    """One line for each requirement."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))
    requires = project.get("build-system", {}).get("requires", [])
    Path(file).write_text("\n".join((*requires, "")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
