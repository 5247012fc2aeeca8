"""The enumerations and plain structures that a source defines, and what a caller can set of them. Pure.

Only what is certain counts: a type that is defined once, without macros and conditions in it. An enumeration has names,
with values that don't matter here; a structure has fields alone, each declared by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from be_runtime.spec.cpp.cpp_params import CppParam, Shape, parse_params, split_commas
from be_runtime.spec.cpp.declarations import skip_body
from be_runtime.spec.cpp.lexer import Kind, Token, closing, significant

_DEFINITION = re.compile(
    r"\b(?:(?P<enum>enum)\s++(?:(?:class|struct)\s++)?+|struct\s++)(?P<name>[^\W\d]\w*+)\s*+"
    r"(?(enum)(?::[\w\s:]{1,60}+)?+)\{"
)
_NAME = re.compile(r"(?:::\s*)?(?:\w+\s*::\s*)*(\w+)\s*&?")
_QUALIFIER = re.compile(r"\b(?:const|struct|enum)\b")
_NO_FIELD = frozenset(["(", "[", ":", "*", "&", "&&", "static", "using", "typedef", "friend", "mutable", "volatile"])
_CONST = re.compile(r"\bconst\b(?![^<]*>)")
_MOST = 1000
"""Limit for the names of an enumeration and the fields of a structure that are read."""
_MOST_CHARACTERS = 1 << 19
"""Limit for the characters of all definitions that are read: only those within each other can have more."""
_MEMBERS = frozenset({Shape.SCALAR, Shape.STRING, Shape.SPAN, Shape.DTYPE, Shape.ENUM})


class _Definition(NamedTuple):
    """The place of a type's definition: its source, the beginning of its body there, and whether it has only names."""

    base: int
    text: str
    code: str
    start: int
    is_enum: bool


class _Content(NamedTuple):
    """Shape, names and fields that a definition gives to the parameters of its type."""

    shape: Shape = Shape.UNKNOWN
    choices: tuple[str, ...] = ()
    members: tuple[CppParam, ...] = ()


class CppTypes:
    """The types that the sources of a module define.

    Parameters
    ----------
    sources : sequence of (int, str, str)
        The place of each source, its text, and its code, in which comments and directives are blank.
    macros : collection of str
        Names of all macros.
    using_be : bool
        True if names of the namespace ``BE`` need no qualification.

    Examples
    --------
    >>> text = "struct Step { float rate = 0.1f; int n; }; enum class Mode : char { fast, slow = 3 };"
    >>> types = CppTypes([(0, text, text)], ())
    >>> step, mode = map(types.resolve, parse_params(significant("const Step& s, Mode m")))
    >>> [(field.name, field.shape.name) for field in step.members], mode.choices
    ([('rate', 'SCALAR'), ('n', 'SCALAR')], ('fast', 'slow'))
    """

    def __init__(
        self, sources: Sequence[tuple[int, str, str]], macros: Collection[str], *, using_be: bool = False
    ) -> None:
        self._macros = frozenset(macros)
        self._using_be = using_be
        self._left = _MOST_CHARACTERS
        self._contents: dict[str, _Content] = {}
        self._found: dict[str, list[_Definition]] = {}
        for base, text, code in sources:
            for match in _DEFINITION.finditer(code):
                definition = _Definition(base, text, code, match.end(), match["enum"] is not None)
                self._found.setdefault(match["name"], []).append(definition)

    def resolve(self, param: CppParam, *, is_member: bool = False) -> CppParam:
        """Return a parameter, or a field, with what is known of its type, if it is one of these types."""
        if param.shape is not Shape.UNKNOWN:
            return param
        match = _NAME.fullmatch(_QUALIFIER.sub("", param.type).strip())
        name = match[1] if match else ""
        found = self._found.get(name, ())
        if len(found) != 1 or ("&" in param.type and "const" not in param.type):
            return param
        if is_member and not found[0].is_enum:
            return param
        if name not in self._contents:  # One type may be spelled in many ways.
            self._contents[name] = self._content(found[0])
        return param._replace(**self._contents[name]._asdict())

    def _content(self, definition: _Definition) -> _Content:
        """Read a definition; nothing is known of it if it has macros."""
        tokens = self._tokens(definition)
        if any(token.kind is Kind.WORD and token.text in self._macros for token in tokens):
            return _Content()
        if definition.is_enum:
            choices = _choices(tokens)
            return _Content(Shape.ENUM, choices=choices) if 0 < len(choices) <= _MOST else _Content()
        members = self._members(tokens)
        return _Content(Shape.STRUCT, members=members) if members else _Content()

    def _tokens(self, definition: _Definition) -> list[Token]:
        """Return the tokens between its braces; none if it does not end, or if there are conditions among them."""
        base, text, code, start, _ = definition
        if self._left < 0:
            return []
        end = skip_body(code, start) - 1
        self._left -= end - start
        if self._left < 0 or end == len(code) or "#" in text[start:end]:
            return []
        return significant(code[start:end], offset=base + start)

    def _members(self, tokens: Sequence[Token]) -> tuple[CppParam, ...]:
        """Read the fields of a structure; none if one of its members is anything else."""
        members: list[CppParam] = []
        if [token.text for token in tokens].count(";") > _MOST:
            return ()
        *parts, rest = _split_fields(tokens)
        for part in parts:
            texts = [token.text for token in part]
            if rest or not _NO_FIELD.isdisjoint(texts[: texts.index("=") if "=" in texts else None]):
                return ()
            fields = parse_params(part, using_be=self._using_be)
            members += [self.resolve(field, is_member=True) for field in fields]
            if len(fields) != 1 or members[-1].shape not in _MEMBERS or not members[-1].name:
                return ()
            if _CONST.search(members[-1].type):
                return ()
        return tuple(members)


def _choices(tokens: list[Token]) -> tuple[str, ...]:
    """Read the names of an enumeration; none if there is anything else."""
    parts = [part for part in split_commas(tokens) if part]
    are_names = all(part[0].kind is Kind.WORD and (len(part) == 1 or part[1].text in ("=", "[")) for part in parts)
    return tuple(part[0].text for part in parts) if are_names else ()


def _split_fields(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at semicolons, and write ``n{3}`` as ``n = 3``; the last part is what follows the last semicolon."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == ";":
            parts[-1] = _with_equals(parts[-1])
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def _with_equals(tokens: list[Token]) -> list[Token]:
    """Write ``n{3}`` as ``n = 3``."""
    opening = next((index for index, token in enumerate(tokens) if token.text == "{"), len(tokens))
    if closing(tokens, opening) != len(tokens) - 1 or any(token.text == "=" for token in tokens):
        return tokens
    return [*tokens[:opening], tokens[opening]._replace(text="="), *tokens[opening + 1 : -1]]
