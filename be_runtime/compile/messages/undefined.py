"""Symbols that the linker misses, in the author's terms, from the output of GNU ld, gold, lld and mold."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

_GNU = re.compile(r"undefined reference to [`'](?P<symbol>.*)'")
_LLVM = re.compile(r"undefined symbol: (?P<symbol>.*)$")
_GOLD_PLACE = re.compile(r"(?P<object>\S+)\.o:[^:]*:function (?P<function>.*): error: undefined")
_LD_PLACE = re.compile(r"(?P<object>\S+)\.o: in function `(?P<function>.*)':$")
_LLVM_PLACE = re.compile(r"^>>>\s+(?P<object>\S+)\.o:\((?:function )?(?P<function>.*)\)")
_ENTRY = re.compile(r"\bbe_(?:entry|call)_(\w+)")
_STEM = re.compile(r"(?:\.\w+|\[\d+\])$")
_MOST = 5
_MOST_REFERRERS = 20


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
    shown = [_describe(each, sources) for each in list(first.values())[:_MOST]]
    return (*shown, *([f"and {len(first) - _MOST} more"] if len(first) > _MOST else []))


def _missing(lines: Sequence[str]) -> Iterator[_Missing]:
    """Find the missing symbols and their users: ld names the function before, gold beside and lld after the symbol."""
    function = target = ""
    for index, line in enumerate(lines):
        place = _LD_PLACE.search(line) or _GOLD_PLACE.search(line)
        if place is not None:
            function, target = place["function"], place["object"]
        found = _GNU.search(line) or _LLVM.search(line)
        if found is None:
            continue
        after = next(filter(None, map(_LLVM_PLACE.match, _referrers(lines, index))), None)
        if after is not None:
            yield _Missing(found["symbol"], after["function"], after["object"])
        else:
            yield _Missing(found["symbol"], function, target)


def _referrers(lines: Sequence[str], index: int) -> Iterator[str]:
    """Return the lines that lld writes below a symbol."""
    yield from takewhile(lambda line: line.startswith(">>>"), islice(lines, index + 1, index + 1 + _MOST_REFERRERS))


def _describe(missing: _Missing, sources: Mapping[str, str]) -> str:
    stem = missing.object.rpartition("/")[2]
    entry = _ENTRY.search(missing.function)
    user = missing.function.partition(" [clone ")[0]
    if entry is not None:
        user = "the entry point " + entry[1].removeprefix(f"{stem}_")
    elif "BE::detail" in user:
        user = ""
    source = sources.get(stem, "")
    used = f", used by {user}" if user else ""
    return f"undefined reference to '{missing.symbol}'{used}" + (f" in {source}" if source else "")
