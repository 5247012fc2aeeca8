"""Reports of the host compiler's sanitizers and of valgrind, as findings. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from be_runtime.findings import Finding

_ADDRESS = re.compile(r"^==\d+==ERROR: AddressSanitizer: (?P<kind>[\w-]+)(?P<rest>.*)$")
_UNDEFINED = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$")
_FRAME = re.compile(r"^\s+#(?P<number>\d+) 0x[0-9a-f]+ in (?P<function>.+?)(?: (?P<place>\S+:\d+)(?::\d+)?| \(\S+\))$")
_RACE = "WARNING: ThreadSanitizer: data race"
_RACE_ACCESS = re.compile(r"^  (?P<what>.*(?:read|write)) of size \d+", re.IGNORECASE)
_RACE_FRAME = re.compile(r"^\s+#\d+ (?P<function>.+?) (?:(?P<place>\S+:\d+)(?::\d+)?|<null>|\S+) \(\S+\)$")
_PREFIX = re.compile(r"^==\d+== ?")
_VALGRIND_FRAME = re.compile(r"^ +(?:at|by) 0x[0-9A-F]+: (?P<function>.+) \((?:in \S+|(?P<place>[^()\s]+:\d+))\)$")
_END_OF_STATE = "be_delete_state"
"""A function that XLA calls after all calls, as ThreadSanitizer can't see."""

_ACCESS = re.compile(r"^(?P<what>READ|WRITE) of size (?P<size>\d+)")
_REGION = re.compile(r"^0x[0-9a-f]+ is located (?P<where>\d+ bytes .+ of (?P<size>\d+)-byte region) ")
_BEYOND = re.compile(r"(?P<bytes>\d+) bytes (?:to the right|after)")
_SYMBOL = re.compile(r"\bbe_(?:call|entry|ffi|graph)_(?P<symbol>\w+)")
_BUILD = re.compile(r"^.*/staging/[^/]+/build/")
"""The folder in which a module was compiled."""

_HINTS = {
    "stack-overflow": "recursion has no end, or a local array is large: allocate it, or raise `ulimit -s`",
    "race": "let the parts of a parallel_for write elements of their own, or use atomics",
    "unset": "look for a local array or memory of malloc that is read before it is written",
    "SEGV": "the address belongs to nobody: a pointer was not set, or is far outside of its array",
}


class Frame(NamedTuple):
    """One line of a stack trace.

    Parameters
    ----------
    function : str
        As the compiler spells it.
    place : str
        File and line; empty where they are not known.
    """

    function: str
    place: str


def read_host_report(text: str) -> tuple[Finding, ...]:
    """Read the findings in a sanitizer's report; those of one line and kind are one.

    Errors outside of kernels follow from theirs, and are left out where a kernel has one.

    Examples
    --------
    >>> text = "k.cc:3:5: runtime error: division by zero" + chr(10) + "    #0 0x1 in be_call_k_f k.cc:3"
    >>> [(found.kernel, found.source, found.kind) for found in read_host_report(text)]
    [('k_f', 'k.cc:3', 'undefined')]
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for block in _blocks(text.splitlines()):
        finding = _address_finding(block) or _undefined_finding(block)
        if finding is not None:
            found.setdefault((finding.kind, finding.kernel, finding.source), finding)
    return tuple(each for each in found.values() if each.kernel) or tuple(found.values())


def read_race_report(text: str) -> tuple[Finding, ...]:
    """Read the races in a report of ThreadSanitizer; those of one line are one.

    Examples
    --------
    >>> text = '''WARNING: ThreadSanitizer: data race (pid=1)
    ...   Write of size 4 at 0x1 by thread T2:
    ...     #0 sum(float*) k.cc:3 (module.so+0x1)
    ...   Previous write of size 4 at 0x1 by thread T1:
    ...     #0 sum(float*) k.cc:3 (module.so+0x1)
    ...   Thread T2 (tid=3, running) created by main thread at:
    ...     #0 be_ffi_k_sum generated:5 (module.so+0x2)'''
    >>> [(found.kernel, found.message) for found in read_race_report(text)]
    [('k_sum', 'k_sum: race of two threads: write at k.cc:3, previous write at k.cc:3 in sum')]
    """
    found: dict[tuple[str, str], Finding] = {}
    for block in text.split(_RACE)[1:]:
        lines = block.splitlines()
        heads = [
            (each["what"].lower(), number) for number, line in enumerate(lines) if (each := _RACE_ACCESS.match(line))
        ]
        traces = [_trace(lines[number + 1 :], _RACE_FRAME) for _, number in heads]
        if any(_END_OF_STATE in frame.function for trace in traces for frame in trace):
            continue
        places = [next((frame.place for frame in trace if frame.place), "unknown code") for trace in traces]
        accesses = ", ".join(f"{what} at {place}" for (what, _), place in zip(heads, places, strict=True))
        finding = _finding("race", f"race of two threads: {accesses}", "thread", traces[0] if traces else (), block)
        found.setdefault((finding.kernel, finding.source), finding)
    return tuple(found.values())


def read_valgrind_report(text: str) -> tuple[Finding, ...]:
    """Read the errors of kernels in a report of valgrind; those of one line and kind are one.

    Examples
    --------
    >>> text = '''==7== Conditional jump or move depends on uninitialised value(s)
    ... ==7==    at 0x4A: f(BE::Tensor) (k.cc:5)
    ... ==7==    by 0x4B: be_call_k_f (k.cc:2)
    ... ==7==
    ... ==7== Process terminating with default action of signal 11 (SIGSEGV)
    ... ==7==    at 0x4A: raise (raise.c:5)
    ... ==7==    by 0x4B: be_call_k_f (k.cc:2)'''
    >>> [(found.kernel, found.source, found.kind) for found in read_valgrind_report(text)]
    [('k_f', 'k.cc:5', 'unset')]
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for block in re.split(r"\n *\n", "\n".join(_PREFIX.sub("", line) for line in text.splitlines())):
        lines = block.splitlines()
        first = next((number for number, line in enumerate(lines) if _VALGRIND_FRAME.match(line)), 0)
        frames = _trace(lines[first:], _VALGRIND_FRAME)
        is_error = first > 0 and not lines[first - 1].startswith("Process terminating")  # which a fault has caused
        if not is_error or not any(_SYMBOL.search(frame.function) for frame in frames):
            continue
        kind = "unset" if "ninitialised" in lines[first - 1] else "access"
        finding = _finding(kind, lines[first - 1].strip(), "valgrind", frames)
        found.setdefault((finding.kind, finding.kernel, finding.source), finding)
    return tuple(found.values())


