"""Write what the project requires as files for pip, so that editing anything else leaves their layers as they are.

Run as ``python requirements.py pyproject.toml CONSTRAINTS FOLDER``.
"""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path


def main(pyproject: str, constraints: str, folder: str) -> None:
    """One file for the dependencies, one for each CUDA extra, and the constraints as they are."""
    project = tomllib.loads(Path(pyproject).read_text(encoding="utf-8"))["project"]
    extras = {name: lines for name, lines in project["optional-dependencies"].items() if name.startswith("cuda")}
    target = Path(folder)
    shutil.copytree(constraints, target / "constraints")
    for name, lines in {"base": project["dependencies"], **extras}.items():
        (target / f"{name}.txt").write_text("\n".join((*lines, "")), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
