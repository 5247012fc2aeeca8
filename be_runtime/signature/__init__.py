"""Signatures of entry points, from the arg_spec and C++ sources. Pure."""

from __future__ import annotations

from be_toolchain.named import NamedTuple


class SourceText(NamedTuple):
    """One source, with the name that messages show.

    Parameters
    ----------
    name : str
        Name in messages: a file's path, or the module's name for an inline source.
    text : str
        Whole text.
    """

    name: str
    text: str
