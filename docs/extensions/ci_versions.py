"""Writes the tables of versions: the bounds of pyproject.toml, and what CI's workflows test. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

MACHINES = {"ubuntu-24.04": "x86-64", "ubuntu-24.04-arm": "aarch64"}
PACKAGES = {
    "": "the newest, installed by pip",
    "lowest-direct": "the oldest, installed by uv",
    "highest": "the newest, installed by uv",
}
BOUNDED = (
    "jax",
    "jaxlib",
    "numpy",
    "numba",
    "numba-cuda-mlir",
    "triton",
    "cuda-tile[tileiras]",
    "warp-lang",
    "apache-tvm-ffi",
    "nvidia-cutlass-dsl",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-nvcc-cu12",
)


def render_tested(workflows: Iterable[Mapping[Any, Any]]) -> str:
    """Write a row for each job that runs tests: machine, Python, versions of packages, and tiers without a skip."""
    rows = sorted({row for workflow in workflows for job in workflow["jobs"].values() for row in _rows(job)})
    head = "| machine | Python | versions of packages | tiers |\n|---|---|---|---|\n"
    return head + "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _rows(job: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The rows of one job: one, or one for each line of its matrix."""
    tests = [step for step in job["steps"] if str(step.get("run", "")).startswith(("make test", "make release-check"))]
    pythons = [step["with"]["python-version"] for step in job["steps"] if "setup-python" in step.get("uses", "")]
    if not tests or not pythons:
        return
    tiers = tests[0].get("env", {}).get("BE_REQUIRE_TIERS", "unit,compile,cuda,packaging").replace(",", ", ")
    for line in job.get("strategy", {}).get("matrix", {}).get("include", [{}]):
        python = line.get("python") or pythons[0].split()[-1]
        yield MACHINES[job["runs-on"]], python, PACKAGES[line.get("resolution", "")], tiers


def render_bounds(project: Mapping[str, Any]) -> str:
    """Write a row for each package whose version matters: the allowed releases, and the extra that brings it."""
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    rows: dict[tuple[str, str], str] = {}
    for extra, requirements in extras.items():
        for requirement in (text.partition(";")[0] for text in requirements):
            name = next((each for each in BOUNDED if requirement.startswith((f"{each}>", f"{each}="))), "")
            if name:
                rows.setdefault((name, requirement.removeprefix(name)), f"`[{extra}]`" if extra else "")
    ordered = sorted(rows.items(), key=lambda row: BOUNDED.index(row[0][0]))
    lines = [f"| `{name}` | `{releases}` | {extra} |\n" for (name, releases), extra in ordered]
    return "| package | releases | with the extra |\n|---|---|---|\n" + "".join(lines)
