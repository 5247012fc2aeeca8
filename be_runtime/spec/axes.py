"""The axes of an array in an arg_spec: ``[n k]``, ``[... k]``, ``[n 3]``, ``[]``. Pure.

Axes are written as in einops and in Shardy's rules. A name stands for one extent in the whole call, a number for
itself, and ``...`` at the beginning for any number of leading axes, the same in all arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

Axes = tuple[str | int, ...]
"""Names and extents, optionally with ``"..."`` first."""

LEADING = "..."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXTENT = re.compile(r"0|[1-9][0-9]{0,17}")


def parse_axes(text: str) -> Axes:
    """Read the text between the brackets.

    Raises
    ------
    ValueError
        A word is not an axis; the message names it.

    Examples
    --------
    >>> parse_axes("... n 3"), parse_axes("")
    (('...', 'n', 3), ())
    >>> parse_axes("n, k")
    Traceback (most recent call last):
    ValueError: 'n,' is not an axis: write names and extents with spaces between them, as in [n k] or [... n 3]
    """
    words = text.split()
    for index, word in enumerate(words):
        if word == LEADING and index > 0:
            raise ValueError("'...' stands for leading axes, so it comes first")
        if word != LEADING and not _NAME.fullmatch(word) and not _EXTENT.fullmatch(word):
            advice = "write names and extents with spaces between them, as in [n k] or [... n 3]"
            raise ValueError(f"{word!r} is not an axis: {advice}")
    return tuple(int(word) if word.isdigit() else word for word in words)


def render_axes(axes: Axes) -> str:
    """Write the text that `parse_axes` reads.

    Examples
    --------
    >>> render_axes(("...", "n", 3))
    '... n 3'
    """
    return " ".join(map(str, axes))


def axis_names(every: Iterable[Axes | None]) -> tuple[str, ...]:
    """List the names in the axes of several arrays, without ``"..."``, in the order of their first use.

    Examples
    --------
    >>> axis_names([("...", "n", "k"), None, ("k", 3, "m")])
    ('n', 'k', 'm')
    """
    words = (axis for axes in every if axes is not None for axis in axes)
    return tuple(dict.fromkeys(axis for axis in words if isinstance(axis, str) and axis != LEADING))
