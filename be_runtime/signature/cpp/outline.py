"""The outline of a source: its live code, annotations, macro definitions, documentation and declarations.

Constant conditions such as ``#if 0`` are evaluated here. If only the compiler can evaluate a condition, all branches
are kept, unless they open or close different brackets, such as two alternative first lines of one function. In that
case, only the first branch is kept, since both together are not valid C++.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from operator import attrgetter
from textwrap import dedent

from be_runtime.signature.cpp.lexer import Kind, Token, scan, significant
from be_toolchain.named import NamedTuple

_DOC_LINE = re.compile(r"//[/!](?![/!])(?!\s*@BE\b) ?(.*)")
_DOC_BLOCK = re.compile(r"/\*[*!](?![*/]) ?(.*?)\*+/", re.DOTALL)
_MOST_BETWEEN = 16
"""Limit for the comments between a line and its documentation, which many annotations may share."""
_STAR = re.compile(r"^[ \t]*\*(?: |$)", re.MULTILINE)


def doc_above(text: str, position: int, annotations: Mapping[int, int]) -> str:
    r"""Return the documentation above the line of a position; empty if there is none.

    Other comments, such as annotations, may be between both. A blank line or code may not. `annotations` maps the
    end of each annotation to its start: an annotation may have several lines, and its lines are no documentation.

    Examples
    --------
    >>> text = "int a;\n/// Fire neurons.\n///   v: potentials\n// @BE fire\nvoid fire();"
    >>> print(doc_above(text, text.index("void"), {}))
    Fire neurons.
      v: potentials
    >>> doc_above("/**\n * Fire.\n */\nvoid fire();", 20, {})
    'Fire.'
    """
    found: list[str] = []
    end, between = text.rfind("\n", 0, position), 0
    while end >= 0 and between <= _MOST_BETWEEN:
        start = text.rfind("\n", 0, annotations.get(end, end)) + 1
        if end not in annotations and text[start:end].rstrip().endswith("*/"):
            start = text.rfind("\n", 0, max(0, text.rfind("/*", 0, end))) + 1
        comment = text[start:end].strip()
        doc = None if end in annotations else _documentation(comment)
        if not comment.startswith(("//", "/*")) or (found and doc is None):
            break
        if doc is not None:
            found.append(doc)
        between += doc is None
        end = start - 1
    return dedent("\n".join(reversed(found))).strip()


def _documentation(comment: str) -> str | None:
    """Return the text of a documentation comment; None for any other comment."""
    if line := _DOC_LINE.fullmatch(comment):
        return line[1].rstrip()
    if block := _DOC_BLOCK.fullmatch(comment):
        return dedent(_STAR.sub("", block[1].replace("\r", ""))).strip()
    return None


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
    """Code to parse: a source, or the expansion of a header with macros.

    Parameters
    ----------
    text : str
        The code.
    offset : int
        Place of ``text[0]`` in a source.
    starts : tuple of int
        Start of each of `tokens` in `text`.
    tokens : tuple of Token
        Expanded tokens, with the places where they were written.
    calls : tuple of MacroCall
        Macro calls that made the tokens.
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
        """Return the significant tokens."""
        return self.unit.tokenize(self.start, self.end)

    def text(self) -> str:
        """Return the code."""
        return self.unit.text[self.start : self.end]


Expander = Callable[[str, int, frozenset[str]], CppCode | None]
"""A function that expands the macros in a header, given its offset and its words; None if it has no macros."""

_MARK = re.compile(r"[{()]|;[;\s]*+|\}")
_BRACE = re.compile(r"[{}]")
_WORD = re.compile(r"[^\W\d]\w*")
_SCOPE_WORDS = ("namespace", "extern", "class", "struct", "union")
# Few sources need these patterns, so they are compiled on first use.
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
"""Limit for nested scopes and nested conditions, as in compilers. Functions in deeper scopes are not found."""


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
    head = plain[max(map(plain.rfind, "()=")) + 1 :]  # A class has no such sign after its name.
    if (match := re.search(_CLASS, head)) and not re.search(r"\benum\b", header):
        words = [word for word in match[1].split() if word != "final"]
        return [Scope(words[-1] if words else "", True)]
    return None


