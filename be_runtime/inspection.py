"""Loops in a kernel's machine code, from the text of ``nvdisasm -c -g``. Pure.

A loop is found by its backward branch: the block that it leads to is on every way from the kernel's beginning to it.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from be_toolchain.machine.system import System

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE, _FUNCTION = 2, 2
"""SHT_SYMTAB and STT_FUNC."""


class Section(NamedTuple):
    """A section: its name, and its size."""

    name: str
    size: int


def sections(data: bytes) -> tuple[Section, ...]:
    """List the sections of an ELF file; none if it isn't one of 64 bits.

    Examples
    --------
    >>> sections(b"not an ELF file")
    ()
    """
    rows = _rows(data)
    if not rows:
        return ()
    (names,) = struct.unpack_from("<H", data, 62)
    start = rows[names][4]
    return tuple(Section(_text(data, start + row[0]), row[5]) for row in rows)


def function_sizes(data: bytes) -> dict[str, int]:
    """Return the bytes of each function in the symbol table of an ELF file; of those of one name together."""
    found: dict[str, int] = {}
    for row in _rows(data):
        if row[1] != _SYMBOL_TABLE:
            continue
        texts = _rows(data)[row[6]][4]
        for name, info, _other, _section, _value, size in _SYMBOL.iter_unpack(data[row[4] : row[4] + row[5]]):
            if info & 0xF == _FUNCTION and size:
                text = _text(data, texts + name)
                found[text] = found.get(text, 0) + size
    return found


def _rows(data: bytes) -> list[tuple[int, ...]]:
    """Return the table of sections; nothing of what isn't an ELF file of 64 bits."""
    if data[:5] != b"\x7fELF\x02" or len(data) < 64:
        return []
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    return [_SECTION.unpack_from(data, table + index * size) for index in range(count)]


def _text(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode("utf-8", "replace")


PACKAGES = "pip install 'brainevent-toolchain[inspect]'"
"""The command that installs them."""

_LONG_S = 120.0


class InspectionTools(NamedTuple):
    """The programs; None for one that is not here."""

    cuobjdump: Path | None
    nvdisasm: Path | None


def find_inspection_tools(system: System) -> InspectionTools:
    """Find the programs: in wheels of this Python, in its prefix, on PATH, in the usual place."""
    wheels = [site / "nvidia" / name / "bin" for site in system.site_dirs for name in ("cu14", "cu13")]
    prefixes = (prefix / "bin" for prefix in system.prefixes)
    folders = (*wheels, *prefixes, *system.path_dirs, Path("/usr/local/cuda/bin"))

    def first(name: str) -> Path | None:
        return next((folder / name for folder in folders if system.is_program(folder / name)), None)

    return InspectionTools(first("cuobjdump"), first("nvdisasm"))


def ask(system: System, *argv: str | Path) -> str:
    """Return the output of a program; empty if it failed, such as for code of a newer toolkit."""
    answer = system.run(tuple(map(str, argv)), timeout_s=_LONG_S)
    return answer.text if answer.returncode == 0 else ""


def readable(symbol: str) -> str:
    """Return a kernel's name as C++ spells it, without its parameters.

    Examples
    --------
    >>> readable("_Z4rowsILi4EEvPKfPf"), readable("plain")
    ('rows<4>', 'plain')
    """
    text = _demangle(symbol).replace("(anonymous namespace)", "{anonymous}").removeprefix("void ")
    return text.partition("(")[0] if symbol.startswith("_Z") else symbol


def _demangle(symbol: str) -> str:
    """Ask the C++ library, by the function of the Itanium ABI, which every process with XLA has loaded."""
    demangle = _demangler()
    if demangle is None:
        return symbol
    status, length = ctypes.c_int(), ctypes.c_size_t()
    found = demangle(symbol.encode(), None, ctypes.byref(length), ctypes.byref(status))
    if not found:
        return symbol
    try:
        return (ctypes.string_at(found) or b"").decode("utf-8", "replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(found)


@cache
def _demangler() -> ctypes._NamedFuncPointer | None:
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    demangle.restype = ctypes.c_void_p
    return demangle


_SECTION_machine_code = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"(\.L\w+):")
_LINE = re.compile(r'//## File "(.+?)", line (\d+)')
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_CONDITION = re.compile(r"\s+!?U?P\d")
_TARGET = re.compile(r"`\((\.L\w+)\)")
_WIDTH = re.compile(r"\.(U8|S8|U16|S16|64|128)(?:\.|$)")
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}
_ENDS = ("BRA", "BRX", "JMP", "EXIT", "RET", "KILL")

