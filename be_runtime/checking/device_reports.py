"""Reports of compute-sanitizer as findings. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from be_runtime.findings import Finding

_MARK = "========="
_HEAD = re.compile(
    r"^(?:Error: |Warning: )?(?P<what>Invalid .*|Uninitialized .*|Race reported between .*|Barrier error.*|"
    r"Program hit .*|Potential .*hazard.*|Unused memory.*|Kernel .*deadlock.*|Address .* is .*)$"
)
_AT = re.compile(r"(?P<function>[^\s].*?)\+0x[0-9a-f]+(?: in (?P<place>\S+:\d+))?")
_OLD_AT = re.compile(r"0x[0-9a-f]+ in (?:(?P<place>[^\s:]+:\d+):)?(?P<function>\S.*)")
_THREAD = re.compile(r"^by thread (?P<thread>\([\d,]+\)) in block (?P<block>\([\d,]+\))")
_NEAR = re.compile(r"^and is (?P<distance>[\d,]+ bytes (?:before|after)) the nearest .* of size (?P<size>[\d,]+)")
_SYMBOL = re.compile(r"\bbe_(?:call|ffi|graph)_(?P<symbol>\w+)")
_ENTRY = re.compile(rb"\0be_ffi_(\w+)(?=\0)")
"""The handler of a kernel, in the table of a library's names."""

_KINDS = (
    ("misaligned", "misaligned"),
    ("Uninitialized", "uninitialised"),
    ("Race reported", "race"),
    ("write of size", "write"),
    ("read of size", "read"),
    ("Barrier", "barrier"),
    ("Program hit", "fault"),
)
"""Words of a report and the kind of finding; the first that fits counts."""


def read_device_report(text: str, tool: str) -> tuple[Finding, ...]:
    """Read the findings in a report; those of one kernel, line and kind are one with the first thread.

    Examples
    --------
    >>> text = '''========= Invalid __global__ write of size 4 bytes
    ... =========     at over(float *)+0x90 in k.cu:12
    ... =========     by thread (32,0,0) in block (0,0,0)'''
    >>> [(found.kind, found.source) for found in read_device_report(text, "memcheck")]
    [('write', 'k.cu:12')]
    """
    found: dict[tuple[str, str, str], Finding] = {}
    for block in _blocks(text.splitlines()):
        finding = _finding(block, tool)
        key = (finding.kind, finding.kernel, finding.source)
        found[key] = found[key]._replace(count=found[key].count + 1) if key in found else finding
    return tuple(found.values())


def entry_points(function: str, libraries: Iterable[bytes]) -> tuple[str, ...]:
    r"""Return the symbols of all kernels in the libraries that have a device function; a race has no backtrace.

    Examples
    --------
    >>> library = b"\0_Z4racePf\0be_ffi_k_sort\0"
    >>> entry_points("race", [library]), entry_points("other", [library])
    (('k_sort',), ())
    """
    bare = re.split(r"[<(]", function.replace("(anonymous namespace)::", ""))[0]
    name = re.split(r"::| ", bare)[-1].encode()
    has_it = re.compile(rb"\0(?:_Z\w*?(?<!\d)%d%s\w*|%s)\0" % (len(name), re.escape(name), re.escape(name)))
    found = (match[1].decode() for library in libraries if has_it.search(library) for match in _ENTRY.finditer(library))
    return tuple(dict.fromkeys(found))


def _blocks(lines: Sequence[str]) -> Iterator[list[str]]:
    """Split a report into errors, without the marks; an error ends at an empty line or at the next one."""
    block: list[str] = []
    for line in lines:
        text = line.removeprefix(_MARK).strip() if line.startswith(_MARK) else ""
        if not text or _HEAD.match(text):
            if block:
                yield block
            block = [text] if text else []
        elif block:
            block.append(text)
    if block:
        yield block


def _finding(block: Sequence[str], tool: str) -> Finding:
    head = _HEAD.match(block[0])
    assert head is not None, "a block begins with its head"
    text = "\n".join(block)
    place = next(filter(None, map(_access, block)), ("", ""))
    function = place[0].partition("(")[0].strip()
    symbol = next((match["symbol"] for line in block if (match := _SYMBOL.search(line))), "")
    kind = next((kind for words, kind in _KINDS if words in text), "fault")
    return Finding(
        kind=kind,
        kernel=symbol or function,
        message=f"{symbol or function or 'the GPU'}: {_sentence(block, head['what'], kind)}",
        count=1,
        source=place[1],
        device="gpu",
        tool=tool,
    )


def _access(line: str) -> tuple[str, str] | None:
    """Read the function and the line of an access."""
    for words in ("at ", "Write access at ", "Read access at ", "access at "):
        rest = line.partition(words)[2] if words != "at " or line.startswith("at ") else ""
        match = _AT.match(rest) or _OLD_AT.match(rest)
        if rest and match is not None:
            return match["function"], match["place"] or ""
    return None


def _sentence(block: Sequence[str], what: str, kind: str) -> str:
    """Write the error in a line."""
    if kind == "race":
        places = [found for line in block if (found := _access(line))]
        lines = " and ".join(dict.fromkeys(place or function for function, place in places))
        return f"threads race in shared memory at {lines}: a __syncthreads() is missing between the accesses"
    parts = [what.rstrip(".")]
    for line in block[1:]:
        if match := _THREAD.match(line):
            parts.append(f"by thread {match['thread']} of block {match['block']}")
        elif match := _NEAR.match(line):
            parts.append(f"{match['distance']} an allocation of {match['size']} bytes")
    return ", ".join(parts)