class DeclarationReader:
    """A collector of the headers of one source.

    Parameters
    ----------
    expand : callable
        Function that expands the macros of a header.

    Attributes
    ----------
    found : list of Header
        Headers with a parenthesis, in order.

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
        # All open scopes, for each brace. They outlive a unit, since a macro may open a namespace for another unit.
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
                # A braced default argument, or a misplaced semicolon.
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
        """Collect the header before `mark`, and return whether a body begins there."""
        header = unit.text[start:end].lstrip()  # A macro's definition or a comment before it is a long blank.
        start = end - len(header)
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


class Branch(NamedTuple):
    """The branch of a conditional group around a place, linked to the branch around the group.

    Parameters
    ----------
    group, branch : int
        Number of the group, and of the branch in it.
    outer : Branch or None
    """

    group: int
    branch: int
    outer: Branch | None

    @staticmethod
    def numbers(innermost: Branch | None) -> dict[int, int]:
        """Map each group around a place to the number of its branch."""
        found: dict[int, int] = {}
        while innermost is not None:
            found[innermost.group] = innermost.branch
            innermost = innermost.outer
        return found


class Note(NamedTuple):
    """A live line comment that is an annotation."""

    start: int
    text: str
    branch: Branch | None


class Outline(NamedTuple):
    """The outline of one source.

    Parameters
    ----------
    code : str
        Code with the length of the source. Comments, preprocessor lines, the contents of literals and dead branches are
        blanks, so every bracket and word is code and has the same offset as in the source.
    notes : tuple of Note
        Annotations in order.
    directives : tuple of (int, str)
        Each live ``#define`` or ``#undef`` in order: its place, and its text as written.
    """

    code: str
    notes: tuple[Note, ...]
    directives: tuple[tuple[int, str], ...]


_Mark = tuple[int, int, int, tuple[int, int]]
"""The numbers of parts, annotations and directives of an outline at one place, and its open brackets."""


class _Group:
    """An open conditional group and the state of its branches; the first group is the source itself."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.index = 0  # of the current branch
        self.branch: Branch | None = None
        self.is_live = True
        self.has_live_branch = False
        self.decided = False  # by a branch with a true condition: all later branches are dead
        self.mark: _Mark = (0, 0, 0, (0, 0))


_CONDITIONAL = re.compile(r"#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif|define|undef)\b")
ANNOTATION = re.compile(r"//[/!]*[ \t]*@BE(?=\s|\Z)")
_COMMENT = r"//.*|/\*(?s:.*?)\*/"
_CONSTANTS = {"0": False, "false": False, "1": True, "true": True}
_LONGEST_CONSTANT = 1000
"""Limit for the characters of a condition that may be constant, with its comments."""


def outline(text: str) -> Outline:
    r"""Make the outline of one source.

    Examples
    --------
    >>> outline("#if 0\nint a;\n#else\nint b; // c\n#endif").code.split()
    ['int', 'b;']
    """
    return _Outliner(text).run()


def blank(code: str) -> str:
    """Blank the comments and the contents of literals in `code`, which has no preprocessor lines.

    Examples
    --------
    >>> blank("f('{') /* } */;")
    'f(" ")        ;'
    """
    parts = []
    for kind, start, end in scan(code, directives=False):
        if kind is Kind.CODE:
            parts.append(code[start:end])
        elif kind is Kind.STRING or kind is Kind.CHAR:
            parts.append(_blank_literal(end - start))
        else:
            parts.append(" " * (end - start))
    return "".join(parts)


def _blank_literal(length: int) -> str:
    return '"' + " " * (length - 2) + '"' if length > 1 else " "


