"""Declarations at namespace scope: the extent of each header, and the namespaces and classes that enclose it.

A header is the text of a declaration up to its body or its semicolon. Function bodies are skipped by counting braces;
nothing else in them is read.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from be_runtime.spec.cpp.lexer import Token, significant


class Scope(NamedTuple):
    """An open namespace or class; the name is empty for an anonymous namespace and for ``extern "C"``."""

    name: str
    is_class: bool


class MacroCall(NamedTuple):
    """The macro call written at `start` became the tokens from `low` to before `high` of a unit."""

    start: int
    low: int
    high: int


class CppCode(NamedTuple):
    """Code to read: that of a source, or the expansion of a header with macros.

    Parameters
    ----------
    text : str
        The code.
    offset : int
        Place of ``text[0]`` if the code is that of a source.
    starts : tuple of int
        Start of each of `tokens` in `text`.
    tokens : tuple of Token
        Expanded tokens, with the places where they were written.
    calls : tuple of MacroCall
        Macro calls that they come from.
    is_expanded : bool
        True if the code is given by `tokens`.
    """

    text: str
    offset: int
    starts: tuple[int, ...] = ()
    tokens: tuple[Token, ...] = ()
    calls: tuple[MacroCall, ...] = ()
    is_expanded: bool = False

    @classmethod
    def of_tokens(cls, tokens: Sequence[Token], calls: Sequence[MacroCall]) -> CppCode:
        """Make a unit of tokens from several places."""
        texts = [token.text for token in tokens]
        starts = tuple(accumulate([len(text) + 1 for text in texts], initial=0))
        return cls(" ".join(texts), 0, starts[:-1], tuple(tokens), tuple(calls), True)

    def call_of(self, start: int, index: int, token: Token) -> int:
        """Return the place of the outermost macro call that made `token`, the `index`-th from `start`, or its own."""
        if self.is_expanded:
            index += bisect_left(self.starts, start)
            number = bisect_left(self.calls, index + 1, key=attrgetter("high"))
            if number < len(self.calls) and self.calls[number].low <= index:
                return self.calls[number].start
        return token.start

    def tokenize(self, start: int, end: int) -> list[Token]:
        """Return the significant tokens of ``text[start:end]``, with the places where they were written."""
        if self.is_expanded:
            low, high = bisect_left(self.starts, start), bisect_left(self.starts, end)
            return list(self.tokens[low:high])
        return significant(self.text[start:end], offset=self.offset + start, directives=False)


class Header(NamedTuple):
    """One declaration's text up to its body or its semicolon, ``unit.text[start:end]``, and the words in it."""

    unit: CppCode
    start: int
    end: int
    has_body: bool
    scopes: tuple[Scope, ...]
    words: frozenset[str] = frozenset()

    def tokens(self) -> list[Token]:
        """The significant tokens."""
        return self.unit.tokenize(self.start, self.end)

    def text(self) -> str:
        """The code."""
        return self.unit.text[self.start : self.end]


Expander = Callable[[str, int, frozenset[str]], CppCode | None]
"""A function that expands the macros in a header, given its offset and its words; None if it has no macros."""

_MARK = re.compile(r"[{()]|;[;\s]*+|\}")
_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[^\W\d]\w*")
_SCOPE_WORDS = ("namespace", "extern", "class", "struct", "union")
# Few sources need these patterns, so they are compiled when first used.
_NAMESPACE = (
    r"\s*(?:\[\[[^\]]*\]\]\s*)?((?:\w++\s*+(?:::\s*+(?:inline\s++)?+)?+)*?)"
    r"(?:__attribute__\s*\(\(.*\)\)\s*)?"
)
_LINKAGE = r"\bextern\s*\"[^\"]*\"\s*\Z"
_ATTRIBUTES = (
    r"\[\[[^\[\]]*\]\]"
    r"|\b(?:alignas|__attribute__|__align__|__declspec)\s*+\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\)"
)
_CLASS = r"\b(?:class|struct|union)\b\s*((?:\w++\s*+(?:::\s*+)?+)*+)"
_DEEPEST = 256
"""Limit for scopes within each other; compilers take as many brackets. Functions in deeper ones are not found."""


