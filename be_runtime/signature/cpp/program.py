"""The sources of one module, read once: annotations, functions by name, types and documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice

from be_runtime.errors import SpecError
from be_runtime.signature import SourceText
from be_runtime.signature.cpp.functions import (
    Declarators,
    Function,
    find_declarators,
    parse_function,
)
from be_runtime.signature.cpp.lexer import Kind, Places, Token, closing, split_words
from be_runtime.signature.cpp.macros import LIMIT, Macro, Macros, parse_define
from be_runtime.signature.cpp.outline import (
    ANNOTATION,
    Branch,
    CppCode,
    DeclarationReader,
    Header,
    MacroCall,
    Note,
    Outline,
    doc_above,
    outline,
    skip_body,
)
from be_runtime.signature.cpp.params import CppTypes, Shape
from be_toolchain.named import NamedTuple

_CALLED = re.compile(r"\b([^\W\d]\w*+)\s*+\(")
# Both patterns begin with a literal, which the engine finds fast.
_USING_BE = re.compile(r"using\s+(?:namespace\s+(?:::\s*)?BE\b(?!\s*::)|(?:::\s*)?BE\s*::\s*(?:Tensors?|Span|DType)\b)")
_IN_BE = re.compile(r"namespace\s+BE\s*\{")

_CONTINUED = re.compile(r"(?:\\[ \t]*\r?)?\n(?:[ \t]*//[/!]*)?")
_NEXT_COMMENT = re.compile(rf"\n[ \t]*(?!{ANNOTATION.pattern})//[^\n\\]*(?:\\(?:[ \t]*\r?\n)?[^\n\\]*)*")
_MOST_LINES = 100
"""Limit for the comments of one annotation."""
_TO_BODY = re.compile(r"[^{;]*\{")
_OF_STREAMS = ("<<<", "cudaLaunch", "cudaMem", "cub::", "thrust::")
"""Texts, one of which every source with work on CUDA's default stream has."""
_ENDS = ("exit(", "abort(")
"""Texts, one of which every source that ends the process has."""
LARGEST = 1 << 19
"""Limit for the characters of the sources that are read together."""
MOST_OF_A_NAME = 256
"""Limit for the declarations of one name; one more is read."""
MOST_OF_A_WORD = 20_000
"""Limit for the declarations that mention a name; further declarations are not read."""
_MOST_OF_A_CALL = 10
"""Limit for the functions that a name may call."""
_ON_DEVICE = frozenset(("__global__", "__device__"))
_MOST_NAMES = 1000
_MOST_WORK = 2000
"""Limits for the names and macro arguments that messages need, and for the calls that are searched for stream work."""


