"""The making of a report: what a build said, and what CUDA's tools tell of its device code."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.measured import Measured, MeasuredStep
from be_runtime.compile.messages.warned import find_warnings
from be_runtime.compile.plan.build_plan import BuildPlan, Edge
from be_runtime.compile.run.execute import Runner
from be_runtime.compile.run.programs import resolve_ninja
from be_runtime.errors import BuildError
from be_runtime.reports.elf_file import function_sizes, sections
from be_runtime.reports.inspection_tools import PACKAGES, InspectionTools, ask, find_inspection_tools, readable
from be_runtime.reports.machine_code import Loop, hottest_loop, read_kernels
from be_runtime.reports.module_report import EntryReport, KernelReport, ModuleReport, Phase
from be_runtime.reports.occupancy import occupancy
from be_runtime.reports.resource_usage import Usage, parse_ptxas, parse_resources
from be_toolchain.arch import Arch
from be_toolchain.machine.system import System

_CODE = ".text."
_HANDLER = "be_ffi_"
_LOOP = re.compile(
    r"^(?P<file>\S[^\n]*?):(?P<line>\d+):(?P<column>\d+): (?:optimized|missed|remark):(?P<text>[^\n]*)$", re.MULTILINE
)

Usages = dict[tuple[str, Arch], Usage]


class DeviceCode(NamedTuple):
    """Device code for one architecture: a cubin."""

    arch: Arch
    path: Path


def report_build(
    name: str, measured: Measured, system: System, blocks: Sequence[int], sources: Collection[str] = ()
) -> ModuleReport:
    """Report a module that was built for it, with the loops of the sources that are named."""
    cubins = [DeviceCode(*each) for each in measured.cubins]
    known = parse_ptxas("\n".join(step.output for step in measured.steps))
    report = _report(name, measured.library, cubins, known, system, blocks)
    outputs = [step.output for step in measured.steps]
    return report._replace(
        phases=_phases(measured.steps), compiler_warnings=find_warnings(outputs), loops=find_loops(outputs, sources)
    )


def report_library(name: str, library: Path, system: System, blocks: Sequence[int]) -> ModuleReport:
    """Report a library that was built elsewhere."""
    report = _report(name, library, (), {}, system, blocks)
    note = "spills are told by the compiler, which is not asked for a library that was built before"
    return report._replace(notes=(*report.notes, note)) if report.kernels else report


def report_cubins(
    name: str, cubins: Iterable[tuple[Arch, bytes]], system: System, blocks: Sequence[int]
) -> ModuleReport:
    """Report kernels without a module, from their device code."""
    with tempfile.TemporaryDirectory() as folder:
        codes = []
        for number, (arch, data) in enumerate(cubins):
            codes.append(DeviceCode(arch, Path(folder, f"{number}.cubin")))
            codes[-1].path.write_bytes(data)
        return _kernels(name, codes, {}, find_inspection_tools(system), system, blocks)


def _report(
    name: str, library: Path, cubins: Sequence[DeviceCode], known: Usages, system: System, blocks: Sequence[int]
) -> ModuleReport:
    data = library.read_bytes()
    if not cubins and not any(section.name == ".nv_fatbin" for section in sections(data)):
        entries = _entries(name, data)
        return ModuleReport(name, (), notes=() if entries else ("it has no device code",), entries=entries)
    tools = find_inspection_tools(system)
    with tempfile.TemporaryDirectory() as folder:
        notes: tuple[str, ...] = ()
        if not cubins:
            cubins = _extracted(library, Path(folder), tools.cuobjdump, system)
            notes = () if cubins else (f"its device code can be read by cuobjdump: {PACKAGES}",)
        report = _kernels(name, cubins, known, tools, system, blocks)
    return report._replace(notes=(*notes, *report.notes))


def _entries(module: str, library: bytes) -> tuple[EntryReport, ...]:
    """Report the entry points of a library from its symbols: each function, its handler and parts of them set apart."""
    sizes = function_sizes(library)
    found = []
    for symbol in (each.removeprefix(_HANDLER) for each in sizes if each.startswith(_HANDLER)):
        name = symbol.removeprefix(f"{module}_")
        parts = (f"be_call_{symbol}", f"be_entry_{symbol}")
        handler = "|".join(f"{len(part)}{re.escape(part)}" for part in parts)
        code = re.compile(
            rf"{_HANDLER}{re.escape(symbol)}$|_Z.*(?:{handler})|_ZZ?(?:N.*)?(?<!\d){len(name)}{name}(?!\w*be_)"
        )
        found.append(EntryReport(name, sum(size for each, size in sizes.items() if code.match(each))))
    return tuple(sorted(found))


def find_loops(outputs: Iterable[str], sources: Collection[str]) -> tuple[str, ...]:
    """Find the lines of g++ and clang about loops of some sources, in the order of the sources' lines."""
    found: dict[str, tuple[str, int, int]] = {}
    for match in (each for output in outputs for each in _LOOP.finditer(output)):
        if match["file"] in sources and "be_" not in match["text"]:  # g++ also tells of our calls at a function's end
            found[match[0]] = (match["file"], int(match["line"]), int(match["column"]))
    return tuple(sorted(found, key=lambda line: found[line]))


