"""The axes of an array in an arg_spec: ``[n k]``, ``[... k]``, ``[2*n+1 3]``, ``[]``. Pure.

Axes are written as in einops and in Shardy's rules. A name stands for one extent in the whole call, a number for
itself, and ``...`` at the beginning for any number of leading axes, the same in all arrays. Any other axis is
arithmetic over names, see `be_runtime.expressions`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from be_runtime.expressions import Expression, parse_expression

Axis = str | int | Expression
Axes = tuple[Axis, ...]
"""Names, extents and expressions, optionally with ``"..."`` first."""

LEADING = "..."
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_EXTENT = re.compile(r"0|[1-9][0-9]{0,17}")
_MOST = 64
"""Limit for the axes of an array, as numpy has it."""
_WORD = re.compile(r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\S)+")
"""Text without spaces but in parentheses."""


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
    ValueError: 'n,' is not an axis: write names and extents with spaces between them, as in [n k] or [... 2*n 3]
        n,
         ^
    """
    words = _WORD.findall(text)
    if len(words) > _MOST:
        raise ValueError(f"an array has at most {_MOST} axes, not {len(words)}")
    return tuple(_parse_axis(word, index) for index, word in enumerate(words))


def _parse_axis(word: str, index: int) -> Axis:
    if word == LEADING:
        if index > 0:
            raise ValueError("'...' stands for leading axes, so it comes first")
        return word
    if _NAME.fullmatch(word):
        return word
    if _EXTENT.fullmatch(word):
        return int(word)
    try:
        expression = parse_expression(word)
    except ValueError as error:
        _, *caret = str(error).splitlines()
        raise _no_axis(word, caret) from None
    if not expression.names:
        raise _no_axis(word)
    return expression


def _no_axis(word: str, caret: Sequence[str] = ()) -> ValueError:
    advice = "write names and extents with spaces between them, as in [n k] or [... 2*n 3]"
    return ValueError("\n".join((f"{word!r} is not an axis: {advice}", *caret)))


def render_axes(axes: Axes) -> str:
    """Write the text that `parse_axes` reads.

    Examples
    --------
    >>> render_axes(("...", "n", 3))
    '... n 3'
    """
    return " ".join(map(str, axes))


def axis_names(every: Iterable[Axes | None]) -> tuple[str, ...]:
    """List the names that are axes of several arrays, without ``"..."``, in the order of their first use.

    Examples
    --------
    >>> axis_names([("...", "n", "k"), None, ("k", 3, "m")])
    ('n', 'k', 'm')
    """
    words = (axis for axes in every if axes is not None for axis in axes)
    return tuple(dict.fromkeys(axis for axis in words if isinstance(axis, str) and axis != LEADING))


def expressions(axes: Axes | None) -> tuple[Expression, ...]:
    """Return the expressions among the axes of one array."""
    return tuple(axis for axis in axes or () if isinstance(axis, Expression))
