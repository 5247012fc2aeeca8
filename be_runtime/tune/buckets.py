"""Buckets of array sizes: extents are rounded up to powers of two, so that near sizes share a choice. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

_ARRAY = re.compile(r"(\w+)\[((?:[0-9]{1,20}(?:,[0-9]{1,20})*)?)\]")

Shapes = Sequence[tuple[str, Sequence[int]]]
"""The dtype and the shape of each array."""


def bucket_of(arrays: Shapes) -> str:
    """Name the bucket of some arrays.

    Examples
    --------
    >>> bucket_of([("float32", (1000, 64)), ("int32", ())])
    'float32[1024,64] int32[]'
    """
    return " ".join(f"{dtype}[{','.join(str(_round_up(extent)) for extent in shape)}]" for dtype, shape in arrays)


def nearest(bucket: str, known: Iterable[str]) -> str | None:
    """Return the bucket of the same types and numbers of axes whose sizes are nearest, by their ratio; None if none is.

    Examples
    --------
    >>> nearest("float32[1024]", ["float32[64]", "float32[4096]", "int32[1024]"])
    'float32[4096]'
    """
    ranked = ((distance, name) for name in known if (distance := _distance(bucket, name)) is not None)
    return min(ranked, default=(0.0, None))[1]


def _distance(first: str, second: str) -> float | None:
    if first == second:
        return 0.0
    here, there = (_ARRAY.findall(each) for each in (first, second))
    if [dtype for dtype, _ in here] != [dtype for dtype, _ in there] or not here:
        return None
    sizes = [[list(map(int, filter(None, extents.split(",")))) for _, extents in each] for each in (here, there)]
    if [len(shape) for shape in sizes[0]] != [len(shape) for shape in sizes[1]]:
        return None
    pairs = ((a, b) for one, other in zip(*sizes, strict=True) for a, b in zip(one, other, strict=True))
    return sum(abs(math.log2(max(a, 1) / max(b, 1))) for a, b in pairs)


def _round_up(extent: int) -> int:
    return 0 if extent == 0 else 1 << (extent - 1).bit_length()
