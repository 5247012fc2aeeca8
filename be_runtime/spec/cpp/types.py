"""The enumerations and plain structures that a source defines, and what a caller can set of them. Pure.

Only what is certain counts: a type that is defined once, without macros and conditions in it. An enumeration has names,
with values that don't matter here; a structure has fields alone, each declared by itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
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
_MEMBERS = frozenset({Shape.SCALAR, Shape.STRING, Shape.SPAN, Shape.DTYPE, Shape.ENUM})


class _Definition(NamedTuple):
    """The text between the braces of one type's definition, and its place."""

    is_enum: bool
    body: str
    start: int


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
        self._found: dict[str, list[_Definition]] = {}
        for base, text, code in sources:
            for name, definition in _definitions(base, text, code):
                self._found.setdefault(name, []).append(definition)

    def resolve(self, param: CppParam) -> CppParam:
        """Return a parameter with what is known of its type, if it is one of these types."""
        match = _NAME.fullmatch(_QUALIFIER.sub("", param.type).strip()) if param.shape is Shape.UNKNOWN else None
        found = self._found.get(match[1], ()) if match else ()
        if len(found) != 1 or ("&" in param.type and "const" not in param.type):
            return param
        tokens = significant(found[0].body, offset=found[0].start)
        if any(token.kind is Kind.WORD and token.text in self._macros for token in tokens):
            return param
        if found[0].is_enum:
            choices = _choices(tokens)
            return param._replace(shape=Shape.ENUM, choices=choices) if choices else param
        members = self._members(tokens)
        return param._replace(shape=Shape.STRUCT, members=members) if members else param

    def _members(self, tokens: Sequence[Token]) -> tuple[CppParam, ...]:
        """Read the fields of a structure; none if one of its members is anything else."""
        members = []
        for part in _split_fields(tokens):
            texts = {token.text for token in part}
            field = parse_params(_with_equals(part), using_be=self._using_be) if texts.isdisjoint(_NO_FIELD) else ()
            resolved = [self.resolve(one) for one in field if one.shape is not Shape.UNKNOWN or one.name]
            if len(resolved) != 1 or resolved[0].shape not in _MEMBERS or not resolved[0].name:
                return ()
            if resolved[0].type.startswith("const ") or resolved[0].type.endswith(" const"):
                return ()
            members += resolved
        return tuple(members)


def _definitions(base: int, text: str, code: str) -> Iterator[tuple[str, _Definition]]:
    """List the definitions in one source; one that has conditions is empty: it counts, but says nothing."""
    for match in _DEFINITION.finditer(code):
        end = skip_body(code, match.end()) - 1
        written = text[match.end() : end]
        body = "" if "#" in written else code[match.end() : end]
        yield match["name"], _Definition(match["enum"] is not None, body, base + match.end())


def _choices(tokens: list[Token]) -> tuple[str, ...]:
    """Read the names of an enumeration; none if there is anything else."""
    parts = [part for part in split_commas(tokens) if part]
    are_names = all(part[0].kind is Kind.WORD and (len(part) == 1 or part[1].text in ("=", "[")) for part in parts)
    return tuple(part[0].text for part in parts) if are_names else ()


def _split_fields(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at semicolons; what follows the last is a field, too, which no structure has."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text == ";":
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts[-1] else parts[:-1]


def _with_equals(tokens: list[Token]) -> list[Token]:
    """Write ``n{3}`` as ``n = 3``."""
    opening = next((index for index, token in enumerate(tokens) if token.text == "{"), len(tokens))
    if closing(tokens, opening) != len(tokens) - 1 or any(token.text == "=" for token in tokens):
        return tokens
    return [*tokens[:opening], tokens[opening]._replace(text="="), *tokens[opening + 1 : -1]]
