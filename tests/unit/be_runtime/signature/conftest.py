"""Short ways to run discovery on one text, and tables of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from be_runtime.signature import SourceText, discovery, grammar, model

Functions = Mapping[str, Sequence[str]] | Sequence[str] | None


def each(table: Mapping[str, str]) -> list[tuple[str, str]]:
    """The rows of a table that has, for each thing expected, the texts that it is expected of between bars."""
    return [(text, expected) for expected, texts in table.items() for text in texts.split(" | ")]


def found(text: str, functions: Functions = None) -> tuple[model.EntryPoint, ...]:
    """Discovery on one source called ``k.cu``."""
    return discovery.discover([SourceText(name="k.cu", text=text)], functions)


def tokens_of(text: str, functions: Functions = None) -> str:
    """The rendered arg_spec of the one entry point."""
    (entry,) = found(text, functions)
    return " ".join(grammar.render_spec(entry.params))


def inferred(params: str, before: str = "") -> str:
    """The tokens inferred for a function with these C++ parameters."""
    return tokens_of(f"{before}\nvoid f({params}) {{}}", ["f"])
