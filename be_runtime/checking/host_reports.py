"""Reports of AddressSanitizer and UndefinedBehaviorSanitizer, as findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from be_runtime.findings import Finding

_ADDRESS = re.compile(r"^==\d+==ERROR: AddressSanitizer: (?P<kind>[\w-]+)(?P<rest>.*)$")
_UNDEFINED = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: runtime error: (?P<what>.*)$")
_FRAME = re.compile(r"^\s+#(?P<number>\d+) 0x[0-9a-f]+ in (?P<function>.+?)(?: (?P<place>\S+:\d+)(?::\d+)?| \(\S+\))$")
_ACCESS = re.compile(r"^(?P<what>READ|WRITE) of size (?P<size>\d+)")
_REGION = re.compile(r"^0x[0-9a-f]+ is located (?P<where>\d+ bytes .+ of (?P<size>\d+)-byte region) ")
_BEYOND = re.compile(r"(?P<bytes>\d+) bytes (?:to the right|after)")
_SYMBOL = re.compile(r"\bbe_(?:call|entry|ffi|graph)_(?P<symbol>\w+)")
_BUILD = re.compile(r"^.*/staging/[^/]+/build/")
"""The folder in which a module was compiled."""

_HINTS = {
    "stack-overflow": "recursion has no end, or a local array is large: allocate it, or raise `ulimit -s`",
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


def _finding(kind: str, what: str, tool: str, frames: Sequence[Frame]) -> Finding:
    symbols = (match for frame in frames if (match := _SYMBOL.search(frame.function)))
    kernel = next((match["symbol"] for match in symbols), "")
    own = next((frame for frame in frames if frame.place and "/libsanitizer/" not in frame.place), None)
    inside = f" in {own.function.partition('(')[0]}" if own is not None and own.function else ""
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
