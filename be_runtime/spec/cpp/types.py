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
_MEMBERS = frozenset({Shape.SCALAR, Shape.STRING, Shape.SPAN, Shape.DTYPE, Shape.ENUM})


class _Definition(NamedTuple):
    """The place of a type's definition: its source, the beginning of its body there, and whether it has only names."""

    base: int
    text: str
    code: str
    start: int
    is_enum: bool

    def tokens(self) -> list[Token]:
        """The tokens between its braces; none if there are conditions among them."""
        end = skip_body(self.code, self.start) - 1
        has_conditions = "#" in self.text[self.start : end]
        return [] if has_conditions else significant(self.code[self.start : end], offset=self.base + self.start)


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
        self._resolved: dict[tuple[str, bool], CppParam] = {}
        self._found: dict[str, list[_Definition]] = {}
        for base, text, code in sources:
            for match in _DEFINITION.finditer(code):
                definition = _Definition(base, text, code, match.end(), match["enum"] is not None)
                self._found.setdefault(match["name"], []).append(definition)

    def resolve(self, param: CppParam, *, is_member: bool = False) -> CppParam:
        """Return a parameter, or a field, with what is known of its type, if it is one of these types."""
        if param.shape is not Shape.UNKNOWN:
            return param
        if (param.type, is_member) not in self._resolved:
            self._resolved[param.type, is_member] = self._resolve(param, is_member=is_member)
        known = self._resolved[param.type, is_member]
        return param._replace(shape=known.shape, choices=known.choices, members=known.members)

    def _resolve(self, param: CppParam, *, is_member: bool) -> CppParam:
        match = _NAME.fullmatch(_QUALIFIER.sub("", param.type).strip())
        found = self._found.get(match[1], ()) if match else ()
        if len(found) != 1 or ("&" in param.type and "const" not in param.type):
            return param
        tokens = found[0].tokens()
        if any(token.kind is Kind.WORD and token.text in self._macros for token in tokens):
            return param
        if found[0].is_enum:
            choices = _choices(tokens)
            return param._replace(shape=Shape.ENUM, choices=choices) if 0 < len(choices) <= _MOST else param
        members = () if is_member else self._members(tokens)
        return param._replace(shape=Shape.STRUCT, members=members) if members else param

    def _members(self, tokens: Sequence[Token]) -> tuple[CppParam, ...]:
        """Read the fields of a structure; none if one of its members is anything else."""
        members: list[CppParam] = []
        *parts, rest = _split_fields(tokens)
        if len(parts) > _MOST:
            return ()
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
