"""Functions that C++ headers declare: name, return type and parameters; and the calls in their bodies."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from itertools import islice

from be_runtime.signature.cpp.lexer import CLOSING, OPENING, Kind, Token, closing
from be_runtime.signature.cpp.outline import Header
from be_runtime.signature.cpp.params import CppParam, parse_params
from be_toolchain.named import NamedTuple

_LONGEST = 1000
"""Limit for the characters of a call's arguments."""
_MOST = 100
"""Limit for the calls of one function that are judged."""
_CALLS = (
    *("cudaLaunch(?:Cooperative)?Kernel", r"cudaMem(?:cpy|set)\w*", r"cub::Device\w+::\w+"),
    r"thrust::\w+",
)
_WORK = re.compile("|".join(("<<<", *(rf"{call}\s*(?:<[^;(){{}}]{{0,200}}>)?\s*\(" for call in _CALLS))))
"""It finds places by their first characters, which is fast only if each alternative begins with a literal."""
_BEFORE_STREAM = {
    "<<<": 3,
    **dict.fromkeys(("cudaLaunchKernel", "cudaLaunchCooperativeKernel"), 5),
    "cudaMemcpyAsync": 4,
    "cudaMemsetAsync": 3,
    "cudaMemcpy2DAsync": 7,
    "cudaMemset2DAsync": 5,
}
"""Number of arguments before the stream, which is CUDA's default stream if a call leaves it out."""
_CALL = re.compile(r"[\w:]+")
_WORDS = re.compile(r"\w+")
_NAME_BEFORE = re.compile(r"[A-Za-z_][\w:]*(?:<[^;(){}]*>)?\s*$")
_WAIT = re.compile(r"(?:Synchronize|\bcudaStreamWaitEvent)\s*\(")
_DEFAULT_STREAMS = frozenset(["0", "nullptr", "NULL", "cudaStreamLegacy", "cudaStreamPerThread"])
_CAST = re.compile(r"^(?:\(\s*cudaStream_t\s*\)|(?:static|reinterpret)_cast<\s*cudaStream_t\s*>)|^cudaStream_t(?=[{(])")
_NULL = re.compile(r"\bnullptr\b|\bNULL\b|^(?:\([^()]*\)\s*)?0$")
_THRUST_DEFAULT = re.compile(r"^thrust::(?:device|cuda::par(?:_nosync)?)$")
"""Policies of Thrust without a stream."""
_PASSES = re.compile(r"stream|\benv\b|\.get\(|^[\w.]*\.[A-Za-z_]\w*$", re.IGNORECASE)
"""An argument of CUB that may be a stream: by its name, an environment, or a member."""
_CALLED = re.compile(r"\b([A-Za-z_]\w*)\s*(?:<[^;(){}]{0,200}>)?\s*\(")
_MOST_CALLED = 200


def default_stream_work(
    body: str, streams: Container[str] = (), hidden: Container[str] = (), *, most: int = _MOST, is_file: bool = False
) -> Iterator[tuple[int, str]]:
    """Find the launches, copies and library calls of a body that are known to run on CUDA's default stream.

    Parameters
    ----------
    body : str
        Code without comments and the contents of literals.
    streams, hidden : container of str
        Names of parameters that are streams, and of macros that may stand for one.
    most : int
        Limit for the calls that are judged.
    is_file : bool
        False to judge nothing after the first wait for a stream.

    Yields
    ------
    tuple of int and str
        Place in the body, and a text for a message.

    Examples
    --------
    >>> list(default_stream_work("k<<<n, 256>>>(x); k<<<n, 256, 0, stream>>>(x); cudaMemset(x, 0, 4);"))
    [(0, 'k<<<n, 256>>>'), (47, 'cudaMemset')]
    """
    wait = None if is_file else _WAIT.search(body)
    for work in islice(_WORK.finditer(body, 0, wait.start() if wait else len(body)), most):
        begin, start = work.span()
        if work[0] == "<<<":
            close = body.find(">>>", start, start + _LONGEST)
            text = body[start:close]
            if close < 0 or ";" in text:
                continue
            name, arguments = work[0], _arguments(f"{text})", 0) if "(" in text or "{" in text else text.split(",")
        elif begin and body[begin - 1 : begin].isidentifier():
            continue
        else:
            name, arguments = _CALL.match(work[0])[0], _arguments(body, start)  # type: ignore[index]  # a name is first
        if name != "<<<" and begin and body[begin - 1] in ".>":  # a member
            continue
        if not _is_default(name, [argument.strip() for argument in arguments], "" if is_file else body, streams):
            continue
        if any(word in hidden for argument in arguments for word in _WORDS.findall(argument)):
            continue
        if name == "<<<" and (kernel := _NAME_BEFORE.search(body, max(0, begin - 100), begin)):
            begin = kernel.start()
        yield begin, " ".join(body[begin : close + 3].split()) if name == "<<<" else name


