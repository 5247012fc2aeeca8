"""Macros, as far as declarations need them: object-like and function-like ones, ``#``, ``##`` and nesting.

Expansion follows C++17 [cpp.replace]. A macro is not expanded inside its own expansion; unlike the standard's, this
rule holds for the arguments' tokens too, which no real source notices. Function bodies within a macro are dropped
before expansion: only the headers matter, and the bodies are most of the text.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .declarations import opened_scopes, skip_body
from .lexer import Kind, Token, closing, significant
from .outline import blank

_DEFINE = re.compile(r"#[ \t]*define[ \t]+([^\W\d]\w*)(\([^)]*\))?")
_UNDEF = re.compile(r"#[ \t]*undef[ \t]+([^\W\d]\w*)")
_JOINED_LINES = re.compile(r"\\[ \t]*\r?\n|\s")
_MARK = re.compile(r"[{};]")
_LIMIT = 50_000
"""Tokens of one expansion; a header that grows beyond it is left as it is."""
_DEPTH = 100
"""Macros within macros."""


class Macro(NamedTuple):
    """One ``#define``.

    Parameters
    ----------
    name : str
    params : tuple of str or None
        None for an object-like macro.
    is_variadic : bool
        Whether the last of `params` takes all remaining arguments.
    body : str
        The replacement, as written.
    start : int
        Where `body` is written.
    """

    name: str
    params: tuple[str, ...] | None
    is_variadic: bool
    body: str
    start: int


def parse_define(text: str, start: int = 0) -> Macro | None:
    r"""Read one ``#define`` line.

    Examples
    --------
    >>> parse_define("#define ADD(T, ...) void add_##T(int n)")
    Macro(name='ADD', params=('T', '__VA_ARGS__'), is_variadic=True, body=' void add_##T(int n)', start=19)
    """
    match = _DEFINE.match(text)
    if match is None:
        return None
    params, is_variadic = None, False
    if match[2]:
        names = [name for name in _JOINED_LINES.sub("", match[2][1:-1]).split(",") if name]
        is_variadic = bool(names) and names[-1].endswith("...")
        if is_variadic:
            names[-1] = names[-1][:-3] or "__VA_ARGS__"
        params = tuple(names)
    return Macro(match[1], params, is_variadic, text[match.end() :], start + match.end())


def undefined_name(text: str) -> str | None:
    """The name in an ``#undef`` line."""
    match = _UNDEF.match(text)
    return match[1] if match else None


class _TooLongError(Exception):
    """An expansion passed the limit."""


