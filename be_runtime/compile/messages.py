"""Diagnosis of compilers' and linkers' output: the first real error, at the author's line, and the warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice, takewhile
from pathlib import Path
from typing import NamedTuple

from be_runtime import errors, own_files
from be_runtime.compile.hints import hints
from be_runtime.request import build_tools, options
from be_toolchain.machine.system import System

_PLACE = r"^(?P<file>\S.*?):(?P<line>\d+)(?::(?P<column>\d+))?:"
_GNU_ERROR = re.compile(rf"{_PLACE} (?:fatal )?error: (?P<message>.*)$")
_EDG_ERROR = re.compile(r"^(?P<file>[^\n(]+)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<message>.*)$")
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
"""Limits for the characters of a line and for the lines, since some patterns take quadratic time."""
_AROUND = 200
"""Lines before and after an error that may belong to it."""
_MOST_ERRORS = 5

_GNU_UNDEFINED = re.compile(r"undefined reference to [`'](?P<symbol>.*)'")
_LLVM_UNDEFINED = re.compile(r"undefined symbol: (?P<symbol>.*)$")
_GOLD_PLACE = re.compile(r"(?P<object>\S+)\.o:[^:]*:function (?P<function>.*): error: undefined")
_LD_PLACE = re.compile(r"(?P<object>\S+)\.o: in function `(?P<function>.*)':$")
_LLVM_PLACE = re.compile(r"^>>>\s+(?P<object>\S+)\.o:\((?:function )?(?P<function>.*)\)")
_ENTRY = re.compile(r"\bbe_(?:entry|call)_(\w+)")
_STEM = re.compile(r"(?:\.\w+|\[\d+\])$")
_MOST_SYMBOLS = 5
_MOST_REFERRERS = 20

_WARNING = re.compile(r"^\S[^\n]*?(?::\d+(?::\d+)?: warning|\(\d+\): warning(?: #[\w-]+)?): ")
_MOST_WARNINGS = 10
_DEVICE_CODE = re.compile(r"\): warning #2001[1-5]-D: ")
_FOLDER = re.compile(r"^[^\n(]*/(?=[^/(]+\(\d+\): )")

_SYSTEM = Path("/usr/include")
_ALIKE = 0.8
"""The smallest `difflib.SequenceMatcher.ratio` of similar names."""


def near_header(header: str, request: options.BuildRequest, tools: build_tools.BuildTools, system: System) -> str:
    """Find a header on a request's search path whose name is similar to the given one; empty if there is none."""
    own = [unit.path.parent for unit in request.units if unit.path is not None]
    cuda = tools.cuda.include_dirs if tools.cuda is not None else ()
    standard = [_SYSTEM / "c++" / release for release in system.list_dir(_SYSTEM / "c++")]
    places = [*own, *request.compile.include_paths, own_files.INCLUDE_DIR, *cuda, *standard, _SYSTEM]
    found = []
    for part in header.split("/"):
        names = {name: None for place in places for name in system.list_dir(place)}
        close = [part] if part in names else get_close_matches(part, names, n=1, cutoff=_ALIKE)
        if not close:
            return ""
        found += close
        places = [place / close[0] for place in places]
    return "/".join(found) if found != header.split("/") else ""


class _Missing(NamedTuple):
    symbol: str
    function: str
    object: str


def undefined_symbols(lines: Sequence[str], names: Iterable[str]) -> tuple[str, ...]:
    """Write a line for each missing symbol, with the function that uses it.

    Parameters
    ----------
    lines : sequence of str
        Output of the linker.
    names : iterable of str
        Names of the author's sources.

    Examples
    --------
    >>> said = (
    ...     "obj/m.o:m.cc:function BE::detail::be_run<be_entry_f, &(be_call_f())>: error: undefined reference to 'g()'"
    ... )
    >>> undefined_symbols([said], ["m"])
    ("undefined reference to 'g()', used by the entry point f in m",)
    """
    first: dict[str, _Missing] = {}
    for each in _missing(lines):
        first.setdefault(each.symbol, each)
    sources = {_STEM.sub("", name.rpartition("/")[2]): name for name in names}
    shown = [_describe(each, sources) for each in list(first.values())[:_MOST_SYMBOLS]]
    return (*shown, *([f"and {len(first) - _MOST_SYMBOLS} more"] if len(first) > _MOST_SYMBOLS else []))