def opened_scopes(header: str) -> list[Scope] | None:
    """Return the scopes that a ``{`` after `header` opens; None if it opens a body or a list of values.

    Examples
    --------
    >>> opened_scopes("inline namespace a::b")
    [Scope(name='a', is_class=False), Scope(name='b', is_class=False)]
    >>> opened_scopes("void f(int a)") is None
    True
    """
    if not any(word in header for word in _SCOPE_WORDS):
        return None
    *_, after = re.split(r"\bnamespace\b", header)
    if len(after) < len(header) and (match := re.fullmatch(_NAMESPACE, after)):
        names = re.sub(r"\binline\b", " ", match[1]).replace("::", " ").split()
        return [Scope(name, False) for name in names] or [Scope("", False)]
    if re.search(_LINKAGE, header):
        return [Scope("", False)]
    plain = re.sub(_ATTRIBUTES, " ", header) if "(" in header or "[" in header else header
    head = plain[max(map(plain.rfind, "()=")) + 1 :]  # A class has none of them behind its name.
    if (match := re.search(_CLASS, head)) and not re.search(r"\benum\b", header):
        words = [word for word in match[1].split() if word != "final"]
        return [Scope(words[-1] if words else "", True)]
    return None


class DeclarationReader:
    """Collector of the headers of one source.

    Parameters
    ----------
    expand : callable
        Function that expands the macros of a header.

    Attributes
    ----------
    found : list of Header
        Headers that contain a parenthesis, in order.

    Examples
    --------
    >>> reader = DeclarationReader(lambda header, offset, words: None)
    >>> reader.read(CppCode("namespace a { void f(int n) { g(); } } int h();", 0))
    False
    >>> [(header.text().strip(), header.has_body, len(header.scopes)) for header in reader.found]
    [('void f(int n)', True, 1), ('int h()', False, 0)]
    """

    def __init__(self, expand: Expander) -> None:
        self.found: list[Header] = []
        self._expand = expand
        # All scopes that are open, for each brace. It outlives a unit: a macro may open a namespace for another one.
        self._scopes: list[tuple[Scope, ...]] = [()]

    def read(self, unit: CppCode) -> bool:
        """Collect the headers of `unit`, and return whether it ends inside a body."""
        code, position, start, depth, has_paren = unit.text, 0, 0, 0, False
        while match := _MARK.search(code, position):
            mark, at, position = match.group(), match.start(), match.end()
            if mark in "()":
                depth, has_paren = (depth + 1, True) if mark == "(" else (max(0, depth - 1), has_paren)
                continue
            if depth and mark != "}":
                # A braced default argument, or a semicolon where none belongs.
                position = skip_body(code, position) if mark == "{" else position
                continue
            if mark == "}":
                if at > start:
                    self._take(unit, start, at, ";", has_paren)  # A macro call needs no semicolon.
                if len(self._scopes) > 1:
                    self._scopes.pop()
            elif (at > start or mark == "{") and self._take(unit, start, at, mark[0], has_paren):
                position = skip_body(code, position)
                if position > len(code):
                    return True
            start, depth, has_paren = position, 0, False
        if has_paren:
            self._take(unit, start, len(code), ";", has_paren)
        return False

    def _take(self, unit: CppCode, start: int, end: int, mark: str, has_paren: bool) -> bool:
        """Take the header before `mark`, and return whether a body begins there."""
        written = unit.text[start:end]
        header = written.lstrip()  # What precedes it may be a long blank: a macro's definition, a comment.
        start += len(written) - len(header)
        words = frozenset(_WORD.findall(" ".join(header.split())))
        if not unit.is_expanded and (expanded := self._expand(header, unit.offset + start, words)):
            return self.read(expanded._replace(text=f"{expanded.text} {mark}"))
        opened = opened_scopes(header) if mark == "{" else None
        if opened is not None:
            self._scopes.append((*self._scopes[-1], *opened)[: _DEEPEST + 1])
            return False
        if has_paren and len(self._scopes[-1]) <= _DEEPEST:
            self.found.append(Header(unit, start, end, mark == "{", self._scopes[-1], words))
        return mark == "{"


def skip_body(code: str, position: int) -> int:
    """Return the place after the ``}`` of a body that was opened before `position`, or past the end of `code`."""
    depth = 1
    for match in _BRACE.finditer(code, position):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return match.end()
    return len(code) + 1