_CLASSES = {
    name: re.compile(pattern)
    for name, pattern in (
        ("local loads", r"LDL"),
        ("local stores", r"STL"),
        ("global loads", r"LDG|LD(\.|$)|UBLKCP|LDGSTS"),
        ("global stores", r"STG|ST(\.|$)"),
        ("atomics", r"ATOM|RED(\.|G|$)"),
        ("shared loads", r"LDS"),
        ("shared stores", r"STS"),
        ("constant loads", r"U?LDC"),
        ("tensor core", r"\w*MMA(\.|$)"),
        ("fp64", r"D(ADD|MUL|FMA|SETP|MNMX)"),
        ("fp16", r"H(ADD2|MUL2|FMA2|SETP2|MNMX2)"),
        ("special functions", r"MUFU"),
        ("fp32", r"F(ADD|MUL|FMA|SET|SETP|MNMX|SEL|CHK|SWZADD)"),
        ("conversions", r"[IF]2[IF]|FRND"),
        ("barriers", r"BAR|SYNCS|WARPSYNC|MEMBAR"),
        ("shuffles and votes", r"SHFL|VOTE|MATCH|REDUX"),
        ("branches", r"BRA|BRX|BSSY|BSYNC|BREAK|BMOV|CALL|RET|EXIT|YIELD|NOP"),
        ("integer", r"U?(I|LEA|LOP|SHF|SHL|SHR|POPC|FLO|PRMT|SEL|VIADD|VIMNMX|BREV)"),
        ("moves", r"U?MOV|S2U?R|CS2R|R2UR|P2R|R2P|PLOP3|UPLOP3"),
    )
}
"""Kinds of instructions, the first that matches; CUDA Binary Utilities, "Instruction Set Reference"."""


class Instruction(NamedTuple):
    """An instruction: its offset, its opcode, where it may jump, and the author's line, empty if it isn't known."""

    offset: int
    opcode: str
    target: str
    is_conditional: bool
    line: str


class Loop(NamedTuple):
    """A loop of a kernel.

    Parameters
    ----------
    offset : int
        Offset of its first instruction in the kernel's code.
    depth : int
        1 for a loop in no other one.
    instructions : int
        Instructions of one trip, at most.
    kinds : dict of str to int
        Number of instructions of each kind, the most frequent first.
    bytes_read, bytes_written : int
        Bytes of global memory that a thread asks for in a trip.
    lines : tuple of str
        Lines of the source, such as ``"k.cu:12"``; known with `line_info`.
    """

    offset: int
    depth: int
    instructions: int
    kinds: Mapping[str, int]
    bytes_read: int
    bytes_written: int
    lines: tuple[str, ...] = ()


class _Block(NamedTuple):
    instructions: tuple[Instruction, ...]
    follows: tuple[int, ...]


def read_kernels(text: str) -> dict[str, tuple[tuple[Instruction, ...], dict[str, int]]]:
    """Read the instructions of each kernel, and the number of the instruction that each label stands before."""
    found: dict[str, tuple[list[Instruction], dict[str, int]]] = {}
    code, labels, line = list[Instruction](), dict[str, int](), ""
    for row in text.splitlines():
        if section := _SECTION_machine_code.fullmatch(row.strip()):
            code, labels, line = [], {}, ""
            found[section[1]] = code, labels
        elif label := _LABEL.match(row):
            labels[label[1]] = len(code)
        elif place := _LINE.search(row):
            line = f"{place[1].rpartition('/')[2]}:{place[2]}"
        elif known := _INSTRUCTION.search(row):
            target = _TARGET.search(known[4])
            is_conditional = bool(known[2] or known[3].startswith("BRA.DIV") or _CONDITION.match(known[4]))
            code.append(Instruction(int(known[1], 16), known[3], target[1] if target else "", is_conditional, line))
    return {name: (tuple(code), labels) for name, (code, labels) in found.items()}


