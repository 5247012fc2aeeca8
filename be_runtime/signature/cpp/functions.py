"""Functions that C++ headers declare: name, return type and parameters."""

from __future__ import annotations

from collections.abc import Mapping

from be_runtime.signature.cpp.lexer import OPENING, Kind, Token, closing
from be_runtime.signature.cpp.outline import Header
from be_runtime.signature.cpp.params import CppParam, parse_params
from be_toolchain.named import NamedTuple

_SPECIFIERS = frozenset(
    [
        *("static", "inline", "extern", "constexpr", "virtual", "explicit", "__inline__", "__inline", "__cdecl"),
        *("__host__", "__device__", "__global__", "__forceinline__", "__noinline__"),
    ]
)
_NOT_A_DECLARATION = frozenset(
    ["=", "return", "new", "delete", "typedef", "using", "friend", ".", "->", ",", "operator"]
)
_VALUES = frozenset(
    ["*", "&", "&&", "bool", "char", "short", "int", "long", "signed", "unsigned", "float", "double", "size_t"]
    + [f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""Last words of types that are never void."""
_MOST_BEFORE = 500
"""Limit for the tokens beside a declarator: a header may have thousands of macro calls."""


class Function(NamedTuple):
    """One declaration of a function.

    Parameters
    ----------
    name : str
        Name without qualifiers.
    call_name : str
        Qualified name for code outside all namespaces.
    params : tuple of CppParam
    returns : str
        Return type as written.
    returns_start, returns_length : int
        Place of the return type.
    has_body : bool
        True if this is the definition.
    template : tuple of str or None
        Texts of the template's parameter list; None for an ordinary function.
    owner : str
        Name of the class of a member function; else empty.
    specifiers : frozenset of str
        Specifiers such as ``__global__``.
    start : int
        Place of its name.
    line_start : int
        Place for messages: its name, or the macro call that generates it.
    """

    name: str
    call_name: str
    params: tuple[CppParam, ...]
    returns: str
    has_body: bool
    template: tuple[str, ...] | None
    owner: str
    specifiers: frozenset[str]
    start: int
    line_start: int
    returns_start: int
    returns_length: int

    @property
    def required(self) -> int:
        """The minimum number of arguments of a call."""
        return next((i for i, param in enumerate(self.params) if param.has_default), len(self.params))

    @property
    def signature(self) -> tuple[str, tuple[str, ...]]:
        """The name and the types that distinguish overloads."""
        return self.call_name, tuple(param.type for param in self.params)


class Declarators(NamedTuple):
    """The tokens of a header, and the parentheses after the last occurrence of each name outside brackets."""

    tokens: list[Token]
    parentheses: Mapping[str, tuple[int, int]]


def find_declarators(header: Header) -> Declarators:
    """Tokenize a header once for all names, since a header without a semicolon may have thousands of names."""
    tokens = header.tokens()
    found: dict[str, tuple[int, int]] = {}
    index = 0
    while index < len(tokens):
        if tokens[index].text in OPENING:
            close = closing(tokens, index)
            if tokens[index].text == "(" and index:
                found[tokens[index - 1].text] = index, close
            index = close
        index += 1
    return Declarators(tokens, found)


def parse_function(
    header: Header, name: str, *, using_be: bool = False, found: Declarators | None = None
) -> Function | None:
    """Parse the function `name` that a header declares, or return None.

    Parameters
    ----------
    header : Header
        A declaration.
    name : str
        Name of the function without qualifiers.
    using_be : bool
        True if names of the namespace ``BE`` need no qualification.
    found : Declarators, optional
        Result of `find_declarators` for the header.

    Examples
    --------
    >>> from be_runtime.signature.cpp.outline import CppCode
    >>> text = "static void ops::f(BE::Tensor out)"
    >>> function = parse_function(Header(CppCode(text, 0), 0, len(text), True, ()), "f")
    >>> function.call_name, function.returns, len(function.params)
    ('::ops::f', 'void', 1)
    """
    tokens, parentheses = found or find_declarators(header)
    if name not in parentheses:
        return None
    opening, end = parentheses[name]
    before, qualifiers = _split_qualifiers(tokens[max(0, opening - _MOST_BEFORE) : opening - 1])
    before, template = _without_template(_without_calls(before))
    specifiers = frozenset(token.text for token in before)
    returns = [token for token in before if token.text not in _SPECIFIERS and token.kind is not Kind.STRING]
    if not returns or not _NOT_A_DECLARATION.isdisjoint(specifiers):
        return None
    if len(returns) == 1 and returns[0].text == "auto":
        after = tokens[end + 1 : end + _MOST_BEFORE]
        arrow = next((index for index, token in enumerate(after) if token.text == "->"), len(after))
        returns = after[arrow + 1 :] or returns
    first, last = returns[0], returns[-1]
    name_token = tokens[opening - 1]
    scopes = [scope.name for scope in header.scopes if scope.name]
    return Function(
        name=name,
        call_name="".join(f"::{part}" for part in (*scopes, *qualifiers, name)),
        params=parse_params(tokens[opening + 1 : end], using_be=using_be),
        returns=" ".join([token.text for token in returns]),
        has_body=header.has_body,
        template=template,
        owner=next((scope.name or "a class" for scope in header.scopes if scope.is_class), ""),
        specifiers=specifiers,
        start=name_token.start,
        line_start=header.unit.call_of(header.start, opening - 1, name_token),
        returns_start=first.start,
        returns_length=max(len(first.text), last.start + len(last.text) - first.start),
    )


def _split_qualifiers(tokens: list[Token]) -> tuple[list[Token], list[str]]:
    """Split ``a::b::`` off the end."""
    names: list[str] = []
    end = len(tokens)
    while end >= 2 and tokens[end - 1].text == "::" and tokens[end - 2].kind is Kind.WORD:
        if tokens[end - 2].text in ("void", "auto"):  # `void ::f()`
            return tokens[: end - 1], names
        names.insert(0, tokens[end - 2].text)
        end -= 2
    return tokens[: end - 1] if end and tokens[end - 1].text == "::" else tokens[:end], names


def _without_calls(tokens: list[Token]) -> list[Token]:
    """Remove attributes, access specifiers and calls of unknown macros.

    A macro call needs no semicolon, so the next declaration's header may begin with it.
    """
    out: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.text == "[":
            index = closing(tokens, index)
        elif token.text == "(":
            del out[-1:]
            index = closing(tokens, index)
        elif token.text == ":":  # An access specifier of a class.
            out.clear()
        else:
            out.append(token)
        index += 1
    return out


def _without_template(tokens: list[Token]) -> tuple[list[Token], tuple[str, ...] | None]:
    """Split ``template <...>`` off the front."""
    start = next((i for i, token in enumerate(tokens) if token.text == "template"), None)
    if start is None:
        return tokens, None
    depth = 0
    for index in range(start + 1, len(tokens)):
        depth += (tokens[index].text == "<") - (tokens[index].text == ">")
        if depth == 0:
            return tokens[index + 1 :], tuple(token.text for token in tokens[start + 2 : index])
    return [], ()


def returns_void(function: Function) -> bool:
    """Return whether a function returns ``void``; macros for attributes may come before ``void``.

    Examples
    --------
    >>> from be_runtime.signature.cpp.outline import CppCode
    >>> text = "MY_API void* f()"
    >>> returns_void(parse_function(Header(CppCode(text, 0), 0, len(text), False, ()), "f"))
    False
    """
    return function.returns.split()[-1] == "void"


def returns_value(function: Function) -> bool:
    """Return whether a function certainly returns a value: a macro, alias or template may still be ``void``.

    Examples
    --------
    >>> from be_runtime.signature.cpp.outline import CppCode
    >>> for text in ("int f()", "BE::Tensor f()", "auto f() -> void*", "MY_API void f()", "Alias f()"):
    ...     print(returns_value(parse_function(Header(CppCode(text, 0), 0, len(text), False, ()), "f")))
    True
    True
    True
    False
    False
    """
    *before, last = [word for word in function.returns.split() if word not in ("const", "volatile")] or ["int"]
    return last in _VALUES or (last in ("Tensor", "Tensors") and before[-2:] in ([], ["BE", "::"]))
