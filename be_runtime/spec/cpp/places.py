"""Places in several sources as one number, and their conversion to a file, a line and a column.

Every token has one integer, even after a macro of one source was expanded in another, so values need no reference to
their source.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from be_runtime.errors import SourceSpan
from be_runtime.source_text import SourceText


class Places(NamedTuple):
    """The sources, concatenated.

    Parameters
    ----------
    sources : tuple of SourceText
        Sources in the order of the offsets.
    bases : tuple of int
        Offset of each source's first character.
    """

    sources: tuple[SourceText, ...]
    bases: tuple[int, ...]

    @classmethod
    def of(cls, sources: Sequence[SourceText]) -> Places:
        """Concatenate `sources`, one character apart so that the end of one is not the start of the next."""
        bases = [0]
        for source in sources:
            bases.append(bases[-1] + len(source.text) + 1)
        return cls(tuple(sources), tuple(bases[:-1]))

    def source_index(self, offset: int) -> int:
        """Return the index of the source that contains `offset`."""
        return bisect_right(self.bases, offset) - 1

    def source(self, offset: int) -> SourceText:
        """Return the source that contains `offset`."""
        return self.sources[self.source_index(offset)]

    def line(self, offset: int) -> int:
        """Return the one-based line of `offset` in its source."""
        index = self.source_index(offset)
        return bisect_left(_line_ends(self.sources[index].text), offset - self.bases[index]) + 1

    def text(self, offset: int, length: int) -> str:
        """Return `length` characters of the source at `offset`."""
        index = self.source_index(offset)
        local = offset - self.bases[index]
        return self.sources[index].text[local : local + length]

    def span(self, offset: int, length: int = 1) -> SourceSpan:
        r"""Return the place of `length` characters at `offset`, cut at the end of the line.

        Examples
        --------
        >>> places = Places.of([SourceText(name="a.cu", text="int x;\nvoid f();\n")])
        >>> print(places.span(12, 1).render())
        a.cu:2:6
            void f();
                 ^
        """
        index = self.source_index(offset)
        source, local = self.sources[index], offset - self.bases[index]
        start = source.text.rfind("\n", 0, local) + 1
        end = source.text.find("\n", local)
        line_text = source.text[start : end if end >= 0 else len(source.text)].rstrip("\r")
        column = local - start + 1
        return SourceSpan(
            file=source.name,
            line=self.line(offset),
            column=column,
            length=max(1, min(length, len(line_text) - column + 1)),
            text=line_text,
        )

    def describe(self, offset: int) -> str:
        """Format `offset` as ``file:line:column``, for the second place in a message."""
        span = self.span(offset)
        return f"{span.file}:{span.line}:{span.column}"


@lru_cache(maxsize=8)
def _line_ends(text: str) -> list[int]:
    """Return the end of each line of `text`."""
    return [match.start() for match in re.finditer("\n", text)]
