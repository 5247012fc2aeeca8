"""Registers, shared memory and spills of kernels, from the texts of ptxas and cuobjdump. Pure.

Lines that are not known are passed over: the texts differ by release.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from be_toolchain.arch import Arch

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '([^']+)'")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_FUNCTION = re.compile(r"Function (\S+):")
_RESOURCES = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)")
_DRIVERS = 1024
"""Bytes of the driver's that cuobjdump counts in, from 9.0 on, where a kernel has shared memory of its own."""


class Usage(NamedTuple):
    """The resources of one kernel; None for what a tool does not say.

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
            if found[current].stack is None:  # the entry's own; functions that it calls follow
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