def _extracted(library: Path, folder: Path, cuobjdump: Path | None, system: System) -> list[DeviceCode]:
    """Take the device code out of a library; cuobjdump writes it to its working folder."""
    if cuobjdump is None:
        return []
    edge = Edge((str(cuobjdump), "-xelf", "all", str(library)), (), ("extracted",), "extracting device code", "embed")
    try:
        Runner(folder, ninja=resolve_ninja(system), jobs=1, environ=system.environ).run(BuildPlan((), (edge,)))
    except BuildError:
        return []
    found = sorted(folder.glob("*.cubin"))
    return [DeviceCode(Arch.parse(path.name.split(".")[-2]), path) for path in found]


def _kernels(
    name: str,
    cubins: Sequence[DeviceCode],
    known: Usages,
    tools: InspectionTools,
    system: System,
    blocks: Sequence[int],
) -> ModuleReport:
    """Report the kernels in device code."""
    reports = []
    for arch, path in cubins:
        code = [each for each in sections(path.read_bytes()) if each.name.startswith(_CODE)]
        usages = {key: usage for key, usage in known.items() if key[1] == arch}
        if not usages and tools.cuobjdump is not None:
            usages = parse_resources(ask(system, tools.cuobjdump, "-res-usage", path), arch)
        loops = _loops(tools.nvdisasm, path, system)
        reports += [
            _kernel(symbol, arch, usages.get((symbol, arch), Usage()), size, loops.get(symbol), blocks)
            for symbol, size in ((each.name.removeprefix(_CODE), each.size) for each in code)
            if not usages or (symbol, arch) in usages
        ]
    notes = []
    if cubins and tools.nvdisasm is None:
        notes.append(f"hottest loops are found with nvdisasm: {PACKAGES}")
    if reports and any(report.registers is None for report in reports):
        notes.append(f"registers are told by ptxas or cuobjdump: {PACKAGES}")
    return ModuleReport(name, tuple(reports), notes=tuple(notes))


def _loops(nvdisasm: Path | None, cubin: Path, system: System) -> dict[str, Loop | None]:
    text = "" if nvdisasm is None else ask(system, nvdisasm, "-c", "-g", cubin)
    return {symbol: hottest_loop(*code) for symbol, code in read_kernels(text).items()}


def _kernel(
    symbol: str, arch: Arch, usage: Usage, code_bytes: int, loop: Loop | None, blocks: Sequence[int]
) -> KernelReport:
    filled = []
    if usage.registers is not None:
        shared = usage.shared or 0
        found = (occupancy(arch, registers=usage.registers, shared=shared, block=block) for block in blocks)
        filled = [each for each in found if each is not None]
    return KernelReport(
        readable(symbol), symbol, arch.sm, *usage, code_bytes=code_bytes, occupancy=tuple(filled), loop=loop
    )


def _phases(steps: Iterable[MeasuredStep]) -> tuple[Phase, ...]:
    """Sum up the seconds of commands of one kind, in the order in which the kinds first ended."""
    found: dict[str, list[float]] = {}
    for step in steps:
        found.setdefault(step.tool, []).append(step.seconds)
    return tuple(Phase(tool, round(sum(seconds), 3), len(seconds)) for tool, seconds in found.items())
