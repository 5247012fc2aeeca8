"""Reports of modules and kernels, with resources, occupancy, spills, sizes, and the seconds of a build's phases."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.compile.execute import Runner, resolve_ninja
from be_runtime.compile.make import Measured, MeasuredStep
from be_runtime.compile.messages import find_warnings
from be_runtime.compile.plan import BuildPlan, Edge
from be_runtime.errors import ArgumentError, BuildError
from be_runtime.inspection import PACKAGES, ask, find_cuobjdump, function_sizes, readable, section_sizes
from be_toolchain.arch import Arch
from be_toolchain.machine.system import System
from be_toolchain.terminal import table

BLOCKS = (64, 128, 256, 512, 1024)
"""The block sizes of a report unless the caller names others."""

_LOW = 0.25
"""Occupancy below this fraction gives a warning."""

_CODE = ".text."
_HANDLER = "be_ffi_"
_LOOP = re.compile(
    r"^(?P<file>\S[^\n]*?):(?P<line>\d+):(?P<column>\d+): (?:optimized|missed|remark):(?P<text>[^\n]*)$", re.MULTILINE
)
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FUNCTION = re.compile(r"Function (\S+):")
_RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_DRIVERS = 1024
"""Shared memory of the driver, which cuobjdump adds from 9.0 on if the kernel has its own shared memory."""

_WARP, _PARTITIONS = 32, 4
_REGISTERS, _REGISTER_UNIT, _MOST_REGISTERS = 65536, 256, 255
_MOST_THREADS = 1024
_KIB = 1024


class Usage(NamedTuple):
    """The resources of one kernel; None for a value that the tool does not print.

    Parameters
    ----------
    registers : int or None
        Registers of a thread.
    shared, stack : int or None
        Bytes of shared memory of a block, and of a thread's stack in local memory.
    spill_stores, spill_loads : int or None
        Bytes that a thread writes to local memory, and reads, since registers do not suffice.
    """

    registers: int | None = None
    shared: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None


def parse_ptxas(text: str) -> dict[tuple[str, Arch], Usage]:
    r"""Read the output of ``ptxas -v``, by kernel and architecture.

    Examples
    --------
    >>> found = parse_ptxas(
    ...     "ptxas info    : Compiling entry function 'f' for 'sm_90'\n"
    ...     "    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n"
    ...     "ptxas info    : Used 32 registers, used 1 barriers, 512 bytes smem\n"
    ... )
    >>> found["f", Arch(9, 0)]
    Usage(registers=32, shared=512, stack=8, spill_stores=4, spill_loads=4)
    """
    found: dict[tuple[str, Arch], Usage] = {}
    current: tuple[str, Arch] | None = None
    for line in text.splitlines():
        if entry := _ENTRY.search(line):
            current = (entry[1], Arch.parse(entry[2]))
            found[current] = Usage()
        elif current is not None and (spills := _SPILLS.search(line)):
            stack, stores, loads = map(int, spills.groups())
            if found[current].stack is None:  # the kernel comes first, then the functions that it calls
                found[current] = found[current]._replace(stack=stack, spill_stores=stores, spill_loads=loads)
        elif current is not None and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            found[current] = found[current]._replace(registers=int(used[1]), shared=int(shared[1]) if shared else 0)
    return found


def parse_resources(text: str, arch: Arch) -> dict[tuple[str, Arch], Usage]:
    r"""Read the output of ``cuobjdump -res-usage`` for the code of one architecture.

    Examples
    --------
    >>> parse_resources(" Function f:\n  REG:32 STACK:0 SHARED:1536 LOCAL:0\n", Arch(9, 0))
    {('f', Arch(major=9, minor=0, suffix='')): Usage(registers=32, shared=512, stack=0, ...)}
    """
    found: dict[tuple[str, Arch], Usage] = {}
    name = ""
    for line in text.splitlines():
        if function := _FUNCTION.search(line):
            name = function[1]
        elif name and (values := _RESOURCES.search(line)):
            registers, stack, shared = map(int, values.groups())
            drivers = _DRIVERS if arch.major >= 9 and shared >= _DRIVERS else 0
            found[name, arch] = Usage(registers, shared - drivers, stack)
    return found


class _Multiprocessor(NamedTuple):
    warps: int
    blocks: int
    shared_kib: int


_MULTIPROCESSORS = {
    (7, 0): _Multiprocessor(64, 32, 96),
    (7, 5): _Multiprocessor(32, 16, 64),
    (8, 0): _Multiprocessor(64, 32, 164),
    (8, 6): _Multiprocessor(48, 16, 100),
    (8, 7): _Multiprocessor(48, 16, 164),
    (8, 9): _Multiprocessor(48, 24, 100),
    (9, 0): _Multiprocessor(64, 32, 228),
    (10, 0): _Multiprocessor(64, 32, 228),
    (10, 3): _Multiprocessor(64, 32, 228),
    (11, 0): _Multiprocessor(48, 24, 228),
    (12, 0): _Multiprocessor(48, 24, 100),
    (12, 1): _Multiprocessor(48, 24, 100),
}


class Occupancy(NamedTuple):
    """The occupancy of a kernel with blocks of one size.

    Parameters
    ----------
    block : int
        Threads of a block.
    blocks : int
        Blocks that one multiprocessor holds; 0 if such a block can't be launched.
    warps : int
        Warps of these blocks.
    fraction : float
        Part of the multiprocessor's warps.
    limiter : {"registers", "shared memory", "warps", "blocks"}
        The resource that allows no further block.
    """

    block: int
    blocks: int
    warps: int
    fraction: float
    limiter: str


def occupancy(arch: Arch, *, registers: int, shared: int, block: int) -> Occupancy | None:
    """Compute the theoretical occupancy of a kernel; None for an architecture whose limits are not known.

    Parameters
    ----------
    arch : Arch
    registers : int
        Registers of a thread.
    shared : int
        Bytes of shared memory of a block, without the driver's.
    block : int
        Threads of a block.

    Examples
    --------
    >>> occupancy(Arch(9, 0), registers=64, shared=0, block=256)
    Occupancy(block=256, blocks=4, warps=32, fraction=0.5, limiter='registers')
    """
    limits = _MULTIPROCESSORS.get((arch.major, arch.minor))
    if limits is None:
        return None
    warps = -(-block // _WARP)
    allowed = {
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared(arch, limits.shared_kib * _KIB, shared),
        "warps": limits.warps // warps if block <= _MOST_THREADS else 0,
        "blocks": limits.blocks,
    }
    limiter = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limiter]
    return Occupancy(block, blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _by_registers(registers: int, warps: int) -> int:
    """Count the blocks that fit by registers, which each partition of a multiprocessor gives to warps in units."""
    per_warp = _round_up(registers * _WARP, _REGISTER_UNIT)
    if registers > _MOST_REGISTERS or per_warp * _round_up(warps, _PARTITIONS) > _REGISTERS:
        return 0
    return _REGISTERS // _PARTITIONS // max(per_warp, 1) * _PARTITIONS // warps


def _by_shared(arch: Arch, available: int, shared: int) -> int:
    """Count the blocks that fit by shared memory, of which the driver uses a part for each block since 8.0."""
    unit, reserved = (128, _KIB) if arch.major >= 8 else (256, 0)
    return available // max(_round_up(shared + reserved, unit), 1)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def check_blocks(given: Sequence[int] | None) -> tuple[int, ...]:
    """Check block sizes.

    Raises
    ------
    ArgumentError
        One is not a number of threads that a block may have.

    Examples
    --------
    >>> check_blocks([96]), check_blocks(None)
    ((96,), (64, 128, 256, 512, 1024))
    """
    blocks = BLOCKS if given is None else tuple(given)
    wrong = next((each for each in blocks if each not in range(1, _MOST_THREADS + 1)), None)
    if wrong is not None or not blocks:
        raise ArgumentError(
            f"block_sizes names {wrong!r}, and a block has 1 to {_MOST_THREADS} threads",
            hints=("pass numbers, such as block_sizes=(128, 256)",),
        )
    return blocks


class KernelReport(NamedTuple):
    """The device code of one kernel for one architecture; None for a value that no installed tool prints.

    Parameters
    ----------
    name, symbol : str
        Name as C++ spells it, and in the code.
    arch : str
        Architecture, such as ``"sm_90"``.
    registers : int or None
        Registers of a thread.
    shared, stack : int or None
        Bytes of shared memory of a block, without what a launch adds, and of local memory of a thread.
    spill_stores, spill_loads : int or None
        Bytes that a thread writes to local memory, and reads, since registers do not suffice.
    code_bytes : int or None
    occupancy : tuple of Occupancy
        For each block size.
    """

    name: str
    symbol: str
    arch: str
    registers: int | None = None
    shared: int | None = None
    stack: int | None = None
    spill_stores: int | None = None
    spill_loads: int | None = None
    code_bytes: int | None = None
    occupancy: tuple[Occupancy, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return the properties that make the code slow, each with a remedy."""
        found = []
        if self.spill_stores or self.spill_loads:
            found.append(
                f"spills registers to memory: a thread writes {self.spill_stores} B and reads {self.spill_loads} B; "
                "keep fewer values at a time, or allow more registers by a smaller bound in __launch_bounds__ or a "
                "larger -maxrregcount"
            )
        elif self.stack:
            found.append(
                f"has {self.stack} B of local memory for each thread: an array that a variable indexes, or a function "
                "that is not inlined; unroll the loop over the array, or put the array into shared memory"
            )
        best = max(self.occupancy, key=lambda each: each.fraction, default=None)
        if best is not None and best.fraction < _LOW:
            found.append(f"keeps a multiprocessor at most {best.fraction:.0%} full, limited by {best.limiter}")
        return tuple(f"{self.name} ({self.arch}) {text}" for text in found)


