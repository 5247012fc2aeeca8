"""From a compiler's output to the first real error and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import BuildError

_GNU = re.compile(r"^(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?: (?:fatal )?error: (?P<message>.*)$")
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
_COUNT = re.compile(r"^\d+ (?:error|warning)s? (?:and \d+ errors? )?generated")
_MAX_LINES = 12


class Diagnosis(NamedTuple):
    """The first real error of an output, and hints for the reader."""

    first_error: str
    hints: tuple[str, ...]


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    hint: str


_RULES: tuple[_Rule, ...] = (
    _Rule(
        re.compile(r"cuda_runtime\.h: No such file|cudaStream_t. (?:was not declared|does not name)"),
        "a CUDA source includes <cuda_runtime.h> itself; C++ sources are compiled without CUDA's headers",
    ),
    _Rule(
        re.compile(
            r"use of undeclared identifier 'BE'|'BE' (?:has not been declared|does not name a type)"
            r"|name followed by \"::\" must be a class|explicit type is missing.*\n.*\bBE::"
        ),
        'include "brainevent/common.h" to use BE::Tensor',
    ),
    _Rule(
        re.compile(r"unsupported GNU version|unsupported clang version|#error -- unsupported"),
        "this nvcc does not accept the host compiler; `python -m be_toolchain doctor` says which ones it accepts, "
        "BE_CXX chooses one",
    ),
    _Rule(
        re.compile(r"Unsupported \.version|unsupported PTX|PTX .* was compiled with an unsupported toolchain"),
        "the CUDA components are of different releases; run `python -m be_toolchain doctor`",
    ),
    _Rule(
        re.compile(r"Unsupported gpu architecture|Value '(?:sm|compute)_\w+' is not defined"),
        "this nvcc can't compile for that architecture; `nvcc --list-gpu-arch` lists the ones it can",
    ),
    _Rule(
        re.compile(r"undefined reference to|undefined symbol: "),
        "a function is declared but never defined: define it in the source, or link its library with "
        "extra_ldflags=['-lNAME']",
    ),
    _Rule(
        re.compile(r"Unresolved extern function"),
        "a __device__ function is declared but not defined in this source; for one that another source of the folder "
        "defines, pass extra_cuda_cflags=['-rdc=true']",
    ),
    _Rule(
        re.compile(r"uses too much shared data"),
        "__shared__ arrays of a fixed size share 48 KiB; for more use extern __shared__ memory, and "
        "cudaFuncSetAttribute to allow it",
    ),
    _Rule(
        re.compile(r"elfLink linker library load error"),
        "this toolkit lacks the nvvm/lib64/libnvvm.so that -dlto needs; leave -dlto out, or use a complete toolkit",
    ),
    _Rule(
        re.compile(r"cannot find -l|cannot find "),
        "name the library's folder with extra_ldflags=['-L/its/folder', ...]",
    ),
    _Rule(
        re.compile(r"multiple definition of|duplicate symbol: "),
        "two sources define the same function; make it static or inline",
    ),
    _Rule(
        re.compile(r"No such file or directory|could not open source file|cannot open source file|file not found"),
        "a header was not found: name its folder in extra_include_paths",
    ),
    _Rule(
        re.compile(r"No space left on device"), "the disk is full; set BE_CACHE_DIR and TMPDIR to a folder with room"
    ),
    _Rule(
        re.compile(r"Killed signal terminated program|virtual memory exhausted|out of memory|signal 9"),
        "the compiler ran out of memory; build with fewer jobs: ninja_workers=1 or BE_MAX_JOBS=1",
    ),
    _Rule(
        re.compile(r"^(?:.*: )?(?:sh: )?.*: not found$", re.MULTILINE),
        "a program that the compiler needs is missing; run `python -m be_toolchain doctor`",
    ),
)


def diagnose(output: str, sources: Mapping[str, str], trampoline_lines: Sequence[tuple[str, int]] = ()) -> Diagnosis:
    """Find the first real error in what a failed build printed.

    Parameters
    ----------
    output : str
        Of the command that failed.
    sources : mapping of str to str
        Inline sources by the name that messages call them, so that the offending line can be shown even though no
        file of that name exists.
    trampoline_lines : sequence of (str, int)
        Name and line that stand for the call of each entry point: an error there is about the arg_spec.
    """
    lines = output.splitlines()
    start = _first_error_line(lines)
    if start is None:
        return Diagnosis(first_error="\n".join(lines[-_MAX_LINES:]).strip(), hints=_hints(output))
    block = _block(lines, start)
    match = _GNU.match(lines[start]) or _EDG.match(lines[start])
    hints = _hints("\n".join(block)) or _hints(output)
    if match is not None:
        place = (match["file"], int(match["line"]))
        if len(block) == 1:
            block += _excerpt(sources.get(place[0]), place[1], match.groupdict().get("column"))
        if place in trampoline_lines and "be_call" in output:
            hints = (*hints, "the arg_spec may not fit the C++ signature: compare their order and number")
    return Diagnosis(first_error="\n".join(block), hints=hints)


def explained(
    error: BuildError,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    where: str = "",
) -> BuildError:
    """The same failure with what `diagnose` finds in its output, and `where` behind its message."""
    diagnosis = diagnose(error.output, sources, trampoline_lines)
    return type(error)(
        error.message + where,
        command=error.command,
        output=error.output,
        first_error=diagnosis.first_error,
        hints=(*error.hints, *diagnosis.hints),
    )


def _first_error_line(lines: Sequence[str]) -> int | None:
    for pattern in (_GNU, _EDG, _TOOL, _LINKER):
        for index, line in enumerate(lines):
            if pattern.search(line) and not line.lstrip().startswith("collect2"):
                return index
    return None


def _block(lines: Sequence[str], start: int) -> list[str]:
    """The error's line and the source excerpt under it, up to the next diagnostic."""
    block = [lines[start]]
    for line in lines[start + 1 : start + _MAX_LINES]:
        if (
            not line.strip()
            or _NEXT.match(line)
            or _COUNT.match(line)
            or _LINKER.search(line)
            or line.startswith(("collect2", "ninja:"))
        ):
            break
        block.append(line)
    return block


def _excerpt(text: str | None, line: int, column: str | None) -> list[str]:
    """A line of an inline source as gcc shows one, with a caret where the column, counted in bytes, is known."""
    rows = text.split("\n") if text is not None else []
    if not 0 < line <= len(rows):
        return []
    row = rows[line - 1].rstrip("\r")
    shown = [f"{line:5d} | {row}"]
    if column is not None:
        before = row.encode(errors="surrogateescape")[: int(column) - 1].decode(errors="replace")
        shown.append("      | " + "".join("\t" if char == "\t" else " " for char in before) + "^")
    return shown


def _hints(text: str) -> tuple[str, ...]:
    return tuple(rule.hint for rule in _RULES if rule.pattern.search(text))[:2]
