"""What the entry points of a kernel's source are; pure, and fast enough to run on every load."""

from __future__ import annotations

from .discover import discover
from .grammar import parse_spec, render_spec
from .model import EntryPoint, Param, Role, SourceText

__all__ = ["EntryPoint", "Param", "Role", "SourceText", "discover", "parse_spec", "render_spec"]
