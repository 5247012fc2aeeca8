"""Expansion of macros in declarations: object-like and function-like macros, ``#``, ``##`` and nesting.

Expansion follows C++17 [cpp.replace]. A macro is not expanded inside its own expansion; unlike in the standard, this
rule also holds for the tokens of arguments, which makes no difference in real sources. Function bodies within a macro
are dropped before expansion: only the headers matter, and the bodies are most of the text.
"""

from __future__ import annotations

import re
from typing import Literal

from be_runtime.signature.cpp.lexer import Kind, Token, closing, significant
from be_runtime.signature.cpp.outline import MacroCall, blank, opened_scopes, skip_body
from be_toolchain.named import NamedTuple

_DEFINE = re.compile(r"#[ \t]*define[ \t]+([^\W\d]\w*)(\([^)]*\))?")
_UNDEF = re.compile(r"#[ \t]*undef[ \t]+([^\W\d]\w*)")
_JOINED_LINES = r"\\[ \t]*\r?\n|\s"
_MARK = re.compile(r"[{};]")
LIMIT = 100_000
"""Limit for the characters of a header or of a macro's body that is expanded."""
_MOST = 200_000
"""Limit for the tokens that one header's expansion reads and writes."""
_MOST_OF_ALL = 300_000
"""Limit for the tokens that all expansions together read and write."""
_MOST_CHARACTERS = 4_000_000
"""Limit for the characters of all headers after their expansion, since a long argument may be repeated often."""
_FAILED = 100
"""Tokens to add to the count of a header whose expansion exceeds a limit."""
_LONGEST = 1000
"""Limit for the characters of a pasted name."""
_DEPTH = 100
"""Limit for the depth of nested macros."""


class Macro(NamedTuple):
    """One ``#define``.

    Parameters
    ----------
    name : str
    params : tuple of str or None
        Parameters; None for an object-like macro.
    is_variadic : bool
        True if the last of `params` takes all remaining arguments.
    body : str
        Replacement, with comments and the contents of literals blanked.
    start : int
        Place of `body`.
    """

    name: str
    params: tuple[str, ...] | None
    is_variadic: bool
    body: str
    start: int


def parse_define(text: str, start: int = 0) -> Macro | None:
    r"""Parse one ``#define`` line.

    Examples
    --------
    >>> parse_define("#define ADD(T, ...) void add_##T(int n)")
    Macro(name='ADD', params=('T', '__VA_ARGS__'), is_variadic=True, body=' void add_##T(int n)', start=19)
    """
    text = blank(text)
    match = _DEFINE.match(text)
    if match is None:
        return None
    params, is_variadic = None, False
    if match[2]:
        names = [name for name in re.sub(_JOINED_LINES, "", match[2][1:-1]).split(",") if name]
        is_variadic = bool(names) and names[-1].endswith("...")
        if is_variadic:
            names[-1] = names[-1][:-3] or "__VA_ARGS__"
        params = tuple(names)
    return Macro(match[1], params, is_variadic, text[match.end() :], start + match.end())


class _TooLongError(Exception):
    """An expansion exceeded a limit."""


