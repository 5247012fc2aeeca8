"""A source by its name and text. Apart from `spec`, since a warm load reads none of it."""

from __future__ import annotations

from typing import NamedTuple


class SourceText(NamedTuple):
    """One source as the user knows it.

    Parameters
    ----------
    name : str
        What messages call it: a file's path, or the module's name for an inline source.
    text : str
        The whole text.
    """

    name: str
    text: str