def known_truth(condition: str) -> bool | None:
    """Return the value of a constant ``#if`` condition, or None.

    Examples
    --------
    >>> known_truth(" 0 // off"), known_truth("(1)"), known_truth("defined(X)")
    (False, True, None)
    """
    if len(condition) > _LONGEST_CONSTANT:
        return None
    return _CONSTANTS.get(re.sub(_COMMENT, " ", condition).strip(" \t\r()"))


class _Outliner:
    """Builder of an outline in one pass, with a stack of open conditional groups."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts: list[int] = []
        self.parts: list[str] = []
        self.counted = 0
        self.balance = (0, 0)  # the brackets that the first `counted` parts leave open
        self.notes: list[Note] = []
        self.directives: list[tuple[int, str]] = []
        self.groups = [_Group(0)]
        self.group_count = 0

    def run(self) -> Outline:
        text, starts, parts = self.text, self.starts, self.parts
        for kind, start, end in scan(text):
            if kind is Kind.DIRECTIVE:
                self.directive(start, end)
            elif not self.groups[-1].is_live:
                continue
            elif kind is Kind.LINE_COMMENT:
                if ANNOTATION.match(text, start, end):
                    self.notes.append(Note(start, text[start:end], self.groups[-1].branch))
            elif kind is not Kind.BLOCK_COMMENT:
                live = text[start:end] if kind is Kind.CODE else _blank_literal(end - start)
                if not live.isspace():
                    starts.append(start)
                    parts.append(live)
        code, last = [], 0
        for start, part in zip(starts, parts, strict=True):
            code += [" " * (start - last), part]
            last = start + len(part)
        code.append(" " * (len(text) - last))
        return Outline("".join(code), tuple(self.notes), tuple(self.directives))

    def mark(self) -> _Mark:
        """Count the brackets of the parts since the last count, and return the current lengths."""
        code = "".join(self.parts[self.counted :])
        braces, parentheses = self.balance
        self.balance = (
            braces + code.count("{") - code.count("}"),
            parentheses + code.count("(") - code.count(")"),
        )
        self.counted = len(self.parts)
        return self.counted, len(self.notes), len(self.directives), self.balance

    def directive(self, start: int, end: int) -> None:
        """Process one preprocessor line."""
        match = _CONDITIONAL.match(self.text, start, end)
        if match is None:
            return
        word, condition = match[1], self.text[match.end() : end]
        if word in ("define", "undef"):
            if self.groups[-1].is_live:
                self.directives.append((start, self.text[start:end]))
        elif word.startswith("if"):
            self.group_count += 1
            self.groups.append(_Group(self.group_count))
            self.enter(known_truth(condition) if word == "if" else None)
        elif len(self.groups) > 1:
            self.close_branch()
            if word == "endif":
                self.groups.pop()
            else:
                self.groups[-1].index += 1
                self.enter({"elif": known_truth(condition), "else": True}.get(word))

    def enter(self, truth: bool | None) -> None:
        """Enter a branch of the innermost group; `truth` is the value of its condition if it is constant."""
        outer, group = self.groups[-2:]
        group.is_live = outer.is_live and not group.decided and truth is not False
        group.decided = group.decided or truth is True
        group.mark = self.mark()
        is_deep = len(self.groups) > _DEEPEST + 1
        group.branch = outer.branch if is_deep else Branch(group.number, group.index, outer.branch)

    def close_branch(self) -> None:
        """Drop the branch that ends here if it conflicts with an earlier branch."""
        group = self.groups[-1]
        if not group.is_live:
            return
        if group.has_live_branch and self.mark()[-1] != group.mark[-1]:
            self.counted, notes, directives, self.balance = group.mark
            del self.starts[self.counted :], self.parts[self.counted :]
            del self.notes[notes:], self.directives[directives:]
        group.has_live_branch = True