def _missing(lines: Sequence[str]) -> Iterator[_Missing]:
    """Find missing symbols and their users: ld prints the function before the symbol, gold beside it, lld below it."""
    function = target = ""
    for index, line in enumerate(lines):
        place = _LD_PLACE.search(line) or _GOLD_PLACE.search(line)
        if place is not None:
            function, target = place["function"], place["object"]
        found = _GNU_UNDEFINED.search(line) or _LLVM_UNDEFINED.search(line)
        if found is None:
            continue
        below = takewhile(lambda line: line.startswith(">>>"), islice(lines, index + 1, index + 1 + _MOST_REFERRERS))
        after = next(filter(None, map(_LLVM_PLACE.match, below)), None)
        if after is not None:
            yield _Missing(found["symbol"], after["function"], after["object"])
        else:
            yield _Missing(found["symbol"], function, target)


def _describe(missing: _Missing, sources: Mapping[str, str]) -> str:
    stem = missing.object.rpartition("/")[2]
    entry = _ENTRY.search(missing.function)
    user = missing.function.partition(" [clone ")[0]
    if entry is not None:
        user = "the entry point " + entry[1].removeprefix(f"{stem}_")
    elif "BE::detail" in user:
        user = ""
    source = sources.get(stem, "")
    text = f"undefined reference to '{missing.symbol}'" + (f", used by {user}" if user else "")
    return text + (f" in {source}" if source else "")


def find_warnings(outputs: Iterable[str]) -> tuple[str, ...]:
    r"""Find the warnings in the output of g++, clang and nvcc, each once.

    Examples
    --------
    >>> find_warnings(["k.cc: In function 'f':\nk.cc:3:5: warning: unused variable 'a'\n    3 | int a;"])
    ("k.cc:3:5: warning: unused variable 'a'",)
    """
    return tuple(dict.fromkeys(line for output in outputs for line in output.splitlines() if _WARNING.match(line)))


def device_code_warnings(outputs: Iterable[str]) -> tuple[str, ...]:
    r"""Find nvcc's warnings about device code that may compute nothing, each with the name of the file and the line.

    nvcc's front end numbers the warnings: https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc.

    Examples
    --------
    >>> device_code_warnings(['/a/k.cu(5): warning #20011-D: calling a __host__ function("f") is not allowed\n'])
    ('k.cu(5): warning #20011-D: calling a __host__ function("f") is not allowed',)
    """
    return tuple(dict.fromkeys(_FOLDER.sub("", line) for line in find_warnings(outputs) if is_about_device_code(line)))


def is_about_device_code(warning: str) -> bool:
    """Return whether `device_code_warnings` has a warning."""
    return _DEVICE_CODE.search(warning) is not None


