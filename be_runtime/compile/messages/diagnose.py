"""Diagnosis of a compiler's output: the first real error, at the author's line, and hints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from be_runtime.compile.messages.hints import hints
from be_runtime.compile.messages.undefined import undefined_symbols
from be_runtime.errors import BuildError

_PLACE = r"^(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?:"
_GNU = re.compile(rf"{_PLACE} (?:fatal )?error: (?P<message>.*)$")
_EDG = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
_LINKER = re.compile(
    r"(undefined reference to|multiple definition of|cannot find -l|cannot find |undefined symbol: |duplicate symbol: "
    r"|error: linker command failed|file not recognized)"
)
_TOOL = re.compile(
    r"^(?:nvcc fatal\s*:|ptxas (?:fatal|error)\s*|ptxas .*error|cc1plus: .*error|(?:\S*g\+\+|\S*clang\S*): error:"
    r"|catastrophic error|nvlink error|.*: not found$|.*[Pp]ermission denied)"
)
_NEXT = re.compile(r"^\S.*?(?::\d+(?::\d+)?: (?:fatal )?(?:error|warning): |\(\d+\): (?:error|warning))")
_NOTE = re.compile(r"^(?P<file>\S.*?)(?::\d+(?::\d+)?:|\(\d+\):)\s+note(?: #[\w-]+)?: (?P<message>.*)$")
_COUNT = re.compile(r"^\d+ (?:error|warning)s? (?:and \d+ errors? )?generated")
_ASIDE = re.compile(r"^In file included from |^compilation terminated|^\S.*: (?:In|At) |^collect2|^ninja:")

_CALLERS = (
    re.compile(rf"{_PLACE}\s+(?:recursively )?required (?:from|by) "),
    re.compile(rf"{_PLACE} note: in instantiation of .* requested here"),
    re.compile(r"\binstantiation of .* at line (?P<line>\d+) of \"?(?P<file>[^\"]+)\"?$"),
)
"""Lines of g++, clang and nvcc about the instantiation of a template, from the inside out."""

_ARG_SPEC = "the arg_spec may not fit the C++ signature: compare their order and number"
_MAX_LINES = 12
_WIDEST = 240
_LONGEST, _MOST_LINES = 2000, 20_000
"""The characters of a line and the lines that are read: some patterns take the square of the time for twice of them."""
_AROUND = 200
"""Lines before and after an error that are read for what belongs to it."""
_MOST_ERRORS = 5


class Diagnosis(NamedTuple):
    """The first real error of an output, hints for the reader, and the errors after the first, one line each."""

    first_error: str
    hints: tuple[str, ...]
    further: tuple[str, ...] = ()


def diagnose(
    output: str,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    is_cuda: bool = False,
) -> Diagnosis:
    """Find the first real error in the output of a failed build.

    Parameters
    ----------
    output : str
        Output of the command that failed.
    sources : mapping of str to str
        Sources of the author, by their names in messages, so that a line can be shown even if no file of that name
        exists.
    trampoline_lines : sequence of (str, int)
        Name and line that messages give for the call of each entry point: an error there is about the arg_spec.
    is_cuda : bool
        Whether the source is CUDA.
    """
    lines = [line[:_LONGEST] for line in output.splitlines()]
    lines = [*lines[: _MOST_LINES // 2], *lines[_MOST_LINES // 2 :][-_MOST_LINES // 2 :]]
    start = _first_error_line(lines)
    if start is None:
        return Diagnosis("\n".join(lines[-_MAX_LINES:]).strip(), hints(_near(lines, len(lines)), is_cuda=is_cuda))
    match = _GNU.match(lines[start]) or _EDG.match(lines[start])
    missing = undefined_symbols(lines, sources) if match is None else ()
    if missing:
        return Diagnosis("\n".join(missing), hints(_near(lines, start), is_cuda=is_cuda))
    block = _block(lines, start, sources)
    found = hints("\n".join(block), is_cuda=is_cuda) or hints(_near(lines, start), is_cuda=is_cuda)
    if match is not None:
        before = lines[max(0, start - _AROUND) : start]
        if (match["file"], int(match["line"])) in trampoline_lines and _is_of_trampoline(before, block):
            found = found or (_ARG_SPEC,)
        is_expanded = any(len(line) > _WIDEST or "be_call" in line for line in block[1:])
        if len(block) == 1 or is_expanded:
            block = [block[0], *_excerpt(sources, match)]
        block = _led_by_caller(block, match, lines, start, sources)
    return Diagnosis("\n".join(map(_clipped, block)), found, _further(lines, start))


def _near(lines: Sequence[str], start: int) -> str:
    return "\n".join(map(_clipped, lines[max(0, start - _AROUND) : start + _AROUND]))


def explained(
    error: BuildError,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    is_cuda: bool,
    where: str = "",
) -> BuildError:
    """Return the same failure with the result of `diagnose` for its output, and `where` added to its message."""
    diagnosis = diagnose(error.output, sources, trampoline_lines, is_cuda=is_cuda)
    return type(error)(
        error.message + where,
        command=error.command,
        output=error.output,
        first_error=diagnosis.first_error,
        further="\n".join(diagnosis.further),
        hints=error.hints or diagnosis.hints,
    )


def _first_error_line(lines: Sequence[str]) -> int | None:
    for pattern in (_GNU, _EDG, _TOOL, _LINKER):
        for index, line in enumerate(lines):
            if pattern.search(line) and not line.lstrip().startswith("collect2"):
                return index
    return None


def _block(lines: Sequence[str], start: int, sources: Mapping[str, str]) -> list[str]:
    """Return the error's line and its details, up to the next diagnostic or a note about somebody else's code."""
    block = [lines[start]]
    for line in lines[start + 1 : start + _MAX_LINES]:
        ends = any(pattern.match(line) for pattern in (_NEXT, _COUNT, _ASIDE))
        if ends or not line.strip() or _LINKER.search(line) or _is_foreign_note(line, sources):
            break
        block.append(line)
    return block


def _is_foreign_note(line: str, sources: Mapping[str, str]) -> bool:
    """Return whether a note is about a header or the expansion of a macro."""
    note = _NOTE.match(line)
    return note is not None and (note["file"] not in sources or " macro '" in note["message"])


def _is_of_trampoline(before: Sequence[str], block: Sequence[str]) -> bool:
    """Return whether the error is in the generated call at the author's line, and not in the author's code."""
    return "be_call" in "\n".join((*before, *block))


def _excerpt(sources: Mapping[str, str], place: re.Match[str]) -> list[str]:
    """Show a line of the author's in gcc's format, with a caret if the column, counted in bytes, is known."""
    rows = sources.get(place["file"], "").split("\n")
    line, column = int(place["line"]), place.groupdict().get("column")
    if not 0 < line <= len(rows) or not rows[line - 1].strip():
        return []
    row = rows[line - 1].rstrip("\r")
    shown = [f"{line:5d} | {row}"]
    before = row.encode(errors="surrogateescape")[: int(column or 0) - 1].decode(errors="replace")
    if column is not None and len(before) < len(row):  # A column of generated code may be behind the author's line.
        shown.append("      | " + "".join("\t" if char == "\t" else " " for char in before) + "^")
    return shown


def _led_by_caller(
    block: list[str], match: re.Match[str], lines: Sequence[str], start: int, sources: Mapping[str, str]
) -> list[str]:
    """Put the author's line first if the error is in somebody else's template that it instantiates."""
    folders = tuple(f"{folder}/" for name in sources if (folder := name.rpartition("/")[0]))
    if match["file"] in sources or match["file"].startswith(folders):
        return block
    caller = next((each for each in _callers(lines, start) if each["file"] in sources), None)
    if caller is None:
        return block
    column = caller.groupdict().get("column")
    place = f"{caller['file']}:{caller['line']}:{column}" if column else f"{caller['file']}({caller['line']})"
    return [f"{place}: error: {match['message']}", *_excerpt(sources, caller), *block]


def _callers(lines: Sequence[str], start: int) -> Iterator[re.Match[str]]:
    """Find the instantiations that belong to an error: g++ writes them before it, other compilers after it."""
    low, high = max(-1, start - _AROUND), min(len(lines), start + _AROUND)
    first = next(
        (at + 1 for at in range(start - 1, low, -1) if _NEXT.match(lines[at]) or _NOTE.match(lines[at])), low + 1
    )
    last = next((at for at in range(start + 1, high) if _NEXT.match(lines[at])), high)
    for line in lines[first:last]:
        yield from filter(None, (pattern.search(line) for pattern in _CALLERS))


def _further(lines: Sequence[str], start: int) -> tuple[str, ...]:
    """Return the first few of the other errors, without repeated messages."""
    found: dict[str, str] = {}
    for line in lines[start:]:
        match = _GNU.match(line) or _EDG.match(line)
        if match is not None:
            found.setdefault(match["message"], line)
        if len(found) > _MOST_ERRORS:
            break
    return tuple(map(_clipped, found.values()))[1:]


def _clipped(line: str) -> str:
    """Shorten a line to a few lines of a terminal."""
    return line if len(line) <= _WIDEST else line[:_WIDEST] + " ..."