def _trace(lines: Sequence[str], pattern: re.Pattern[str]) -> list[Frame]:
    """Return the frames with which some lines begin."""
    matches = itertools.takewhile(bool, map(pattern.match, lines))
    return [Frame(match["function"], _BUILD.sub("", match["place"] or "")) for match in matches if match]


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Split a report into errors."""
    block: list[str] = []
    for line in lines:
        if _ADDRESS.match(line) or _UNDEFINED.match(line):
            yield block
            block = []
        block.append(line)
    yield block


def _address_finding(block: Sequence[str]) -> Finding | None:
    head = _ADDRESS.match(block[0]) if block else None
    if head is None:
        return None
    frames = _first_trace(block)
    kind = head["kind"]
    access = next(filter(None, map(_ACCESS.match, block)), None)
    region = next(filter(None, map(_REGION.match, block)), None)
    what = f"{kind}" if access is None else f"{kind}: {access['what'].lower()} of {access['size']} bytes"
    if region is not None:
        beyond = _BEYOND.match(region["where"])
        place = f"{beyond['bytes']} bytes behind the end of" if beyond else "outside of"
        what += f", {place} memory of {region['size']} bytes"
    return _finding(kind, what, "address", frames)


def _undefined_finding(block: Sequence[str]) -> Finding | None:
    head = _UNDEFINED.match(block[0]) if block else None
    if head is None:
        return None
    kind = "misaligned" if "misaligned" in head["what"] else "undefined"
    what = re.sub(r" address 0x[0-9a-f]+", " address", head["what"])
    frames = _first_trace(block) or [Frame("", f"{head['file']}:{head['line']}")]
    return _finding(kind, what, "undefined", frames)


def _first_trace(block: Sequence[str]) -> list[Frame]:
    """Return the frames of the access; those of the memory's allocation follow later."""
    frames: list[Frame] = []
    for line in block:
        match = _FRAME.match(line)
        if match is not None:
            if int(match["number"]) < len(frames):
                break
            frames.append(Frame(match["function"], _BUILD.sub("", match["place"] or "")))
    return frames


def _finding(kind: str, what: str, tool: str, frames: Sequence[Frame], more: str = "") -> Finding:
    """Make a finding; the kernel is named in the frames of the access, or in what more the report has."""
    texts = [*(frame.function for frame in frames), more]
    symbols = (match for text in texts if (match := _SYMBOL.search(text)))
    kernel = next((match["symbol"] for match in symbols), "")
    own = next((frame for frame in frames if frame.place and "/libsanitizer/" not in frame.place), None)
    function = own.function.partition("(")[0] if own is not None else ""
    inside = f" in {function}" if function not in ("", "operator") else ""
    hints = (_HINTS[kind],) if kind in _HINTS else ()
    return Finding(
        kind=kind,
        kernel=kernel,
        message=f"{kernel}: {what}{inside}" if kernel else f"{what}{inside}",
        source=own.place if own is not None else "",
        device="cpu",
        tool=tool,
        hints=hints,
    )