def _is_default(name: str, arguments: Sequence[str], body: str, streams: Container[str]) -> bool:
    """Return whether a call is known to run on the default stream."""
    if name in _BEFORE_STREAM:
        before = _BEFORE_STREAM[name]
        given = _CAST.sub("", (arguments[before : before + 1] or ["0"])[0]).strip("(){} ") or "0"
        return len(arguments) >= before - (name == "<<<" or "Launch" in name) and given in _DEFAULT_STREAMS
    if name.startswith("cudaMem"):
        return not name.endswith("Async")
    if name.startswith("thrust::"):  # the iterators decide where the work is if no policy does
        return bool(arguments) and _THRUST_DEFAULT.match(arguments[0]) is not None
    return (
        len(arguments) > 1
        and not _asks_for_size(name, arguments[0], body)
        and not any(
            argument in streams or _PASSES.search(argument) or _is_stream(argument, body, streams)
            for argument in arguments[2:]
        )
    )


def _asks_for_size(name: str, storage: str, body: str) -> bool:
    """Return whether a call of CUB may only compute the size of its storage: that is null, or the next call has it."""
    if _NULL.search(storage):
        return True
    is_null = re.search(
        rf"\b{re.escape(storage)}\s*(?:=\s*(?:\([^()]*\)\s*)?(?:nullptr|NULL|0)\b|\{{\s*(?:nullptr)?\s*\}})", body
    )
    return is_null is not None and body.count(f"{name}(") > 1


def _is_stream(name: str, body: str, streams: Container[str]) -> bool:
    """Return whether a body defines a variable with a stream."""
    if not name.isidentifier():
        return False
    defined = re.search(rf"\bcudaStream_t\s+{name}\b|\b{name}\s*=[^;=]*\bcudaStream_t\b", body)
    copied = re.search(rf"\b{name}\s*(?:=|\{{|\()\s*(\w+)\s*[;)}}]", body)
    return defined is not None or (copied is not None and copied[1] in streams)


def called_names(body: str) -> tuple[str, ...]:
    """List the names of the functions and macros that a body calls, and its keywords before a parenthesis."""
    names = dict.fromkeys(match[1] for match in islice(_CALLED.finditer(body), _MOST_CALLED))
    return tuple(names)


def _arguments(text: str, start: int) -> list[str]:
    """Split the arguments from after an opening parenthesis to the closing one; none if that is far away."""
    found, depth, begin = [], 0, start
    for position in range(start, min(len(text), start + _LONGEST)):
        char = text[position]
        if depth == 0 and char in ",)":
            found.append(text[begin:position])
            begin = position + 1
            if char == ")":
                return found
        depth += (char in OPENING) - (char in CLOSING)
    return []


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
"""Last words of types that are certainly not void."""
_MOST_BEFORE = 500
"""Limit for the tokens beside a declarator that are read: a header may hold thousands of macro calls."""


class Function(NamedTuple):
    """One declaration of a function.

    Parameters
    ----------
    name : str
        Name without qualifiers.
    call_name : str
        Qualified name, as code outside all namespaces calls it.
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
        Place to show to a reader: its name, or the macro call that generates it.
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
    """Tokenize a header once for all names: a header without a semicolon may have thousands of names."""
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

    Such a call needs no semicolon, so the next declaration's header begins with it.
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
    """Return whether a function returns nothing; macros for attributes may stand before ``void``.

    Examples
    --------
    >>> from be_runtime.signature.cpp.outline import CppCode
    >>> text = "MY_API void* f()"
    >>> returns_void(parse_function(Header(CppCode(text, 0), 0, len(text), False, ()), "f"))
    False
    """
    return function.returns.split()[-1] == "void"


def returns_value(function: Function) -> bool:
    """Return whether a function certainly returns something: no macro, alias or template can stand for ``void``.

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
