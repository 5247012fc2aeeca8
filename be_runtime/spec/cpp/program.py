"""The sources of a module, as discovery reads them: their annotations, and the functions of a given name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.source_text import SourceText
from be_runtime.spec.cpp.cpp_params import Shape
from be_runtime.spec.cpp.declarations import CppCode, DeclarationReader, Header, MacroCall, skip_body
from be_runtime.spec.cpp.doc_comments import doc_above
from be_runtime.spec.cpp.functions import Declarators, Function, find_declarators, parse_function
from be_runtime.spec.cpp.lexer import Kind, Token, closing
from be_runtime.spec.cpp.macros import Macros, parse_define, undefined_name
from be_runtime.spec.cpp.outline import Branch, Outline, outline
from be_runtime.spec.cpp.places import Places
from be_runtime.spec.cpp.types import CppTypes
from be_runtime.spec.cpp.words import split_words

_CALLED = re.compile(r"\b([^\W\d]\w*+)\s*+\(")
_NOTE = re.compile(r"//[/!]*[ \t]*@BE(?=\s|\Z)")
_CONTINUED = r"\\[ \t]*\r?\n"
# Both patterns begin with a literal, which the engine finds fast.
_USING_BE = re.compile(r"using\s+(?:namespace\s+(?:::\s*)?BE\b(?!\s*::)|(?:::\s*)?BE\s*::\s*(?:Tensors?|Span|DType)\b)")
_IN_BE = re.compile(r"namespace\s+BE\s*\{")

_TO_BODY = re.compile(r"[^{;]*\{")


class Annotation(NamedTuple):
    """One ``// @BE name tokens...``.

    Parameters
    ----------
    words : tuple of str
        The name, then the tokens.
    starts : tuple of int
        Place of each word.
    start, end : int
        Extent of the comment.
    branch : Branch or None
        Conditional branches around it.
    """

    words: tuple[str, ...]
    starts: tuple[int, ...]
    start: int
    end: int
    branch: Branch | None


class Program:
    """The sources of one module, read once.

    Parameters
    ----------
    sources : sequence of SourceText
        Sources; macros of earlier ones are known in later ones.

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
        self._declarators: dict[int, Declarators] = {}
        self._functions: dict[str, tuple[Function, ...]] = {}
        self._types: CppTypes | None = None

    def annotations(self) -> tuple[Annotation, ...]:
        """Return every annotation, in order."""
        return tuple(
            _annotation(note.text, base + note.start, match.end(), note.branch)
            for base, view in zip(self.places.bases, self.outlines, strict=True)
            for note in view.notes
            if (match := _NOTE.match(note.text))
        )

    def headers(self) -> dict[str, list[Header]]:
        """Map each word to the declarations that contain it."""
        if self._headers is None:
            self._headers = {}
            for base, view in zip(self.places.bases, self.outlines, strict=True):
                for header in self._read(base, view):
                    for word in header.words:
                        self._headers.setdefault(word, []).append(header)
        return self._headers

    def functions(self, name: str) -> tuple[Function, ...]:
        """Return every declaration of a function called `name`, in order."""
        if name not in self._functions:
            headers = self.headers().get(name, ())
            parsed = (self._function(header, name) for header in headers)
            self._functions[name] = tuple(function for function in parsed if function is not None)
        return self._functions[name]

    def _function(self, header: Header, name: str) -> Function | None:
        found = self._declarators.get(id(header))
        if found is None:
            found = self._declarators[id(header)] = find_declarators(header)
        return parse_function(header, name, using_be=self.using_be, found=found)

    def typed(self, function: Function) -> Function:
        """Return a function with what the sources say of its parameters' types."""
        if all(param.shape is not Shape.UNKNOWN for param in function.params):
            return function
        if self._types is None:
            texts = [source.text for source in self.places.sources]
            codes = [view.code for view in self.outlines]
            sources = list(zip(self.places.bases, texts, codes, strict=True))
            self._types = CppTypes(sources, self.macros.names, using_be=self.using_be)
        return function._replace(params=tuple(self._types.resolve(param) for param in function.params))

    def function_names(self) -> list[str]:
        """List the names of all functions, for suggestions in a message."""
        return [name for name in self.headers() if self.functions(name)]

    def unknown_call_at(self, offset: int) -> Token | None:
        """Return the name of an undefined macro whose call is the next code after `offset`."""
        index = self.places.source_index(offset)
        base = self.places.bases[index]
        code = self.outlines[index].code
        match = _CALLED.match(code, _past_blanks(code, offset - base))
        if match is None or match[1] in self.macros.names:
            return None
        return Token(Kind.WORD, match[1], base + match.start())

    def unknown_call_for(self, name: str) -> Token | None:
        """Return the name of an undefined macro whose call has a part of `name` among its arguments."""
        for header in {id(header): header for found in self.headers().values() for header in found}.values():
            tokens = header.tokens()
            if len(tokens) > 1 and tokens[0].kind is Kind.WORD and tokens[1].text == "(":
                arguments = tokens[2 : closing(tokens, 1)]
                if any(token.kind is Kind.WORD and token.text in name for token in arguments):
                    return tokens[0]
        return None

    def is_mentioned(self, name: str) -> bool:
        """Return whether `name` occurs anywhere, even in a comment, a string or disabled code."""
        word = re.compile(rf"\b{re.escape(name)}\s*\(")
        return any(word.search(source.text) for source in self.places.sources)

    def is_in_macro(self, name: str) -> bool:
        """Return whether the definition of any macro has `name` as a word."""
        word = re.compile(rf"\b{re.escape(name)}\b")
        return any(word.search(text) for view in self.outlines for _, text in view.directives)

    def body(self, function: Function) -> str:
        """Return the code of a function's body; empty if it has none here, or if a macro generates it."""
        if not function.has_body or function.start != function.line_start:
            return ""
        index = self.places.source_index(function.start)
        code = self.outlines[index].code
        match = _TO_BODY.match(code, function.start - self.places.bases[index])
        return code[match.end() : skip_body(code, match.end()) - 1] if match else ""

    def doc_above(self, offset: int) -> str:
        """Return the documentation above the line of `offset`, else above the declaration that it belongs to."""
        index = self.places.source_index(offset)
        text, code = self.places.sources[index].text, self.outlines[index].code
        local = offset - self.places.bases[index]
        first = _past_blanks(code, max(code.rfind(mark, 0, local) for mark in ";{})") + 1)
        return doc_above(text, local) or (doc_above(text, first) if first < len(code) else "")

    def _read(self, base: int, view: Outline) -> list[Header]:
        """Read the headers of one source; each macro is known from its definition on."""
        pending = [
            (base + start, parse_define(text, base + start), undefined_name(text))
            for start, text in reversed(view.directives)
        ]
        names = self.macros.names.union([macro.name for _, macro, _ in pending if macro is not None])

        def define_next() -> None:
            _, macro, undefined = pending.pop()
            self.macros.define(macro)
            self.macros.undefine(undefined)

        def expand(header: str, offset: int, words: frozenset[str]) -> CppCode | None:
            has_macros = not names.isdisjoint(words)
            tokens: list[Token] = []
            calls: list[MacroCall] = []
            start, end = offset, offset + len(header)
            while pending and pending[-1][0] < end:
                at = pending[-1][0]
                if has_macros and at > start:  # A header may hold calls before and after a redefinition.
                    self.macros.expand(header[start - offset : at - offset], start, tokens, calls)
                    start = at
                define_next()
            if not has_macros:
                return None
            self.macros.expand(header[start - offset :], start, tokens, calls)
            return CppCode.of_tokens(tokens, calls)

        reader = DeclarationReader(expand)
        reader.read(CppCode(view.code, base))
        while pending:
            define_next()
        return reader.found


def _past_blanks(code: str, start: int) -> int:
    """Return the first place from `start` on that is not blank; a page of comments is a long blank."""
    return len(code) - len(code[start:].lstrip())


def _annotation(text: str, start: int, end_of_marker: int, branch: Branch | None) -> Annotation:
    """Parse the words of an annotation's comment."""
    flat = re.sub(_CONTINUED, lambda match: " " * len(match[0]), text)
    words = list(split_words(flat, end_of_marker))
    return Annotation(
        words=tuple(word for _, word in words),
        starts=tuple(start + place for place, _ in words),
        start=start,
        end=start + len(text),
        branch=branch,
    )