class Macros:
    """The macros that are defined at a place in a source, and their expansion.

    Attributes
    ----------
    known : dict
        Macros defined at this point, by name.
    names : set of str
        Names of all macros that were ever defined.
    unexpanded : list of int
        Places of code whose expansion exceeds a limit.

    Examples
    --------
    >>> macros = Macros()
    >>> macros.define(parse_define("#define ADD(T) void add_##T(T a) { body(); }"))
    >>> tokens, calls = [], []
    >>> macros.expand("ADD(int)", 0, tokens, calls)
    >>> " ".join(token.text for token in tokens)
    'void add_int ( int a ) { }'
    """

    def __init__(self) -> None:
        self.known: dict[str, Macro] = {}
        self.names: set[str] = set()
        self.unexpanded: list[int] = []
        self._left = self._left_of_all = _MOST_OF_ALL
        self._characters_left = _MOST_CHARACTERS
        self._bodies: dict[int, list[_Step] | None] = {}

    def define(self, macro: Macro | None) -> None:
        """Add or replace a macro."""
        if macro is not None:
            self.known[macro.name] = macro
            self.names.add(macro.name)

    @property
    def is_spent(self) -> bool:
        """True if no further header is expanded."""
        return self._left_of_all <= 0

    def undefine(self, directive: str) -> None:
        """Remove the macro of an ``#undef`` line; ignore other lines."""
        if match := _UNDEF.match(directive):
            self.known.pop(match[1], None)

    def expand(self, code: str, offset: int, tokens: list[Token], calls: list[MacroCall]) -> None:
        """Expand `code`, written at `offset`, and append its tokens to `tokens` and its macro calls to `calls`.

        Code whose expansion exceeds a limit is appended unexpanded.
        """
        written = significant(code, offset=offset, directives=False)
        found: list[MacroCall] = []
        self._left = given = min(_MOST, self._left_of_all)
        try:
            expanded = self._expand(written, frozenset(), 0, found)
            characters = sum([len(token.text) for token in expanded])
            if characters > self._characters_left:
                raise _TooLongError  # noqa: TRY301
            self._characters_left -= characters
        except _TooLongError:
            expanded, found = written, []
            self.unexpanded.append(offset)
            self._left -= _FAILED
        self._left_of_all -= given - self._left
        shift = len(tokens)
        calls += [MacroCall(start, low + shift, high + shift) for start, low, high in found]
        tokens += expanded

    def _spend(self, count: int) -> None:
        """Count tokens that are read or written."""
        self._left -= count
        if self._left < 0:
            self._left = 0
            raise _TooLongError

    def _expand(
        self, tokens: list[Token], hidden: frozenset[str], depth: int, calls: list[MacroCall] | None = None
    ) -> list[Token]:
        """Replace the macros in `tokens`, except for the `hidden` ones."""
        known = self.known
        if known.keys().isdisjoint([token.text for token in tokens]):
            return tokens
        self._spend(len(tokens))
        if depth > _DEPTH:
            raise _TooLongError
        out: list[Token] = []
        index, count = 0, len(tokens)
        while index < count:
            token = tokens[index]
            index += 1
            macro = known.get(token.text)
            if macro is None or macro.name in hidden:
                out.append(token)
                continue
            arguments: list[list[Token]] = []
            if macro.params is not None:
                self._spend(len(macro.params))
                if index >= count or tokens[index].text != "(":
                    out.append(token)
                    continue
                end = closing(tokens, index)
                arguments = _bind(macro, _split(tokens[index + 1 : end]))
                index = end + 1
            low = len(out)
            body = self._substitute(macro, arguments, hidden, depth)
            out += self._expand(body, hidden | {macro.name}, depth + 1)
            if calls is not None:
                calls.append(MacroCall(token.start, low, len(out)))
        return out

    def _substitute(
        self, macro: Macro, arguments: list[list[Token]], hidden: frozenset[str], depth: int
    ) -> list[Token]:
        """Replace the parameters in the body of `macro`, and apply ``#`` and ``##``."""
        out: list[Token] = []
        for step in self._body(macro):
            self._spend(1 + (len(arguments[step.slot]) if step.slot >= 0 else len(step.tokens)))
            tokens = step.tokens if step.slot < 0 else arguments[step.slot]
            if step.kind == "paste":
                _paste(out, tokens, is_rest=macro.is_variadic and step.slot == len(arguments) - 1)
            elif step.kind == "quote":
                out.append(Token(Kind.STRING, '""', macro.start))
            elif step.kind == "raw":
                out += tokens or [Token(Kind.WORD, "", macro.start)]
            else:
                out += self._expand(tokens, hidden, depth + 1) if step.slot >= 0 else tokens
        return out

    def _body(self, macro: Macro) -> list[_Step]:
        """Return the steps of a macro's body, without the contents of function bodies."""
        if macro.start not in self._bodies:
            code = _without_bodies(macro.body)
            is_short = len(code) <= LIMIT
            tokens = significant(code, offset=macro.start, directives=False) if is_short else []
            self._bodies[macro.start] = _steps(tokens, macro.params or ()) if is_short else None
        steps = self._bodies[macro.start]
        if steps is None:
            raise _TooLongError
        return steps


class _Step(NamedTuple):
    """One step of a macro's body, with its own tokens or, if `slot` is not negative, with the argument of that number.

    It appends tokens, appends an argument of ``##`` unexpanded, pastes to the token before, or quotes an argument.
    """

    kind: Literal["plain", "raw", "paste", "quote"]
    slot: int
    tokens: list[Token]


def _steps(tokens: list[Token], params: tuple[str, ...]) -> list[_Step]:
    """Convert the tokens of a body to steps; adjacent tokens that are not parameters are one step."""
    steps: list[_Step] = []
    plain: list[Token] = []
    slots = {name: slot for slot, name in reversed(tuple(enumerate(params)))}
    special = {"#", "##", *params}
    index, count = 0, len(tokens)
    while index < count:
        token = tokens[index]
        index += 1
        if token.text not in special:
            plain.append(token)
            continue
        following = tokens[index] if index < count else _NOTHING
        kind: Literal["plain", "raw", "paste", "quote"] = "plain"
        if token.text == "##" and index < count:
            kind = "paste"
        elif token.text == "#" and following.text in slots:
            kind = "quote"
        elif token.text in slots and following.text == "##":
            kind = "raw"
        if kind in ("paste", "quote"):
            token = following
            index += 1
        steps += [_Step("plain", -1, plain), _Step(kind, slots.get(token.text, -1), [token])]
        plain = []
    return [*steps, _Step("plain", -1, plain)]


_NOTHING = Token(Kind.CODE, "", 0)
_WORD = re.compile(r"[^\W\d]\w*")


def _without_bodies(code: str) -> str:
    """Blank the function bodies in `code`, except for their braces."""
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
    """Split the arguments of a macro call."""
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
    """Return one argument for each parameter of `macro`; a variadic parameter gets the rest with its commas."""
    params = macro.params or ()
    if macro.is_variadic and len(arguments) > len(params):
        head, rest = arguments[: len(params) - 1], arguments[len(params) - 1 :]
        joined = list(rest[0])
        for argument in rest[1:]:
            joined += [Token(Kind.SIGN, ",", argument[0].start if argument else 0), *argument]
        arguments = [*head, joined]
    return arguments + [[] for _ in range(len(params) - len(arguments))]


def _paste(out: list[Token], operand: list[Token], *, is_rest: bool) -> None:
    """Apply ``##`` to the last token of `out` and the first of `operand`."""
    if is_rest and out and out[-1].text == ",":  # GNU: `, ## __VA_ARGS__` drops the comma with the arguments.
        if operand:
            out += operand
        else:
            out.pop()
    elif operand and out:
        left, right = out.pop(), operand[0]
        text = left.text + right.text
        if len(text) > _LONGEST:
            raise _TooLongError
        kind = Kind.WORD if _WORD.fullmatch(text) else left.kind
        out.append(Token(kind, text, left.start if left.text else right.start))
        out += operand[1:]
