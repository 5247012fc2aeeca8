"""A build that is made for a report: its device code is kept, with the output and the seconds of each command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import BuildOutput, Entry, Store
from be_runtime.compile.build_order import BuildOrder
from be_runtime.compile.plan.build_plan import Edge, Tool, UnitBuild
from be_runtime.compile.plan.unit_files import OBJECTS
from be_runtime.compile.prepare import prepare_build
from be_runtime.generate.bind import bind
from be_runtime.generate.contents import LIBRARY
from be_toolchain.arch import Arch

_LIST = "measured.json"
_LOOPS = {
    "gcc": ("-fopt-info-vec-optimized-missed",),
    "clang": ("-Rpass=loop-vectorize", "-Rpass-missed=loop-vectorize", "-Rpass-analysis=loop-vectorize"),
}
"""Flags by which a compiler tells of the loops that it vectorizes, and of those that it can't."""

_ARCH = re.compile(r"(?:-arch=|--gpu-name=)?(sm_\w+)")


class MeasuredStep(NamedTuple):
    """A command of a build: its role, all its output, and its seconds."""

    tool: Tool
    output: str
    seconds: float


class Measured(NamedTuple):
    """A build that was made for a report.

    Parameters
    ----------
    steps : tuple of MeasuredStep
    cubins : tuple of (Arch, Path)
        The device code of each unit and architecture; none where the CUDA compiler ran as a whole.
    library : Path
    """

    steps: tuple[MeasuredStep, ...]
    cubins: tuple[tuple[Arch, Path], ...]
    library: Path


def measure_build(order: BuildOrder, staging: Path, *, loops: bool = False) -> BuildOutput:
    """Build the library of an order in a folder, all of it, with ptxas's own report, and the host compiler's of loops.

    Raises
    ------
    SpecError, BuildError
        As for `make_module`.
    """
    alone = order._replace(force=True, module_store=Store(staging / OBJECTS))  # whose objects go with the folder
    build = prepare_build(alone, bind(order.request), staging)
    asked = _LOOPS[order.tools.cxx.family] if loops and order.request.language == "cpp" else ()
    build.units = {stem: _talkative(unit, asked) for stem, unit in build.units.items()}
    build.run()
    cubins: list[tuple[str, str]] = []
    for edge in (step.edge for step in build.steps if step.edge.tool == "ptxas"):
        cubin = next((name for name in edge.outputs if name.endswith(".cubin")), None)
        arch = next((match[1] for part in edge.argv if (match := _ARCH.fullmatch(part))), None)
        if cubin is not None and arch is not None:
            cubins.append((arch, f"{len(cubins)}.cubin"))
            shutil.move(staging / cubin, staging / cubins[-1][1])
    shutil.rmtree(staging / OBJECTS)
    steps = [(step.edge.tool, step.output, step.seconds or 0.0) for step in build.steps]
    (staging / _LIST).write_text(json.dumps({"steps": steps, "cubins": cubins}), encoding="utf-8")
    kept = (_LIST, LIBRARY, *(name for _, name in cubins))
    return BuildOutput(kept, *build.looked_at(), recorded=build.recorded, unknown=tuple(build.unknown))


def read_measured(entry: Entry) -> Measured:
    """Read what `measure_build` wrote."""
    listed = json.loads(entry.output(_LIST).read_bytes())
    cubins = ((Arch.parse(arch), entry.output(name)) for arch, name in listed["cubins"])
    return Measured(tuple(MeasuredStep(*step) for step in listed["steps"]), tuple(cubins), entry.output(LIBRARY))


def _talkative(unit: UnitBuild, more: Sequence[str]) -> UnitBuild:
    """Let ptxas say what it used, by itself or within nvcc or clang, and compilers more of what they do."""
    edges = (
        edge._replace(argv=(*edge.argv, *_asking(edge), *(more if edge.tool == "compile" else ())))
        for edge in unit.edges
    )
    return unit._replace(edges=tuple(edges))


def _asking(edge: Edge) -> Sequence[str]:
    if edge.tool == "ptxas":
        return ("-v",)
    program = Path(edge.argv[0]).name
    is_device = edge.tool == "compile" and any(part.endswith(".cu") for part in edge.argv)
    if is_device and program == "nvcc":
        return ("-Xptxas", "-v")
    is_whole = "cuda" in edge.argv and not any(part.startswith("--cuda-host-only") for part in edge.argv)
    if is_device and "-S" not in edge.argv and "clang" in program and is_whole:
        return ("-Xcuda-ptxas", "-v")
    return ()