class Macros:
    """The macros that are defined at some point of a source, and their expansion.

    Attributes
    ----------
    known : dict
        By name, those defined at this point.
    names : set of str
        All that were ever defined.

    Examples
    --------
    >>> macros = Macros()
    >>> macros.define(parse_define("#define ADD(T) void add_##T(T a) { body(); }"))
    >>> " ".join(token.text for token in macros.expand("ADD(int)", 0))
    'void add_int ( int a ) { }'
    """

    def __init__(self) -> None:
        self.known: dict[str, Macro] = {}
        self.names: set[str] = set()
        self._bodies: dict[int, list[Token]] = {}

    def define(self, macro: Macro | None) -> None:
        """Add or replace a macro."""
        if macro is not None:
            self.known[macro.name] = macro
            self.names.add(macro.name)

    def undefine(self, name: str | None) -> None:
        """Forget a macro."""
        if name is not None:
            self.known.pop(name, None)

    def expand(self, code: str, offset: int) -> list[Token] | None:
        """The tokens of `code`, which is written at `offset`, expanded; None where it uses no macro."""
        if not self.known or self.known.keys().isdisjoint(_WORD.findall(code)):
            return None
        try:
            return self._expand(significant(code, offset=offset, directives=False), frozenset(), is_outermost=True)
        except _TooLongError:
            return None

    def _expand(self, tokens: list[Token], hidden: frozenset[str], *, is_outermost: bool = False) -> list[Token]:
        """`tokens` with their macros replaced, except for the `hidden` ones."""
        out: list[Token] = []
        index, count = 0, len(tokens)
        while index < count:
            token = tokens[index]
            index += 1
            macro = self.known.get(token.text) if token.kind is Kind.WORD and token.text not in hidden else None
            if macro is None:
                out.append(token)
                continue
            arguments: list[list[Token]] = []
            if macro.params is not None:
                if index >= count or tokens[index].text != "(":
                    out.append(token)
                    continue
                end = closing(tokens, index)
                arguments = _bind(macro, _split(tokens[index + 1 : end]))
                index = end + 1
            replaced = self._substitute(macro, arguments, hidden)
            result = self._expand(replaced, hidden | {macro.name})
            if is_outermost:
                result = [Token(kind, text, start, token.start) for kind, text, start, _ in result]
            out.extend(result)
            if len(out) > _LIMIT or len(hidden) > _DEPTH:
                raise _TooLongError
        return out

    def _substitute(self, macro: Macro, arguments: list[list[Token]], hidden: frozenset[str]) -> list[Token]:
        """The body of `macro` with its parameters replaced and ``#`` and ``##`` applied."""
        body = self._body(macro)
        slots = dict(zip(macro.params or (), arguments, strict=False))
        out: list[Token] = []
        index, count = 0, len(body)
        while index < count:
            token = body[index]
            index += 1
            if token.text == "##" and index < count:
                operand = body[index]
                index += 1
                _paste(out, slots.get(operand.text, [operand]), operand.text == (macro.params or ("",))[-1])
            elif token.text == "#" and index < count and body[index].text in slots:
                out.append(Token(Kind.STRING, '""', token.start))
                index += 1
            elif token.kind is Kind.WORD and token.text in slots:
                is_pasted = index < count and body[index].text == "##"
                argument = slots[token.text]
                out.extend(argument if is_pasted else self._expand(argument, hidden))
                if is_pasted and not argument:
                    out.append(Token(Kind.WORD, "", token.start))
            else:
                out.append(token)
        return out

    def _body(self, macro: Macro) -> list[Token]:
        """The tokens of a macro's body, without those inside function bodies."""
        body = self._bodies.get(macro.start)
        if body is None:
            code = _without_bodies(blank(macro.body))
            body = self._bodies[macro.start] = significant(code, offset=macro.start, directives=False)
        return body


_WORD = re.compile(r"[^\W\d]\w*")


def _without_bodies(code: str) -> str:
    """`code` with every function body blanked, but for its braces."""
    parts, done, position, header = [], 0, 0, 0
    while match := _MARK.search(code, position):
        position = match.end()
        if match[0] == "{" and opened_scopes(code[header : position - 1]) is None:
            end = skip_body(code, position)
            parts += [code[done:position], " " * (end - 1 - position)]
            done, position = end - 1, end
        header = position
    return "".join([*parts, code[done:]])


def _split(tokens: list[Token]) -> list[list[Token]]:
    """The arguments of a macro call."""
    arguments: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        if token.text == "," and depth == 0:
            arguments.append([])
            continue
        depth += (token.text == "(") - (token.text == ")")
        arguments[-1].append(token)
    return arguments


def _bind(macro: Macro, arguments: list[list[Token]]) -> list[list[Token]]:
    """One argument for each parameter of `macro`; a variadic one gets the rest with its commas."""
    params = macro.params or ()
    if macro.is_variadic and len(arguments) > len(params):
        head, rest = arguments[: len(params) - 1], arguments[len(params) - 1 :]
        joined = list(rest[0])
        for argument in rest[1:]:
            joined += [Token(Kind.SIGN, ",", argument[0].start if argument else 0), *argument]
        arguments = [*head, joined]
    return arguments + [[] for _ in range(len(params) - len(arguments))]


def _paste(out: list[Token], operand: list[Token], is_last_param: bool) -> None:
    """Apply ``##`` to the last token of `out` and the first of `operand`."""
    if out and out[-1].text == "," and is_last_param:  # GNU: `, ## __VA_ARGS__` drops the comma with the arguments.
        if operand:
            out.extend(operand)
        else:
            out.pop()
        return
    left = out.pop() if out else Token(Kind.WORD, "", operand[0].start if operand else 0)
    if operand:
        text = left.text + operand[0].text
        out.append(Token(_kind_of(text, left.kind), text, left.start if left.text else operand[0].start))
        out.extend(operand[1:])
    elif left.text:
        out.append(left)


def _kind_of(text: str, default: Kind) -> Kind:
    return Kind.WORD if _WORD.fullmatch(text) else default
