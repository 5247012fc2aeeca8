"""The list of a library's functions and handlers, stored beside it so that a warm load reads no source. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

LIBRARY, CONTENTS = "module.so", "module.json"
"""Names of the library and its list in a cache entry."""


class Handlers(NamedTuple):
    """One function of a module: the symbols of its handlers, and its call signature.

    Parameters
    ----------
    plain, graph : str
        Symbols of the handlers without and with the trait that lets a command buffer capture them.
    warning : str
        Warning to show when the module is loaded; empty for most functions.
    call_name : str
        Qualified C++ name of the function.
    spec : tuple of str
        Tokens of its arg_spec, with all types.
    names : tuple of str
        C++ name of the parameter for each token; empty if the names are unknown.
    doc : str
        The author's description.
    instantiate : str
        Symbol of the handler that makes the state; empty for a function without state.
    """

    plain: str
    graph: str
    warning: str = ""
    call_name: str = ""
    spec: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    doc: str = ""
    instantiate: str = ""

    def stages(self, *, captures_graphs: bool) -> dict[str, str]:
        """Return the symbol of the handler for each stage.

        Examples
        --------
        >>> Handlers("be_ffi_f", "be_graph_f").stages(captures_graphs=True)
        {'execute': 'be_graph_f'}
        """
        execute = {"execute": self.graph if captures_graphs else self.plain}
        return {"instantiate": self.instantiate, **execute} if self.instantiate else execute


def render_contents(functions: Mapping[str, Handlers]) -> str:
    """Write the functions of a module and their symbols as JSON."""
    return json.dumps({"functions": functions})


def parse_contents(text: str | bytes) -> dict[str, Handlers]:
    """Read what `render_contents` wrote.

    Examples
    --------
    >>> parse_contents(render_contents({"f": Handlers("be_ffi_f", "be_graph_f", spec=("arg", "ret"))}))["f"].spec
    ('arg', 'ret')
    """
    rows: dict[str, list[Any]] = json.loads(text)["functions"]
    return {
        name: Handlers._make(tuple(each) if isinstance(each, list) else each for each in row)
        for name, row in rows.items()
    }