def warnings_text(name: str, warnings: tuple[str, ...]) -> str:
    """Write warnings for a terminal, below the name of their module.

    Examples
    --------
    >>> print(warnings_text("m", ("m:3:5: warning: unused variable 'a'",)))
    be_runtime: m: the compiler warns
      m:3:5: warning: unused variable 'a'
    """
    lines = [f"be_runtime: {name}: the compiler warns", *(f"  {each}" for each in warnings[:_MOST_WARNINGS])]
    if len(warnings) > _MOST_WARNINGS:
        lines.append(f"  and {len(warnings) - _MOST_WARNINGS} more, which module.report() lists")
    return "\n".join(lines)


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
        Sources of the author, by their names in messages. A source need not be a file.
    trampoline_lines : sequence of (str, int)
        Name and line in messages about the call of each entry point: an error there is about the arg_spec.
    is_cuda : bool
        Whether the source is CUDA.
    """
    lines = [line[:_LONGEST] for line in output.splitlines()]
    lines = [*lines[: _MOST_LINES // 2], *lines[_MOST_LINES // 2 :][-_MOST_LINES // 2 :]]
    start = _first_error_line(lines)
    if start is None:
        return Diagnosis("\n".join(lines[-_MAX_LINES:]).strip(), hints(_near(lines, len(lines)), is_cuda=is_cuda))
    match = _GNU_ERROR.match(lines[start]) or _EDG_ERROR.match(lines[start])
    missing = undefined_symbols(lines, sources) if match is None else ()
    if missing:
        return Diagnosis("\n".join(missing), hints(_near(lines, start), is_cuda=is_cuda))
    block = _block(lines, start, sources)
    found = hints("\n".join(block), is_cuda=is_cuda) or hints(_near(lines, start), is_cuda=is_cuda)
    if match is not None:
        around = "\n".join((*lines[max(0, start - _AROUND) : start], *block))
        # The generated call has the line of the author's declaration.
        if (match["file"], int(match["line"])) in trampoline_lines and "be_call" in around:
            found = found or (_ARG_SPEC,)
        is_expanded = any(len(line) > _WIDEST or "be_call" in line for line in block[1:])
        if len(block) == 1 or is_expanded:
            block = [block[0], *_excerpt(sources, match)]
        block = _led_by_caller(block, match, lines, start, sources)
    return Diagnosis("\n".join(map(_clipped, block)), found, _further(lines, start))


def _near(lines: Sequence[str], start: int) -> str:
    return "\n".join(map(_clipped, lines[max(0, start - _AROUND) : start + _AROUND]))


def explained(
    error: errors.BuildError,
    sources: Mapping[str, str],
    trampoline_lines: Sequence[tuple[str, int]] = (),
    *,
    is_cuda: bool,
    where: str = "",
) -> errors.BuildError:
    """Return the failure with a diagnosis of its output, and with `where` at the end of its message."""
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
    for pattern in (_GNU_ERROR, _EDG_ERROR, _TOOL, _LINKER):
        for index, line in enumerate(lines):
            if pattern.search(line) and not line.lstrip().startswith("collect2"):
                return index
    return None


def _block(lines: Sequence[str], start: int, sources: Mapping[str, str]) -> list[str]:
    """Return the error's line and its details, up to the next diagnostic or a note about other code."""
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


def _excerpt(sources: Mapping[str, str], place: re.Match[str]) -> list[str]:
    """Show the author's line in gcc's format, with a caret if the column, counted in bytes, is known."""
    rows = sources.get(place["file"], "").split("\n")
    line, column = int(place["line"]), place.groupdict().get("column")
    if not 0 < line <= len(rows) or not rows[line - 1].strip():
        return []
    row = rows[line - 1].rstrip("\r")
    shown = [f"{line:5d} | {row}"]
    before = row.encode(errors="surrogateescape")[: int(column or 0) - 1].decode(errors="replace")
    if column is not None and len(before) < len(row):  # a column of generated code may be behind the author's line
        shown.append("      | " + "".join("\t" if char == "\t" else " " for char in before) + "^")
    return shown


def _led_by_caller(
    block: list[str], match: re.Match[str], lines: Sequence[str], start: int, sources: Mapping[str, str]
) -> list[str]:
    """Put the author's line first if the error is in a foreign template that the line instantiates."""
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
    """Find the instantiations that belong to an error: g++ prints them before the error, other compilers after it."""
    low, high = max(-1, start - _AROUND), min(len(lines), start + _AROUND)
    first = next(
        (at + 1 for at in range(start - 1, low, -1) if _NEXT.match(lines[at]) or _NOTE.match(lines[at])), low + 1
    )
    last = next((at for at in range(start + 1, high) if _NEXT.match(lines[at])), high)
    for line in lines[first:last]:
        yield from filter(None, (pattern.search(line) for pattern in _CALLERS))


def _further(lines: Sequence[str], start: int) -> tuple[str, ...]:
    """Return the next few errors, without repeated messages."""
    found: dict[str, str] = {}
    for line in lines[start:]:
        match = _GNU_ERROR.match(line) or _EDG_ERROR.match(line)
        if match is not None:
            found.setdefault(match["message"], line)
        if len(found) > _MOST_ERRORS:
            break
    return tuple(map(_clipped, found.values()))[1:]


def _clipped(line: str) -> str:
    """Shorten a line to a few lines of a terminal."""
    return line if len(line) <= _WIDEST else line[:_WIDEST] + " ..."
