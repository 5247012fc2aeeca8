"""The report of a module, as values, as text and as JSON. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError
from be_runtime.reports.machine_code import Loop
from be_runtime.reports.occupancy import Occupancy
from be_toolchain.terminal import table

BLOCKS = (64, 128, 256, 512, 1024)
"""The block sizes whose occupancy is told unless others are named."""

_MOST_THREADS = 1024
_LOW = 0.25
_MOST_LINES = 4


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
    """The device code of one kernel for one architecture; None for what no tool here tells.

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
    loop : Loop or None
        The hottest loop.
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
    loop: Loop | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Causes of slowness in the code, each with what to do about it."""
        return tuple(f"{self.name} ({self.arch}) {text}" for text in (*self._of_memory(), *self._of_work()))

    def _of_memory(self) -> Iterable[str]:
        kinds = {} if self.loop is None else self.loop.kinds
        if self.spill_stores or self.spill_loads:
            yield (
                f"spills registers to memory: a thread writes {self.spill_stores} B and reads {self.spill_loads} B; "
                "keep fewer values at a time, or allow more registers by a smaller bound in __launch_bounds__ or a "
                "larger -maxrregcount"
            )
        elif self.stack:
            yield (
                f"has {self.stack} B of local memory for each thread: an array that a variable indexes, or a function "
                "that is not inlined; unroll the loop over the array, or put it into shared memory"
            )
        if accesses := kinds.get("local loads", 0) + kinds.get("local stores", 0):
            yield f"reads and writes local memory in its hottest loop, {accesses} times in a trip"

    def _of_work(self) -> Iterable[str]:
        best = max(self.occupancy, key=lambda each: each.fraction, default=None)
        if best is not None and best.fraction < _LOW:
            yield f"keeps a multiprocessor at most {best.fraction:.0%} full, limited by {best.limiter}"
        kinds = {} if self.loop is None else self.loop.kinds
        if kinds.get("fp64") and kinds.get("conversions"):
            yield "converts to double in its hottest loop: 0.5 is a double, write 0.5f"


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
    """The commands of one kind in a build, and their seconds together; commands run at the same time."""

    name: str
    seconds: float
    commands: int


class ModuleReport(NamedTuple):
    """The report of a module; ``print`` shows tables.

    Parameters
    ----------
    name : str
    kernels : tuple of KernelReport
    phases : tuple of Phase
        Phases of the build; none where nothing was built.
    notes : tuple of str
        What is not told, and how to get it.
    entries : tuple of EntryReport
        Entry points of a C++ module.
    loops : tuple of str
        Lines of the host compiler about loops of the source that it vectorized, or could not; only on request.
    compiler_warnings : tuple of str
        Warnings that the compilers printed, such as those of ``-Wall``, a line each.
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
        """The warnings of all kernels."""
        return tuple(warning for kernel in self.kernels for warning in kernel.warnings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON has it."""
        kernels = [
            kernel._asdict()
            | {
                "occupancy": [each._asdict() for each in kernel.occupancy],
                "loop": kernel.loop and kernel.loop._asdict(),
                "warnings": list(kernel.warnings),
            }
            for kernel in self.kernels
        ]
        phases = [phase._asdict() for phase in self.phases]
        return {
            "name": self.name,
            "kernels": kernels,
            "entries": [each._asdict() for each in self.entries],
            "loops": list(self.loops),
            "phases": phases,
            "compiler_warnings": list(self.compiler_warnings),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        what, count = ("entry point", len(self.entries)) if self.entries else ("kernel", len(self.kernels))
        parts = [f"{self.name}: {count} {what}{'' if count == 1 else 's'}"]
        if self.kernels:
            parts += [_kernels_text(self.kernels), *_loops_text(self.kernels)]
        if self.entries:
            parts.append(table([("entry point", "code"), *((name, _bytes(size)) for name, size in self.entries)]))
        if self.loops:
            parts += ["loops:", *(f"  {each}" for each in self.loops)]
        if self.phases:
            shown = ", ".join(f"{each.name} {each.seconds:.2f}" for each in self.phases)
            parts.append(f"seconds of commands, some of which run at once: {shown}")
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


def _loops_text(kernels: Iterable[KernelReport]) -> Iterable[str]:
    for kernel in kernels:
        if kernel.loop is None:
            continue
        loop = kernel.loop
        kinds = ", ".join(f"{count} {name}" for name, count in loop.kinds.items())
        lines = f"; {', '.join(loop.lines[:_MOST_LINES])}" if loop.lines else ""
        asked = f"{loop.bytes_read} B read and {loop.bytes_written} B written of global memory"
        which = f"hottest loop by nesting of {kernel.name} ({kernel.arch})"
        yield f"{which}: {loop.instructions} instructions ({kinds}); {asked}{lines}"


def _bytes(value: int | None) -> str:
    return "?" if value is None else f"{value} B"