def hottest_loop(code: Sequence[Instruction], labels: Mapping[str, int]) -> Loop | None:
    """Return the loop in most other loops, of those the one with most accesses to memory; None if there is no loop.

    It is a guess without a run: nothing is known of the number of trips.
    """
    blocks = _blocks(code, labels) if code else []
    bodies = _loops(blocks)
    loops = [_describe(blocks, head, body, bodies) for head, body in bodies.items()]
    return max(loops, key=lambda loop: (loop.depth, _accesses(loop), loop.instructions), default=None)


def classify(opcode: str) -> str:
    """Return the kind of an instruction.

    Examples
    --------
    >>> classify("LDG.E.128"), classify("FFMA"), classify("LDL.LU")
    ('global loads', 'fp32', 'local loads')
    """
    return next((name for name, pattern in _CLASSES.items() if pattern.match(opcode)), "other")


def _accesses(loop: Loop) -> int:
    return sum(count for name, count in loop.kinds.items() if name.endswith(("loads", "stores", "atomics")))


def _blocks(code: Sequence[Instruction], labels: Mapping[str, int]) -> list[_Block]:
    """Divide code into blocks, each with the blocks that may follow it."""
    after = {at + 1 for at, each in enumerate(code) if each.target or each.opcode.startswith(_ENDS)}
    starts = sorted({0, *labels.values(), *after} - {len(code)})
    number = {start: index for index, start in enumerate(starts)}
    blocks = []
    for index, (start, end) in enumerate(zip(starts, [*starts[1:], len(code)], strict=True)):
        last = code[end - 1]
        follows = []
        if last.opcode.startswith(("BRA", "JMP")) and labels.get(last.target) in number:
            follows.append(number[labels[last.target]])
        if (last.is_conditional or not last.opcode.startswith(_ENDS)) and index + 1 < len(starts):
            follows.append(index + 1)
        blocks.append(_Block(tuple(code[start:end]), tuple(follows)))
    return blocks


def _loops(blocks: Sequence[_Block]) -> dict[int, frozenset[int]]:
    """Return the blocks of each loop, by its first one; a block that only jumps to itself fills up the code's end."""
    found: dict[int, frozenset[int]] = {}
    reached = _reached(blocks) if blocks else set()
    for index, block in enumerate(blocks):
        for head in block.follows:
            is_filling = head == index and len(block.instructions) == 1
            if head <= index and not is_filling and index in reached - _reached(blocks, without=head):
                found[head] = found.get(head, frozenset()) | _body(blocks, head, index)
    return found


def _reached(blocks: Sequence[_Block], without: int | None = None) -> set[int]:
    """Return the blocks to which a way leads from the first one, past a block or not."""
    seen: set[int] = set() if without is None else {without}
    todo = [] if without == 0 else [0]
    while todo:
        block = todo.pop()
        if block not in seen:
            seen.add(block)
            todo += blocks[block].follows
    return seen - {without} if without is not None else seen


def _body(blocks: Sequence[_Block], head: int, last: int) -> frozenset[int]:
    """Return the blocks from which a way leads to a loop's last one without its head."""
    before: dict[int, list[int]] = {}
    for index, block in enumerate(blocks):
        for follower in block.follows:
            before.setdefault(follower, []).append(index)
    seen, todo = {head}, [last]
    while todo:
        at = todo.pop()
        if at not in seen:
            seen.add(at)
            todo += before.get(at, [])
    return frozenset(seen)


def _describe(blocks: Sequence[_Block], head: int, body: frozenset[int], bodies: Mapping[int, frozenset[int]]) -> Loop:
    code = [each for index in sorted(body) for each in blocks[index].instructions]
    kinds = Counter(classify(each.opcode) for each in code)
    return Loop(
        offset=blocks[head].instructions[0].offset,
        depth=sum(body <= other for other in bodies.values()),
        instructions=len(code),
        kinds=dict(kinds.most_common()),
        bytes_read=_bytes(code, "global loads"),
        bytes_written=_bytes(code, "global stores"),
        lines=tuple(dict.fromkeys(each.line for each in code if each.line)),
    )


def _bytes(code: Iterable[Instruction], kind: str) -> int:
    widths = [_WIDTH.search(each.opcode) for each in code if classify(each.opcode) == kind]
    return sum(_BYTES[width[1]] if width else 4 for width in widths)
