"""All that discovery asks of the sources: their annotations, and the functions of a given name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from .declarations import DeclarationReader, Header, Unit
from .functions import Function, parse_function
from .lexer import Kind, Token, closing, significant
from .macros import Macros, parse_define, undefined_name
from .model import SourceText
from .outline import Branch, Outline, outline
from .places import Places

_CALLED = re.compile(r"\b([^\W\d]\w*+)\s*+\(")
_NOTE = re.compile(r"//[/!]*[ \t]*@BE(?=\s|\Z)")
_CONTINUED = re.compile(r"\\[ \t]*\r?\n")
_NOT_SPACE = re.compile(r"\S+")
_USING_BE = re.compile(r"\busing\s+(?:namespace\s+(?:::\s*)?BE\b(?!\s*::)|(?:::\s*)?BE\s*::\s*Tensor\b)")
_IN_BE = re.compile(r"\bnamespace\s+BE\s*\{")


@dataclass(frozen=True, slots=True)
class Annotation:
    """One ``// @BE name tokens...``.

    Parameters
    ----------
    words : tuple of str
        The name, then the tokens.
    starts : tuple of int
        Where each word is written.
    start, end : int
        The comment.
    branch : Branch
        The conditional branches around it.
    """

    words: tuple[str, ...]
    starts: tuple[int, ...]
    start: int
    end: int
    branch: Branch


class Program:
    """The sources of one module, read once.

    Parameters
    ----------
    sources : sequence of SourceText
        Macros of earlier sources are known in later ones.

    Examples
    --------
    >>> program = Program([SourceText(name="a.cu", text="namespace n { void f(int i) {} }")])
    >>> [function.call_name for function in program.functions("f")]
    ['::n::f']
    """

    def __init__(self, sources: Sequence[SourceText]) -> None:
        self.places = Places.of(sources)
        self.outlines: tuple[Outline, ...] = tuple(outline(source.text) for source in sources)
        self.using_be = any(_USING_BE.search(view.code) or _IN_BE.search(view.code) for view in self.outlines)
        self.macros = Macros()
        self._headers: dict[str, list[Header]] | None = None

    def annotations(self) -> tuple[Annotation, ...]:
        """Every annotation, in order."""
        return tuple(
            _annotation(note.text, base + note.start, match.end(), note.branch)
            for base, view in zip(self.places.bases, self.outlines, strict=True)
            for note in view.notes
            if (match := _NOTE.match(note.text))
        )

    def headers(self) -> dict[str, list[Header]]:
        """Every declaration by each word in it that is followed by a parenthesis."""
        if self._headers is None:
            self._headers = {}
            for base, view in zip(self.places.bases, self.outlines, strict=True):
                for header in self._read(base, view):
                    for name in _CALLED.findall(header.unit.text, header.start, header.end):
                        self._headers.setdefault(name, []).append(header)
        return self._headers

    def functions(self, name: str) -> tuple[Function, ...]:
        """Every declaration of a function called `name`, in order."""
        unique = dict.fromkeys(self.headers().get(name, ()))
        parsed = (parse_function(header, name, using_be=self.using_be) for header in unique)
        return tuple(function for function in parsed if function is not None)

    def function_names(self) -> list[str]:
        """The names of all functions, for a message that suggests one."""
        return [name for name in self.headers() if self.functions(name)]

    def unknown_call_at(self, offset: int) -> Token | None:
        """The name of an undefined macro whose call is the next code behind `offset`."""
        index = self.places.source_index(offset)
        base = self.places.bases[index]
        code = self.outlines[index].code
        following = _NOT_SPACE.search(code, offset - base)
        match = _CALLED.match(code, following.start()) if following else None
        if match is None or match[1] in self.macros.names:
            return None
        return Token(Kind.WORD, match[1], base + match.start())

    def unknown_call_for(self, name: str) -> Token | None:
        """The name of an undefined macro whose call has a part of `name` among its arguments."""
        for header in {id(header): header for found in self.headers().values() for header in found}.values():
            tokens = header.tokens()
            if len(tokens) > 1 and tokens[0].kind is Kind.WORD and tokens[1].text == "(":
                arguments = tokens[2 : closing(tokens, 1)]
                if any(token.kind is Kind.WORD and token.text in name for token in arguments):
                    return tokens[0]
        return None

    def is_mentioned(self, name: str) -> bool:
        """Whether `name` occurs anywhere, be it in a comment, a string or disabled code."""
        word = re.compile(rf"\b{re.escape(name)}\s*\(")
        return any(word.search(source.text) for source in self.places.sources)

    def _read(self, base: int, view: Outline) -> list[Header]:
        """The headers of one source; each macro is known from its definition on."""
        pending = list(reversed(view.directives))

        def expand(header: str, offset: int) -> Unit | None:
            parts: list[list[Token] | None] = []
            cuts = [offset]
            end = offset + len(header)
            while pending and base + pending[-1].start < end:
                directive = pending.pop()
                at = base + directive.start
                if at > cuts[-1]:  # A header may hold calls before and after a redefinition.
                    cuts.append(at)
                    parts.append(self.macros.expand(header[cuts[-2] - offset : at - offset], cuts[-2]))
                self.macros.define(parse_define(directive.text, at))
                self.macros.undefine(undefined_name(directive.text))
            cuts.append(end)
            parts.append(self.macros.expand(header[cuts[-2] - offset :], cuts[-2]))
            if all(part is None for part in parts):
                return None
            texts = (header[low - offset : high - offset] for low, high in pairwise(cuts))
            return Unit.of_tokens(
                [
                    token
                    for part, text, low in zip(parts, texts, cuts, strict=False)
                    for token in (significant(text, offset=low, directives=False) if part is None else part)
                ]
            )

        reader = DeclarationReader(expand)
        reader.read(Unit(view.code, base))
        return reader.found


def _annotation(text: str, start: int, end_of_marker: int, branch: Branch) -> Annotation:
    """The words of an annotation's comment."""
    flat = _CONTINUED.sub(lambda match: " " * len(match[0]), text)
    matches = list(_NOT_SPACE.finditer(flat, end_of_marker))
    return Annotation(
        words=tuple(match[0] for match in matches),
        starts=tuple(start + match.start() for match in matches),
        start=start,
        end=start + len(text),
        branch=branch,
    )
