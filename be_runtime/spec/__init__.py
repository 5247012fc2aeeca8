"""Entry points of a kernel's source. Pure.

Discovery is imported on its first use: a warm load needs only the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from be_runtime.source_text import SourceText
from be_runtime.spec.model import EntryPoint, Param, Role

if TYPE_CHECKING:
    from be_runtime.spec.discovery import discover
    from be_runtime.spec.grammar import parse_spec, render_spec

__all__ = ["EntryPoint", "Param", "Role", "SourceText", "discover", "parse_spec", "render_spec"]

_HOMES = {"discover": "discovery", "parse_spec": "grammar", "render_spec": "grammar"}


def __getattr__(name: str) -> object:
    """Import a function from its module on first use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
