"""C++ parameters and their types, and the enumerations and structures that sources define for them. Pure.

A definition counts only if it is certain: its type is defined once, without macros and conditions. Only the names of an
enumeration matter here; a structure has nothing but fields, each with a declaration of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any

from be_runtime.dtypes import BY_NAME, DTYPES, DType
from be_runtime.signature.cpp.lexer import CLOSING, OPENING, Kind, Token, closing, significant
from be_runtime.signature.cpp.outline import skip_body
from be_toolchain.named import NamedTuple

CPP_SCALARS: dict[str, str] = {
    # Fundamental types, in the form that `canonical_type` gives: sorted words, no `signed`, no redundant `int`.
    "char": "int8",
    "char signed": "int8",
    "char unsigned": "uint8",
    "short": "int16",
    "short unsigned": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    # LP64: every platform that CUDA and jaxlib's GPU wheels share.
    "long": "int64",
    "long unsigned": "uint64",
    "long long": "int64",
    "long long unsigned": "uint64",
    # <cstdint> and <cstddef>, without `std::`.
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "ptrdiff_t": "int64",
    "ssize_t": "int64",
    "size_t": "uint64",
    **{spelling: row.name for row in DTYPES for spelling in row.cpp_types},
}

STREAM_TYPES = frozenset({"cudaStream_t", "CUstream"})

_BUILTIN = frozenset(["bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "void", "auto"])
_QUALIFIERS = frozenset(
    ["const", "volatile", "struct", "class", "enum", "typename", "register", "__restrict__", "__restrict"]
)
_ATTRIBUTES = frozenset({"__attribute__", "alignas", "__align__", "__declspec"})
_SIGNS = frozenset(["*", "&", "&&", "..."])
_LONGEST = 200
"""Limit for the characters of a parameter that a message underlines."""
_MOST = 1000
"""Limit for the tokens of a parameter, the names of an enumeration and the fields of a structure."""


class Shape(Enum):
    """The kind of a parameter, as far as the text determines it without a compiler."""

    INPUT = "a const BE::Tensor"
    OUTPUT = "a BE::Tensor"
    OPTIONAL = "an optional BE::Tensor"
    OPTIONAL_OUTPUT = "a pointer to a BE::Tensor"
    INPUTS = "a const BE::Tensors"
    OUTPUTS = "a BE::Tensors"
    STREAM = "a CUDA stream"
    SCALAR = "a scalar"
    NUMBER = "a BE::Scalar"
    STRING = "a string"
    SPAN = "a BE::Span"
    ENUM = "an enumeration"
    STRUCT = "a structure"
    DTYPE = "a BE::DType"
    POINTER = "a pointer"
    ARRAY = "an array"
    REFERENCE = "a reference to a non-const scalar"
    RVALUE = "an rvalue reference"
    PACK = "variadic"
    WORKSPACE = "a BE::Workspace"
    STATE = "a BE::State"
    UNKNOWN = "of a type without a mapping"


TENSORS = frozenset({Shape.INPUT, Shape.OUTPUT, Shape.OPTIONAL, Shape.OPTIONAL_OUTPUT, Shape.INPUTS, Shape.OUTPUTS})
_CLASSES = {
    # The shapes of a const parameter and of any other parameter.
    "BE::Tensor": (Shape.INPUT, Shape.OUTPUT),
    "at::Tensor": (Shape.INPUT, Shape.OUTPUT),
    "torch::Tensor": (Shape.INPUT, Shape.OUTPUT),
    "BE::Tensors": (Shape.INPUTS, Shape.OUTPUTS),
    "BE::DType": (Shape.DTYPE, Shape.DTYPE),
    "BE::Workspace": (Shape.WORKSPACE, Shape.WORKSPACE),
    "string_view": (Shape.STRING, Shape.STRING),
    "string": (Shape.STRING, Shape.STRING),
    "optional<BE::Tensor>": (Shape.OPTIONAL, Shape.OPTIONAL),
}
_BY_REFERENCE = frozenset({*TENSORS, Shape.WORKSPACE})
_IN_BE = re.compile(r"(?<!::)\b(Tensors?|DType|Scalar|Span|State|Workspace)\b")
_POINTERS = tuple(
    f"{text}*" for name in ("Tensor", "BE::Tensor", "::BE::Tensor") for text in (name, f"const{name}", f"{name}const")
)
"""Types of an optional array: a pointer, to const for an input, that is null if a call lacks the array."""


class CppParam(NamedTuple):
    """One parameter of a C++ function.

    Parameters
    ----------
    shape : Shape
        Kind of the parameter.
    type : str
        Type as written, without its name and default.
    name : str
        Name; empty if it has none.
    dtype : DType or None
        Element type for ``Shape.SCALAR``, ``Shape.SPAN`` and ``Shape.REFERENCE``; for ``Shape.UNKNOWN``, a type that
        only arrays can have.
    has_default : bool
        True if a call may omit it.
    start, length : int
        Place of the parameter.
    default : tuple of Token
        Its default.
    choices : tuple of str
        Names of the values for ``Shape.ENUM``.
    members : tuple of CppParam
        Fields for ``Shape.STRUCT``.
    """

    shape: Shape
    type: str
    name: str
    dtype: DType | None
    has_default: bool
    start: int
    length: int
    default: tuple[Token, ...] = ()
    choices: tuple[str, ...] = ()
    members: tuple[CppParam, ...] = ()


def canonical_type(texts: Sequence[str]) -> str:
    """Return one spelling for all spellings of a type, given its tokens without qualifiers.

    Examples
    --------
    >>> canonical_type(["unsigned", "long", "int"]), canonical_type(["::", "std", "::", "int32_t"])
    ('long unsigned', 'int32_t')
    """
    if not _BUILTIN.isdisjoint(texts) and _BUILTIN.issuperset(texts):
        words = sorted(texts)
        if "signed" in words and "char" not in words:
            words.remove("signed")
        if "int" in words and len(words) > 1:
            words.remove("int")
        return " ".join(words) or "int"
    text = "".join(texts).removeprefix("::")
    return text.removeprefix("cuda::").removeprefix("std::")


def parse_params(tokens: list[Token], *, using_be: bool = False) -> tuple[CppParam, ...]:
    """Parse the parameters between the parentheses of a function's declaration.

    Parameters
    ----------
    tokens : list of Token
        Significant tokens between the parentheses.
    using_be : bool
        True if names of the namespace ``BE`` need no qualification.

    Examples
    --------
    >>> from be_runtime.signature.cpp.lexer import significant
    >>> [(p.name, p.shape.name) for p in parse_params(significant("BE::Tensor const& x, float, int nTensors = 3"))]
    [('x', 'INPUT'), ('', 'SCALAR'), ('nTensors', 'SCALAR')]
    """
    if not tokens or [token.text for token in tokens] == ["void"]:
        return ()
    params = []
    for part in filter(None, split_commas(tokens)):
        texts = tuple([token.text for token in part])
        equals = texts.index("=") if "=" in texts else len(texts)
        first, last = part[0], part[max(0, equals - 1)]
        length = last.start + len(last.text) - first.start
        # If a macro's argument is part of the parameter, its tokens are not contiguous.
        length = length if len(first.text) <= length < _LONGEST else len(first.text)
        known = _classify(texts[: min(equals, _MOST)], using_be)
        params.append(CppParam(*known, equals < len(texts), first.start, length, tuple(part[equals + 1 :])))
    return tuple(params)


def split_commas(tokens: list[Token]) -> list[list[Token]]:
    """Split at the commas outside of brackets and template arguments."""
    parts: list[list[Token]] = [[]]
    depth = angle_end = 0
    closers = _closing_angles(tokens)
    for index, token in enumerate(tokens):
        text = token.text
        if text == "," and depth == 0 and index >= angle_end:
            parts.append([])
            continue
        depth += (text in OPENING) - (text in CLOSING)
        if text == "<" and index >= angle_end and index and tokens[index - 1].kind is Kind.WORD:
            angle_end = max(angle_end, closers.get(index, 0))
        parts[-1].append(token)
    return parts


def _closing_angles(tokens: list[Token]) -> dict[int, int]:
    """Map each ``<`` to the index after the ``>`` that closes it between the same brackets."""
    found: dict[int, int] = {}
    opened: list[list[int]] = [[]]
    for index, token in enumerate(tokens):
        text = token.text
        if text in OPENING:
            opened.append([])
        elif text in CLOSING:
            opened.pop()
            opened = opened or [[]]
        elif text == "<":
            opened[-1].append(index)
        elif text == ">" and opened[-1]:
            found[opened[-1].pop()] = index + 1
    return found


@lru_cache(maxsize=4096)
def _classify(texts: tuple[str, ...], using_be: bool) -> tuple[Shape, str, str, DType | None]:
    """Return shape, type, name and element type; the results are cached, since most parameters repeat."""
    name, type_texts, declarator = _name_and_type(_without_attributes(texts))
    shape, dtype = _shape(type_texts, declarator, using_be)
    written = " ".join(type_texts + declarator)
    return shape, re.sub(r" ?(::|<|\[|\() ?| (?=[>*&,)\]])", lambda match: match[1] or "", written), name, dtype


def _without_attributes(texts: tuple[str, ...]) -> list[str]:
    """Remove ``[[...]]``, ``__attribute__((...))`` and ``alignas(...)``."""
    tokens = [Token(Kind.SIGN, text, 0) for text in texts]
    out: list[str] = []
    index = 0
    while index < len(texts):
        pair = texts[index : index + 2]
        if pair == ("[", "[") or (pair[0] in _ATTRIBUTES and pair[1:] == ("(",)):
            index = closing(tokens, index + (pair[0] != "["))
        else:
            out.append(texts[index])
        index += 1
    return out


def _name_and_type(texts: list[str]) -> tuple[str, list[str], list[str]]:
    """Split a parameter into its name, the texts of its type, and the texts of an array or function declarator."""
    cut = next((index for index, text in enumerate(texts) if text in ("[", "(") and index), len(texts))
    head, declarator = texts[:cut], texts[cut:]
    is_type = [text not in _QUALIFIERS and text not in _SIGNS for text in head]
    if (
        sum(is_type) > 1
        and is_type[-1]
        and (head[-1][0] == "_" or head[-1][0].isalpha())
        and head[-1] not in _BUILTIN
        and head[-2] != "::"
    ):
        return head[-1], head[:-1], declarator
    return "", head, declarator


def _shape(texts: list[str], declarator: list[str], using_be: bool) -> tuple[Shape, DType | None]:
    """Return the kind and element type of a type."""
    outer = _outside_angles(texts)
    bare = canonical_type([text for text in texts if text not in _QUALIFIERS and text not in _SIGNS])
    name = (_IN_BE.sub(r"BE::\1", bare) if using_be else bare).replace("<::", "<")
    is_const = "const" in outer
    if name == "BE::Tensor" and "".join(outer).startswith(_POINTERS) and not declarator:
        return Shape.OPTIONAL if is_const else Shape.OPTIONAL_OUTPUT, None
    shape = _shape_by_signs(outer, declarator)
    if shape is not None:
        return shape, None
    is_writable = "&" in outer and not is_const
    if name in _CLASSES:
        shape = _CLASSES[name][not is_const]
        return (Shape.REFERENCE if is_writable and shape not in _BY_REFERENCE else shape), None
    is_stream = bare in STREAM_TYPES and not is_writable
    if is_stream or name.startswith("BE::State<"):
        return Shape.STREAM if is_stream else Shape.STATE, None
    if name.startswith(("BE::Span<", "BE::Scalar<")) and ">" in texts:
        kind = Shape.NUMBER if name.startswith("BE::Scalar<") else Shape.SPAN
        element = texts[texts.index("<") + 1 : -1 - texts[::-1].index(">")]
        is_read = kind is Shape.NUMBER or "const" in element
        dtype = _scalar([text for text in element if text != "const"], using_be) if is_read else None
        return (kind if dtype and not is_writable else Shape.UNKNOWN), dtype
    dtype = _scalar([text for text in texts if text not in _QUALIFIERS and text != "&"], using_be)
    if dtype is None:
        return Shape.UNKNOWN, None
    if dtype.is_for_arrays_only:
        return Shape.UNKNOWN, dtype
    return (Shape.REFERENCE if is_writable else Shape.SCALAR), dtype


def _scalar(texts: Sequence[str], using_be: bool) -> DType | None:
    """Return the element type of a C++ type without qualifiers."""
    canonical = canonical_type(texts)
    name = CPP_SCALARS.get(canonical) or (CPP_SCALARS.get(f"BE::{canonical}") if using_be else None)
    return BY_NAME[name] if name else None


def _shape_by_signs(outer: list[str], declarator: list[str]) -> Shape | None:
    """Return the kind of a parameter if the signs around its type determine the kind, else None."""
    if "..." in outer:
        return Shape.PACK
    if declarator[:1] == ["["]:
        return Shape.ARRAY
    if declarator:
        return {"*": Shape.POINTER, "&": Shape.REFERENCE}.get("".join(declarator[1:2]), Shape.UNKNOWN)
    if "*" in outer:
        return Shape.POINTER
    return Shape.RVALUE if "&&" in outer else None


def _outside_angles(texts: list[str]) -> list[str]:
    """Return the texts that are not template arguments."""
    out, depth = [], 0
    for text in texts:
        depth -= text == ">"
        if depth == 0:
            out.append(text)
        depth += text == "<"
    return out


_DEFINITION = re.compile(
    r"\b(?:(?P<enum>enum)\s++(?:(?:class|struct)\s++)?+|struct\s++)(?P<name>[^\W\d]\w*+)\s*+"
    r"(?(enum)(?::[\w\s:]{1,60}+)?+)\{"
)
_NAME = re.compile(r"(?:::\s*)?(?:\w+\s*::\s*)*(\w+)\s*&?")
_QUALIFIER = re.compile(r"\b(?:const|struct|enum)\b")
_NO_FIELD = frozenset(["(", "[", ":", "*", "&", "&&", "static", "using", "typedef", "friend", "mutable", "volatile"])
_CONST = re.compile(r"\bconst\b(?![^<]*>)")
_MOST_CHARACTERS = 1 << 19
"""Limit for the characters of all definitions that are read: only nested definitions can have more."""
_MEMBERS = frozenset({Shape.SCALAR, Shape.STRING, Shape.SPAN, Shape.DTYPE, Shape.ENUM})


class _Definition(NamedTuple):
    """The definition of a type: its source, the start of its body, and whether it is an enumeration."""

    base: int
    text: str
    code: str
    start: int
    is_enum: bool


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
        self._contents: dict[str, dict[str, Any]] = {}
        self._found: dict[str, list[_Definition]] = {}
        for base, text, code in sources:
            for match in _DEFINITION.finditer(code):
                definition = _Definition(base, text, code, match.end(), match["enum"] is not None)
                self._found.setdefault(match["name"], []).append(definition)

    def resolve(self, param: CppParam, *, is_member: bool = False) -> CppParam:
        """Return a parameter or a field, with the shape, names and fields that its type defines."""
        if param.shape is not Shape.UNKNOWN:
            return param
        match = _NAME.fullmatch(_QUALIFIER.sub("", param.type).strip())
        name = match[1] if match else ""
        found = self._found.get(name, ())
        is_written = "&" in param.type and "const" not in param.type
        if len(found) != 1 or is_written or (is_member and not found[0].is_enum):
            return param
        if name not in self._contents:  # One type may have many spellings.
            self._contents[name] = self._content(found[0])
        return param._replace(**self._contents[name])

    def _content(self, definition: _Definition) -> dict[str, Any]:
        """Return the fields of `CppParam` that a definition determines; none for a definition with macros."""
        tokens = self._tokens(definition)
        if any(token.kind is Kind.WORD and token.text in self._macros for token in tokens):
            return {}
        if not definition.is_enum:
            members = self._members(tokens)
            return {"shape": Shape.STRUCT, "members": members} if members else {}
        parts = [part for part in split_commas(tokens) if part]
        are_names = all(part[0].kind is Kind.WORD and (len(part) == 1 or part[1].text in ("=", "[")) for part in parts)
        if not are_names or not 0 < len(parts) <= _MOST:
            return {}
        return {"shape": Shape.ENUM, "choices": tuple(part[0].text for part in parts)}

    def _tokens(self, definition: _Definition) -> list[Token]:
        """Return the tokens between the braces of a definition; none if it does not end, or has conditions."""
        base, text, code, start, _ = definition
        if self._left < 0:
            return []
        end = skip_body(code, start) - 1
        self._left -= end - start
        if self._left < 0 or end == len(code) or "#" in text[start:end]:
            return []
        return significant(code[start:end], offset=base + start)

    def _members(self, tokens: Sequence[Token]) -> tuple[CppParam, ...]:
        """Parse the fields of a structure; return none if it has other members."""
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


def _split_fields(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at semicolons, and convert ``n{3}`` to ``n = 3``; the last part follows the last semicolon."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token.text != ";":
            parts[-1].append(token)
            continue
        part = parts[-1]
        opening = next((index for index, each in enumerate(part) if each.text == "{"), len(part))
        if closing(part, opening) == len(part) - 1 and all(each.text != "=" for each in part):
            parts[-1] = [*part[:opening], part[opening]._replace(text="="), *part[opening + 1 : -1]]
        parts.append([])
    return parts
