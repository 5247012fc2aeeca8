"""The row of a compiled module in the index of a bundle. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from be_runtime.bundle.index import reading, typed
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

    @classmethod
    def read(cls, row: Mapping[str, Any], where: str) -> Self:
        """Check the row of an index.

        Raises
        ------
        LoadError
            A field is missing, unknown or of another type.
        """
        with reading(where):
            record = cls(**row)
            texts = (record.image, record.functions, record.content, record.origin, record.request)
            sources = typed(dict, record.sources)
            for text in (*texts, *sources, *sources.values()):
                typed(str, text)
            typed(bool, record.captures_graphs)
            if record.language not in ("cpp", "cuda"):
                raise ValueError(f"{record.language!r} is no language")
            return record

    def contents(self) -> dict[str, Handlers]:
        """Return the functions of the module.

        Raises
        ------
        ValueError, LookupError, TypeError, AttributeError
            The index is damaged.
        """
        found = parse_contents(self.functions)
        for value in (value for handlers in found.values() for value in handlers):
            for text in value if type(value) is tuple else (value,):
                typed(str, text)
        return found