class Annotation(NamedTuple):
    """One ``// @BE name tokens...``.

    Parameters
    ----------
    words : tuple of str
        The name, then the tokens.
    starts : tuple of int
        Place of each word.
    start, end : int
        Extent of the comment, with the comments that continue it.
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
        Sources; the macros of a source are known in the sources after it.
    included : sequence of SourceText
        Files that the sources include. Only host code that entry points use is looked up there.

    Examples
    --------
    >>> program = Program([SourceText(name="a.cu", text="namespace n { void f(int i) {} }")])
    >>> [function.call_name for function in program.functions("f")]
    ['::n::f']
    """

    def __init__(self, sources: Sequence[SourceText], included: Sequence[SourceText] = ()) -> None:
        check_size(sources)
        self._included = included
        self.places = Places.of(sources)
        self.outlines: tuple[Outline, ...] = tuple(outline(source.text) for source in sources)
        self.using_be = any(_USING_BE.search(view.code) or _IN_BE.search(view.code) for view in self.outlines)
        self.macros = Macros()
        self._declarators: dict[int, Declarators] = {}
        self._functions: dict[str, tuple[Function, ...]] = {}
        self._docs: dict[tuple[int, int], str] = {}
        self._host_code: dict[int, tuple[int, str, tuple[tuple[Program, Function | Macro], ...]]] = {}
        self._blank = (0, 0, 0)

    def annotations(self) -> Iterator[Annotation]:
        """Parse every annotation, in order."""
        for base, source, view in zip(self.places.bases, self.places.sources, self.outlines, strict=True):
            for note in view.notes:
                end = _end_of_annotation(source.text, note)
                # An annotation continues after a backslash, and in the next comment if a bracket is open.
                flat = _CONTINUED.sub(lambda match: " " * len(match[0]), source.text[note.start : end])
                begin = ANNOTATION.match(flat).end()  # type: ignore[union-attr]  # every note matches
                words = list(split_words(flat, begin))
                yield Annotation(
                    words=tuple(word for _, word in words),
                    starts=tuple(base + note.start + place for place, _ in words),
                    start=base + note.start,
                    end=base + end,
                    branch=note.branch,
                )

    @cached_property
    def headers(self) -> dict[str, list[Header]]:
        """The declarations that contain each word."""
        found: dict[str, list[Header]] = {}
        for header in self._all:
            for word in header.words:
                found.setdefault(word, []).append(header)
        return found

    @cached_property
    def _all(self) -> list[Header]:
        """All declarations, in order."""
        sources = zip(self.places.bases, self.outlines, strict=True)
        return [header for base, view in sources for header in self._read(base, view)]

    def functions(self, name: str) -> tuple[Function, ...]:
        """Return the declarations of functions called `name`, in order: all, or more than `MOST_OF_A_NAME`."""
        if name not in self._functions:
            headers = self.headers.get(name, [])[:MOST_OF_A_WORD]
            parsed = (
                parse_function(header, name, using_be=self.using_be, found=self._declarators_of(header))
                for header in headers
            )
            self._functions[name] = tuple(islice(filter(None, parsed), MOST_OF_A_NAME + 1))
        return self._functions[name]

    def _declarators_of(self, header: Header) -> Declarators:
        if id(header) not in self._declarators:
            self._declarators[id(header)] = find_declarators(header)
        return self._declarators[id(header)]

    def typed(self, function: Function) -> Function:
        """Resolve the types of a function's parameters that the sources define."""
        if all(param.shape is not Shape.UNKNOWN for param in function.params):
            return function
        return function._replace(params=tuple(self._types.resolve(param) for param in function.params))

    @cached_property
    def _types(self) -> CppTypes:
        texts = [source.text for source in self.places.sources]
        codes = [view.code for view in self.outlines]
        sources = list(zip(self.places.bases, texts, codes, strict=True))
        return CppTypes(sources, self.macros.names, using_be=self.using_be)

    def function_names(self) -> list[str]:
        """List the names of functions for suggestions in a message, at most a thousand."""
        words = (name for header in self._all for name in self._declarators_of(header).parentheses)
        names = (name for name in words if not name.startswith("__"))  # reserved, such as __launch_bounds__
        return [name for name in dict.fromkeys(islice(names, _MOST_NAMES)) if self.functions(name)]

    def unknown_call_at(self, offset: int) -> Token | None:
        """Return the name of an undefined macro whose call is the next code after `offset`."""
        index = self.places.source_index(offset)
        base = self.places.bases[index]
        code = self.outlines[index].code
        match = _CALLED.match(code, self._past_blanks(index, offset - base))
        if match is None or match[1] in self.macros.names:
            return None
        return Token(Kind.WORD, match[1], base + match.start())

    def unknown_call_for(self, name: str) -> Token | None:
        """Return the name of an undefined macro that is called with a part of `name`."""
        for called, arguments in self._unknown_calls:
            if any(argument in name for argument in arguments):
                return called
        return None

    @cached_property
    def _unknown_calls(self) -> list[tuple[Token, list[str]]]:
        """The calls at the beginning of a header, and the words among their first arguments."""
        calls = []
        for header in self._all:
            tokens = self._declarators_of(header).tokens
            if len(tokens) > 1 and tokens[0].kind is Kind.WORD and tokens[1].text == "(":
                arguments = tokens[2 : min(closing(tokens, 1), _MOST_NAMES)]
                calls.append((tokens[0], [token.text for token in arguments if token.kind is Kind.WORD]))
        return calls

    def is_mentioned(self, name: str) -> bool:
        """Return whether `name` occurs before a parenthesis, even in a comment, a string or disabled code."""
        word = re.compile(rf"\b{re.escape(name)}\s*\(")
        return any(word.search(source.text) for source in self.places.sources)

    @cached_property
    def beyond(self) -> Program | None:
        """The included files; None if there are none with words of streams or ends, or if they can't be read."""
        texts = [each for each in self._included if any(word in each.text for word in (*_OF_STREAMS, *_ENDS))]
        try:
            return Program(texts) if texts else None
        except SpecError:  # included code exceeds a limit
            return None

    @cached_property
    def has_stream_work(self) -> bool:
        """Whether any code, also in macros and for devices, has work on CUDA's default stream."""
        if self.beyond is not None and self.beyond.has_stream_work:
            return True
        codes = self._codes_with(_OF_STREAMS)
        if not codes:
            return False
        from be_runtime.signature.cpp.host_work import default_stream_work  # its patterns take 2 ms

        work = (default_stream_work(code, most=_MOST_WORK, is_file=True) for code in codes)
        return any(True for found in work for _ in found)

    @cached_property
    def has_ends(self) -> bool:
        """Whether any code, also in macros and for devices, ends the process."""
        if self.beyond is not None and self.beyond.has_ends:
            return True
        codes = self._codes_with(_ENDS)
        if not codes:
            return False
        from be_runtime.signature.cpp.host_work import process_ends

        return any(True for code in codes for _ in process_ends(code))

    def _codes_with(self, words: Sequence[str]) -> list[str]:
        """List the code and the directives of the sources that contain one of the words."""
        pairs = zip(self.places.sources, self.outlines, strict=True)
        views = [view for source, view in pairs if any(word in source.text for word in words)]
        return [code for view in views for code in (view.code, *(text for _, text in view.directives))]

    @cached_property
    def stream_macros(self) -> frozenset[str]:
        """The names of macros whose definition has a comma or a stream, so that they may pass a stream."""
        texts = (text for view in self.outlines for _, text in view.directives)
        passing = r"(?i)define\s+(\w+)[^\n]*(?:,|stream)"
        return frozenset(match[1] for text in texts if (match := re.search(passing, text)))

    def body(self, function: Function) -> tuple[int, str]:
        """Return the place and the code of a function's body; empty if the sources lack it or a macro generates it."""
        if not function.has_body or function.start != function.line_start:
            return 0, ""
        index = self.places.source_index(function.start)
        code = self.outlines[index].code
        match = _TO_BODY.match(code, function.start - self.places.bases[index])
        if match is None:
            return 0, ""
        return self.places.bases[index] + match.end(), code[match.end() : skip_body(code, match.end()) - 1]

    def host_code(self, owner: Function | Macro) -> tuple[int, str, tuple[tuple[Program, Function | Macro], ...]]:
        """Return the place and the code of a body, and the host functions and macros that it uses."""
        if owner.start not in self._host_code:
            start, body = (owner.start, owner.body) if isinstance(owner, Macro) else self.body(owner)
            used = [(self, each) for each in self.used(body)]
            if self.beyond is not None:
                used += [(self.beyond, each) for each in self.beyond.used(body)]
            self._host_code[owner.start] = start, body, tuple(used)
        return self._host_code[owner.start]

    def used(self, body: str) -> Iterator[Function | Macro]:
        """Iterate over the host functions and the macros of these sources that code uses."""
        from be_runtime.signature.cpp.host_work import called_names, words

        macros = self.macros.known
        used: list[Function | Macro] = [macros[name] for name in sorted(macros.keys() & words(body))]
        for name in called_names(body):
            functions = self.functions(name)[:_MOST_OF_A_CALL]
            used += [each for each in functions if each.has_body and not each.specifiers & _ON_DEVICE]
        yield from {each.start: each for each in used}.values()

    def is_comment_next(self, offset: int) -> bool:
        """Return whether the line after a comment that ends at `offset` is a comment without an annotation."""
        index = self.places.source_index(offset)
        return bool(_NEXT_COMMENT.match(self.places.sources[index].text, offset - self.places.bases[index]))

    def doc_above(self, offset: int) -> str:
        """Return the documentation above the line of `offset`, else above the declaration around it."""
        index = self.places.source_index(offset)
        code = self.outlines[index].code
        local = offset - self.places.bases[index]
        first = self._past_blanks(index, max(code.rfind(mark, 0, local) for mark in ";{})") + 1)
        return self._doc_above(index, local) or (self._doc_above(index, first) if first < len(code) else "")

    def _doc_above(self, index: int, local: int) -> str:
        """Return the documentation above a line; many declarations may share one."""
        text = self.places.sources[index].text
        line = text.rfind("\n", 0, local)
        if (index, line) not in self._docs:
            self._docs[index, line] = doc_above(text, local, self._annotation_starts[index])
        return self._docs[index, line]

    @cached_property
    def _annotation_starts(self) -> list[dict[int, int]]:
        """The start of each annotation by its end, for each source."""
        pairs = zip(self.places.sources, self.outlines, strict=True)
        return [{_end_of_annotation(source.text, note): note.start for note in view.notes} for source, view in pairs]

    def _past_blanks(self, index: int, start: int) -> int:
        """Return the first place from `start` on that is not blank; the last result is cached: blanks may be long."""
        source, low, high = self._blank
        if not (source == index and low <= start <= high):
            code = self.outlines[index].code
            high = len(code) - len(code[start:].lstrip())
            self._blank = (index, start, high)
        return high

    def _read(self, base: int, view: Outline) -> list[Header]:
        """Return the headers of one source; a macro is expanded after its definition only."""
        pending = [(base + start, text, parse_define(text, base + start)) for start, text in reversed(view.directives)]
        names = self.macros.names.union([macro.name for _, _, macro in pending if macro is not None])

        def define_next() -> None:
            _, text, macro = pending.pop()
            self.macros.define(macro)
            self.macros.undefine(text)

        def expand(header: str, offset: int, words: frozenset[str]) -> CppCode | None:
            has_macros = not names.isdisjoint(words)
            if has_macros and (len(header) > LIMIT or self.macros.is_spent):
                self.macros.unexpanded.append(offset)
                has_macros = False
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


def check_size(sources: Sequence[SourceText]) -> None:
    """Raise an error for sources that are too large.

    Raises
    ------
    SpecError
        The sources together have more than `LARGEST` characters.
    """
    count = sum(len(source.text) for source in sources)
    if count > LARGEST:
        raise SpecError(
            f"{', '.join(dict.fromkeys(source.name for source in sources))}: {count:,} characters of source are read "
            f"for entry points, but the limit is {LARGEST:,}",
            hints=("move functions and tables that are not entry points to a header: included files are not read",),
        )


def _end_of_annotation(text: str, note: Note) -> int:
    """Return the end of the comment that closes the brackets of an annotation, or the end of its first comment."""
    end, line = note.start + len(note.text), note.text
    if not any(bracket in line for bracket in "([{"):
        return end
    depth = 0
    for _ in range(_MOST_LINES):
        depth += sum(map(line.count, "([{")) - sum(map(line.count, ")]}"))
        following = _NEXT_COMMENT.match(text, end) if depth > 0 else None
        if following is None:
            break
        end, line = following.end(), following[0]
    return end if depth <= 0 else note.start + len(note.text)
