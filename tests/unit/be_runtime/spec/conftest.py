"""Short ways to run discovery on one text, and tables of texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from be_runtime.source_text import SourceText
from be_runtime.spec.discovery import discover
from be_runtime.spec.grammar import render_spec
from be_runtime.spec.model import EntryPoint

Functions = Mapping[str, Sequence[str]] | Sequence[str] | None


def each(table: Mapping[str, str]) -> list[tuple[str, str]]:
    """The rows of a table that has, for each thing expected, the texts that it is expected of between bars."""
    return [(text, expected) for expected, texts in table.items() for text in texts.split(" | ")]


class Spec:
    """Discovery on one source called ``k.cu``."""

    def all(self, text: str, functions: Functions = None) -> tuple[EntryPoint, ...]:
        return discover([SourceText(name="k.cu", text=text)], functions)

    def one(self, text: str, functions: Functions = None) -> EntryPoint:
        (entry,) = self.all(text, functions)
        return entry

    def tokens(self, text: str, functions: Functions = None) -> str:
        """The rendered arg_spec of the one entry point."""
        return " ".join(render_spec(self.one(text, functions).params))

    def params(self, params: str, before: str = "") -> str:
        """The tokens inferred for a function with these C++ parameters."""
        return self.tokens(f"{before}\nvoid f({params}) {{}}", ["f"])


@pytest.fixture
def spec() -> Spec:
    return Spec()
