"""The row of a compiled module in the index of a bundle. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from be_runtime.generate.contents import Handlers, parse_contents
from be_runtime.request.options import Language


class ModuleRecord(NamedTuple):
    """The row of a compiled module in an index.

    Parameters
    ----------
    language : {"cpp", "cuda"}
    image : str
        Hash of its library.
    functions : str
        See `be_runtime.generate.contents.render_contents`.
    sources : dict of str to str
        Files of the package that it was made from, and the hash of each.
    captures_graphs : bool
    content, origin : str
        See `be_runtime.load.module.Made`; empty for those of the library's bytes.
    request : str
        Key of the request, as JSON, where the module is found by it.
    """

    language: Language
    image: str
    functions: str
    sources: Mapping[str, str]
    captures_graphs: bool = True
    content: str = ""
    origin: str = ""
    request: str = ""

    def contents(self) -> dict[str, Handlers]:
        """Return the functions of the module."""
        return parse_contents(self.functions)