class EntryReport(NamedTuple):
    """The host code of an entry point.

    Parameters
    ----------
    name : str
    code_bytes : int
        Machine code of the function and of its handler, with all that is inlined into them.
    """

    name: str
    code_bytes: int


class Phase(NamedTuple):
    """The number and total seconds of a build's commands of one kind; commands overlap in time."""

    name: str
    seconds: float
    commands: int


class ModuleReport(NamedTuple):
    """The report of a module, made by `ModuleInfo.report`.

    ``print`` shows tables.

    Attributes
    ----------
    name : str
        Name of the module.
    kernels : tuple of KernelReport
        Resources of each GPU kernel: ``registers`` per thread; ``shared``, the bytes of shared memory per block;
        ``stack``, ``spill_stores`` and ``spill_loads`` in bytes per thread; ``code_bytes``; ``occupancy``.
    phases : tuple of Phase
        Phases of the build with their ``seconds``; empty if nothing was built.
    notes : tuple of str
        Notes, for example about missing values and the tool that prints the values.
    compiler_warnings : tuple of str
        Warnings that the compilers printed, for example with ``-Wall``, one line each.
    entries : tuple of EntryReport
        Entry points of a C++ module, each with its ``code_bytes``.
    loops : tuple of str
        Lines of the host compiler about vectorized loops, and about loops that can't be vectorized; empty without
        ``loops=True``.

    See Also
    --------
    - :doc:`/profiling`: the columns of the tables, and remedies.
    """

    name: str
    kernels: tuple[KernelReport, ...]
    phases: tuple[Phase, ...] = ()
    notes: tuple[str, ...] = ()
    compiler_warnings: tuple[str, ...] = ()
    entries: tuple[EntryReport, ...] = ()
    loops: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of all kernels, for example about spills or low occupancy."""
        return tuple(warning for kernel in self.kernels for warning in kernel.warnings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a dictionary that JSON can represent.

        Returns
        -------
        dict
            Fields by name, with lists and dictionaries in place of tuples.
        """
        kernels = [
            kernel._asdict()
            | {"occupancy": [each._asdict() for each in kernel.occupancy], "warnings": list(kernel.warnings)}
            for kernel in self.kernels
        ]
        return {
            "name": self.name,
            "kernels": kernels,
            "entries": [each._asdict() for each in self.entries],
            "loops": list(self.loops),
            "phases": [phase._asdict() for phase in self.phases],
            "compiler_warnings": list(self.compiler_warnings),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        what, count = ("entry point", len(self.entries)) if self.entries else ("kernel", len(self.kernels))
        parts = [f"{self.name}: {count} {what}{'' if count == 1 else 's'}"]
        if self.kernels:
            parts.append(_kernels_text(self.kernels))
        if self.entries:
            parts.append(table([("entry point", "code"), *((name, _bytes(size)) for name, size in self.entries)]))
        if self.loops:
            parts += ["loops:", *(f"  {each}" for each in self.loops)]
        if self.phases:
            shown = ", ".join(f"{each.name} {each.seconds:.2f}" for each in self.phases)
            parts.append(f"seconds of commands, some of which ran in parallel: {shown}")
        parts += [f"warning: {warning}" for warning in self.warnings]
        parts += self.compiler_warnings
        return "\n".join([*parts, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return str(self)


def _kernels_text(kernels: Sequence[KernelReport]) -> str:
    blocks = [each.block for each in max((kernel.occupancy for kernel in kernels), key=len)]
    heads = ("kernel", "arch", "registers", "shared", "spills", "local", "code", *(f"@{block}" for block in blocks))
    return table([heads, *(_row(kernel, len(blocks)) for kernel in kernels)]) + (
        "\n@N: part of a multiprocessor's warps that blocks of N threads fill" if blocks else ""
    )


def _row(kernel: KernelReport, blocks: int) -> tuple[str, ...]:
    spills = None if kernel.spill_stores is None else (kernel.spill_stores or 0) + (kernel.spill_loads or 0)
    sizes = (_bytes(value) for value in (kernel.shared, spills, kernel.stack, kernel.code_bytes))
    filled = [f"{each.fraction:.0%}" if each.blocks else "-" for each in kernel.occupancy]
    registers = "?" if kernel.registers is None else str(kernel.registers)
    return (kernel.name, kernel.arch, registers, *sizes, *(filled or ["?"] * blocks))


def _bytes(value: int | None) -> str:
    return "?" if value is None else f"{value} B"


Usages = dict[tuple[str, Arch], Usage]


def report_build(
    name: str, measured: Measured, system: System, blocks: Sequence[int], sources: Collection[str] = ()
) -> ModuleReport:
    """Report a module that was built for the report, with the host compiler's lines about loops of some sources."""
    outputs = [step.output for step in measured.steps]
    report = _report(name, measured.library, measured.cubins, parse_ptxas("\n".join(outputs)), system)
    return _with_occupancy(report, blocks)._replace(
        phases=_phases(measured.steps), compiler_warnings=find_warnings(outputs), loops=find_loops(outputs, sources)
    )


def report_library(name: str, library: Path, system: System, blocks: Sequence[int]) -> ModuleReport:
    """Report a library that was built elsewhere."""
    report = _with_occupancy(_report(name, library, (), {}, system), blocks)
    note = "spills are missing: only a build prints them, and this library was built before"
    return report._replace(notes=(*report.notes, note)) if report.kernels else report


def report_cubins(
    name: str, cubins: Iterable[tuple[Arch, bytes]], system: System, blocks: Sequence[int]
) -> ModuleReport:
    """Report kernels without a module, from their device code."""
    with tempfile.TemporaryDirectory() as folder:
        codes = []
        for number, (arch, data) in enumerate(cubins):
            path = Path(folder, f"{number}.cubin")
            path.write_bytes(data)
            codes.append((arch, path))
        return _with_occupancy(_report_kernels(name, codes, {}, find_cuobjdump(system), system), blocks)


def _with_occupancy(report: ModuleReport, blocks: Sequence[int]) -> ModuleReport:
    """Return a report with the occupancy of each kernel whose registers are known."""
    kernels = []
    for kernel in report.kernels:
        filled: list[Occupancy] = []
        if kernel.registers is not None:
            arch, registers, shared = Arch.parse(kernel.arch), kernel.registers, kernel.shared or 0
            found = (occupancy(arch, registers=registers, shared=shared, block=block) for block in blocks)
            filled = [each for each in found if each is not None]
        kernels.append(kernel._replace(occupancy=tuple(filled)))
    return report._replace(kernels=tuple(kernels))


def _report(
    name: str, library: Path, cubins: Sequence[tuple[Arch, Path]], known: Usages, system: System
) -> ModuleReport:
    data = library.read_bytes()
    if not cubins and all(section != ".nv_fatbin" for section, _ in section_sizes(data)):
        entries = _report_entries(name, data)
        return ModuleReport(name, (), notes=() if entries else ("it has no device code",), entries=entries)
    cuobjdump = find_cuobjdump(system)
    with tempfile.TemporaryDirectory() as folder:
        notes: tuple[str, ...] = ()
        if not cubins:
            cubins = _extract(library, Path(folder), cuobjdump, system)
            notes = () if cubins else (f"its device code can be read by cuobjdump: {PACKAGES}",)
        report = _report_kernels(name, cubins, known, cuobjdump, system)
    return report._replace(notes=(*notes, *report.notes))


def _report_entries(module: str, library: bytes) -> tuple[EntryReport, ...]:
    """Add the sizes of each entry point's function, of its handler, and of parts that the compiler split off."""
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
    """Find the lines that g++ and clang print about loops of some sources, in the order of the sources' lines."""
    found: dict[str, tuple[str, int, int]] = {}
    for match in (each for output in outputs for each in _LOOP.finditer(output)):
        if match["file"] in sources and "be_" not in match["text"]:  # g++ also reports our calls at a function's end
            found[match[0]] = (match["file"], int(match["line"]), int(match["column"]))
    return tuple(sorted(found, key=lambda line: found[line]))


def _extract(library: Path, folder: Path, cuobjdump: Path | None, system: System) -> list[tuple[Arch, Path]]:
    """Extract the device code of a library; cuobjdump writes the files to its working folder."""
    if cuobjdump is None:
        return []
    edge = Edge((str(cuobjdump), "-xelf", "all", str(library)), (), ("extracted",), "extracting device code", "embed")
    try:
        Runner(folder, ninja=resolve_ninja(system), jobs=1, environ=system.environ).run(BuildPlan((), (edge,)))
    except BuildError:
        return []
    return [(Arch.parse(path.name.split(".")[-2]), path) for path in sorted(folder.glob("*.cubin"))]


def _report_kernels(
    name: str, cubins: Sequence[tuple[Arch, Path]], known: Usages, cuobjdump: Path | None, system: System
) -> ModuleReport:
    """Report the kernels in device code, without their occupancy."""
    reports = []
    for arch, path in cubins:
        usages = {key: usage for key, usage in known.items() if key[1] == arch}
        if not usages and cuobjdump is not None:
            usages = parse_resources(ask(system, cuobjdump, "-res-usage", path), arch)
        for section, size in section_sizes(path.read_bytes()):
            symbol = section.removeprefix(_CODE)
            if symbol != section and (not usages or (symbol, arch) in usages):
                usage = usages.get((symbol, arch), Usage())
                reports.append(KernelReport(readable(symbol), symbol, arch.sm, *usage, code_bytes=size))
    is_incomplete = any(report.registers is None for report in reports)
    notes = (f"registers are missing: cuobjdump prints them: {PACKAGES}",) if is_incomplete else ()
    return ModuleReport(name, tuple(reports), notes=notes)


def _phases(steps: Iterable[MeasuredStep]) -> tuple[Phase, ...]:
    """Add the seconds of commands of each kind, in the order in which the kinds first ended."""
    found: dict[str, list[float]] = {}
    for step in steps:
        found.setdefault(step.tool, []).append(step.seconds)
    return tuple(Phase(tool, round(sum(seconds), 3), len(seconds)) for tool, seconds in found.items())
