"""The list of a library's handlers, kept beside it so that a warm load need not read the source. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

LIBRARY, CONTENTS = "module.so", "module.json"
"""Names of the library and of its list in a cache entry."""


class Handlers(NamedTuple):
    """The symbols of one function's handlers.

    Parameters
    ----------
    plain, graph : str
        Symbols without and with the trait that lets a command buffer capture the handler.
    warning : str
        Warning to show when the module is loaded; empty for most functions.
    instantiate : str
        Symbol of the handler that makes the state; empty for a function without state.
    """

    plain: str
    graph: str
    warning: str = ""
    instantiate: str = ""


def render_contents(functions: Mapping[str, Handlers]) -> str:
    """Write the functions of a module and their symbols as JSON."""
    return json.dumps({"functions": functions})


def parse_contents(text: str | bytes) -> dict[str, Handlers]:
    """Read what `render_contents` wrote.

    Examples
    --------
    >>> parse_contents(render_contents({"f": Handlers("be_ffi_f", "be_ffi_f_graph")}))
    {'f': Handlers(plain='be_ffi_f', graph='be_ffi_f_graph', warning='', instantiate='')}
    """
    return {name: Handlers(*symbols) for name, symbols in json.loads(text)["functions"].items()}
