"""Releases that work together: the rows of ``constraints/versions.toml``, and the files and the table made of them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from packaging.version import Version

from release import ROOT
from release.problems import ReleaseError

PAGE = "docs/supported-versions.md"
HEAD = "| file | Python | pins | packages to install | tested by |\n|---|---|---|---|---|\n"


class Row(NamedTuple):
    """Releases that work together; ``constraints/versions.toml`` describes the fields."""

    name: str
    pythons: Sequence[str]
    install: Sequence[str]
    tested: str
    floors: bool = False
    jax: str = ""
    toolkit: str = ""

    @property
    def holds(self) -> str:
        """The releases of the file, in words."""
        return f"JAX {self.jax}" if self.jax else f"CUDA {self.toolkit}" if self.toolkit else "the oldest releases"

    @property
    def file(self) -> str:
        """The path of the file for pip."""
        return f"constraints/{self.name}.txt"


def read_rows(root: Path = ROOT) -> dict[str, Row]:
    """Read the table, by the names of its rows."""
    table: dict[str, Any] = tomllib.loads((root / "constraints" / "versions.toml").read_text(encoding="utf-8"))
    return {name: Row(name, **values) for name, values in table.items()}


def solve(requirements: Sequence[str], python: str, constraints: Path | None = None) -> dict[str, Version]:
    """Return what uv would install on Linux with glibc 2.28, by name; it downloads metadata alone.

    Raises
    ------
    ReleaseError
        uv is not installed, finds no package index, or finds no such environment.
    """
    options = ["--constraints", str(constraints)] if constraints else []
    options += ["--python-version", python, "--python-platform", "x86_64-manylinux_2_28", "--only-binary", ":all:"]
    command = (sys.executable, "-m", "uv", "pip", "compile", "--quiet", "--no-header", "--no-annotate", *options, "-")
    done = subprocess.run(command, input="\n".join(requirements), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(f"uv solved no {' '.join(requirements)} for Python {python}:\n{done.stderr}")
    pairs = (line.split("==") for line in done.stdout.splitlines() if "==" in line)
    return {name: Version(version) for name, version in pairs}


def pins(row: Row, dependencies: Sequence[str]) -> list[str]:
    """Return the lines of a row's file; `dependencies` are the project's. The row of a toolkit asks uv."""
    if row.floors:
        return [f"{each.replace('>=', '==')}.*" for each in dependencies]
    if row.jax:
        return [f"{name}=={row.jax}" for name in ("jax", "jaxlib")]
    libraries = solve([f"cuda-toolkit[all]=={row.toolkit}"], row.pythons[-1])
    return [f"{name}=={version}.*" for name, version in libraries.items() if name.startswith("nvidia-")]


def constraints_text(row: Row, lines: Sequence[str]) -> str:
    """Return the text of a row's file."""
    wanted = " ".join(f'"{each}"' if "[" in each else each for each in row.install)
    about = f"{row.holds[0].upper()}{row.holds[1:]}, from versions.toml by `python -m release constraints`."
    if row.toolkit:
        about = f"""\
Each library of CUDA {row.toolkit}, as NVIDIA's cuda-toolkit=={row.toolkit} pins them. With this file the libraries
# of {row.install[-1]} come from the release that {row.install[0]} compiles with, not from the newest one.
# `python -m release constraints` made the file of versions.toml."""
    return "\n".join((f"# {about}", "#", f"#   pip install -c {row.file} {wanted}", *lines, ""))


def versions_table(rows: Mapping[str, Row]) -> str:
    """Return the table of the page of supported versions."""
    text = HEAD
    for row in rows.values():
        pythons = " to ".join(dict.fromkeys((row.pythons[0], row.pythons[-1])))
        wanted = " ".join(f"`{each}`" for each in row.install)
        text += f"| `{row.file}` | {pythons} | {row.holds} | {wanted} | {row.tested} |\n"
    return text


def write_constraints(root: Path = ROOT) -> None:
    """Write the file of each row and the table of the page."""
    rows = read_rows(root)
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for row in rows.values():
        (root / row.file).write_text(constraints_text(row, pins(row, project["dependencies"])), encoding="utf-8")
    page = (root / PAGE).read_text(encoding="utf-8")
    table = re.compile(re.escape(HEAD) + r"(?:\|.*\n)*")
    (root / PAGE).write_text(table.sub(lambda _: versions_table(rows), page), encoding="utf-8")
