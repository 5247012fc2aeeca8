"""The parts of a source that a compiler would see: its live code, its line comments and its macro definitions.

Constant conditions such as ``#if 0`` are evaluated here; a condition that only the compiler can evaluate keeps all of
its branches. If such branches open or close different brackets (two alternative first lines of one function, say), only
the first is kept, because both together are not valid C++.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from be_runtime.spec.cpp.lexer import Kind, scan


class Branch(NamedTuple):
    """The branch of a conditional group around a place, and the one around that; without copies at any depth.

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
        """Return the number of the branch in each group around a place."""
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


class Directive(NamedTuple):
    """A live ``#define`` or ``#undef``, as written."""

    start: int
    text: str


class Outline(NamedTuple):
    """The outline of one source.

    Parameters
    ----------
    code : str
        Code with the length of the source. Comments, preprocessor lines, the contents of literals and dead branches are
        blanks, so every bracket and word is code and has the same offset as in the source.
    notes : tuple of Note
        Annotations in order.
    directives : tuple of Directive
        Macro definitions in order.
    """

    code: str
    notes: tuple[Note, ...]
    directives: tuple[Directive, ...]


class _Mark(NamedTuple):
    """The lengths of an outline when a branch began, and the brackets that were open."""

    parts: int = 0
    notes: int = 0
    directives: int = 0
    balance: tuple[int, int] = (0, 0)


class _Group:
    """An open conditional group and the state of its branches so far."""

    def __init__(self, number: int, outer_branch: Branch | None, *, outer_is_live: bool, truth: bool | None) -> None:
        self.number = number
        self.outer_branch = outer_branch
        self.outer_is_live = outer_is_live
        self.is_live = outer_is_live and truth is not False
        self.has_live_branch = False
        self.branch = 0
        # True after a branch with a true condition: all later branches are dead.
        self.decided = truth is True
        self.mark = _Mark()


_CONDITIONAL = re.compile(r"#[ \t]*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif|define|undef)\b")
ANNOTATION = re.compile(r"//[/!]*[ \t]*@BE(?=\s|\Z)")
_COMMENT = r"//.*|/\*(?s:.*?)\*/"
_CONSTANTS = {"0": False, "false": False, "1": True, "true": True}
_LONGEST_CONSTANT = 1000
"""Limit for the characters of a condition that may be constant, with its comments."""
_DEEPEST = 256
"""Conditional groups within each other that are told apart; compilers take as many brackets."""


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
    """One pass over the pieces of a text, with a stack of open conditional groups."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts: list[int] = []
        self.parts: list[str] = []
        # The brackets that the first `counted` parts leave open.
        self.counted = 0
        self.balance = (0, 0)
        self.notes: list[Note] = []
        self.directives: list[Directive] = []
        self.groups: list[_Group] = []
        self.is_live = True
        self.branch: Branch | None = None
        self.group_count = 0

    def run(self) -> Outline:
        text, starts, parts = self.text, self.starts, self.parts
        for kind, start, end in scan(text):
            if kind is Kind.DIRECTIVE:
                self.directive(start, end)
            elif not self.is_live:
                continue
            elif kind is Kind.LINE_COMMENT:
                if ANNOTATION.match(text, start, end):
                    self.notes.append(Note(start, text[start:end], self.branch))
            elif kind is not Kind.BLOCK_COMMENT:
                live = text[start:end] if kind is Kind.CODE else _blank_literal(end - start)
                if not live.isspace():
                    starts.append(start)
                    parts.append(live)
        return Outline(self.code(), tuple(self.notes), tuple(self.directives))

    def code(self) -> str:
        """Put the parts at their places."""
        code, end = [], 0
        for start, part in zip(self.starts, self.parts, strict=True):
            code += [" " * (start - end), part]
            end = start + len(part)
        return "".join([*code, " " * (len(self.text) - end)])

    def mark(self) -> _Mark:
        """Count the brackets of what was not counted yet, and return what there is."""
        code = "".join(self.parts[self.counted :])
        braces, parentheses = self.balance
        self.balance = (
            braces + code.count("{") - code.count("}"),
            parentheses + code.count("(") - code.count(")"),
        )
        self.counted = len(self.parts)
        return _Mark(self.counted, len(self.notes), len(self.directives), self.balance)

    def directive(self, start: int, end: int) -> None:
        """Act on one preprocessor line."""
        match = _CONDITIONAL.match(self.text, start, end)
        if match is None:
            return
        word, condition = match[1], self.text[match.end() : end]
        if word in ("define", "undef"):
            if self.is_live:
                self.directives.append(Directive(start, self.text[start:end]))
        elif word.startswith("if"):
            self.open_group(known_truth(condition) if word == "if" else None)
        elif self.groups:
            self.close_branch(self.groups[-1])
            if word == "endif":
                self.close_group()
            else:
                truth = {"elif": known_truth(condition), "else": True}.get(word)
                self.next_branch(self.groups[-1], truth)

    def open_group(self, truth: bool | None) -> None:
        """Enter the first branch of a new group."""
        self.group_count += 1
        group = _Group(self.group_count, self.branch, outer_is_live=self.is_live, truth=truth)
        self.groups.append(group)
        self.enter(group)

    def next_branch(self, group: _Group, truth: bool | None) -> None:
        """Enter the branch of an ``#elif`` or ``#else``."""
        group.branch += 1
        group.is_live = group.outer_is_live and not group.decided and truth is not False
        group.decided = group.decided or truth is True
        self.enter(group)

    def enter(self, group: _Group) -> None:
        group.mark = self.mark()
        self.is_live = group.is_live
        if len(self.groups) <= _DEEPEST:
            self.branch = Branch(group.number, group.branch, group.outer_branch)

    def close_branch(self, group: _Group) -> None:
        """Drop the branch that ends here if it conflicts with one that was kept."""
        if not group.is_live:
            return
        if group.has_live_branch and self.mark().balance != group.mark.balance:
            self.counted, notes, directives, self.balance = group.mark
            del self.starts[self.counted :], self.parts[self.counted :]
            del self.notes[notes:], self.directives[directives:]
        group.has_live_branch = True

    def close_group(self) -> None:
        group = self.groups.pop()
        self.is_live = group.outer_is_live
        self.branch = group.outer_branch
