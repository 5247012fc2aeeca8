"""Notes of the kernels that a function asks for, for a caller that wants to know what the function is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_NOTES: ContextVar[list[str] | None] = ContextVar("notes of kernels", default=None)


@contextlib.contextmanager
def noting() -> Iterator[list[str]]:
    """Collect the notes of this thread in a list, until the context ends.

    Examples
    --------
    >>> with noting() as notes:
    ...     note("a kernel")
    >>> notes
    ['a kernel']
    """
    notes: list[str] = []
    token = _NOTES.set(notes)
    try:
        yield notes
    finally:
        _NOTES.reset(token)


def note(text: str) -> None:
    """Note a kernel, where somebody collects notes."""
    notes = _NOTES.get()
    if notes is not None:
        notes.append(text)
