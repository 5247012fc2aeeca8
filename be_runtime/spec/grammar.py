"""The arg_spec grammar: tokens for the arguments of a C++ call.

::

    spec  = token { token }               in the order of the C++ call
    token = ("arg" | "args") [ AXES ]     the next input of the JAX call
          | ("ret" | "rets") [ AXES ]     the next output; at least one
          | "stream" | "ctx.stream"       the CUDA stream; at most one
          | ("attr" | "attrs") "." NAME [ ":" TYPE ]
                                          a keyword argument of the JAX call
    AXES  = "[" [ "..." ] { AXIS } "]"    its shape; left out: any
    AXIS  = an identifier | an extent     an output's names are also an input's
    NAME  = an identifier; no two attributes have the same
    TYPE  = a name in `be_runtime.dtypes.BY_NAME`, such as float32
                                          left out: the type of the C++ parameter NAME

:func:`parse_spec` and :func:`render_spec` are inverses, except that rendering writes the first spelling of each token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import SourceSpan, SpecError
from be_runtime.spec.axes import axis_names, parse_axes, render_axes
from be_runtime.spec.cpp.cpp_params import CPP_SCALARS, canonical_type
from be_runtime.spec.model import Param, Role

_ROLES = {
    "arg": Role.ARG,
    "args": Role.ARG,
    "ret": Role.RET,
    "rets": Role.RET,
    "stream": Role.STREAM,
    "ctx.stream": Role.STREAM,
}
_ATTR = re.compile(r"attrs?\.([^:]*)(?::(.*))?", re.DOTALL)
_ARRAY = re.compile(r"(args?|rets?)\[(.*)\]", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN = "known tokens: arg, arg[n k], ret, ret[n], stream, attr.NAME, attr.NAME:TYPE"

Locate = Callable[[int], SourceSpan | None]
"""A function that returns the place of a token by its index; -1 is the function's name."""


def is_identifier(name: str) -> bool:
    """Return whether `name` is an ASCII identifier of C++."""
    return _IDENTIFIER.fullmatch(name) is not None


def _nowhere(_index: int) -> SourceSpan | None:
    return None


def parse_spec(tokens: Sequence[str], *, function: str = "", locate: Locate = _nowhere) -> tuple[Param, ...]:
    """Parse the tokens of one arg_spec.

    Parameters
    ----------
    tokens : sequence of str
        Tokens in the order of the C++ call.
    function : str
        Name of the function, for messages.
    locate : callable
        Function that returns the place of a token by its index, -1 for the function's name; only for messages.

    Returns
    -------
    tuple of Param
        Parameters. An attribute without a type has ``dtype=None``; only the C++ signature determines it.

    Raises
    ------
    SpecError
        A token, a name or a type does not exist, there is no output, there are two streams, two attributes have the
        same name, or an axis of an output is not an axis of an input.

    Examples
    --------
    >>> render_spec(parse_spec(["args", "attrs.n:int32", "ret", "ctx.stream"]))
    ('arg', 'attr.n:int32', 'ret', 'stream')
    >>> parse_spec(["arg[n k]", "arg[k]", "ret[n]"])[0].axes
    ('n', 'k')
    >>> parse_spec(["arg", "stream"], function="f")
    Traceback (most recent call last):
    be_runtime.errors.SpecError: f: the arg_spec has no 'ret'; a function needs at least one output
    """
    params = tuple(_parse_token(token, function, locate, index) for index, token in enumerate(tokens))
    _check(params, tokens, function, locate)
    return params


def render_spec(params: Sequence[Param]) -> tuple[str, ...]:
    """Write the tokens of an arg_spec, each in its first spelling.

    Examples
    --------
    >>> render_spec([Param(role=Role.RET), Param(role=Role.ATTR, name="n")])
    ('ret', 'attr.n')
    """
    return tuple(_render_token(param) for param in params)


def _render_token(param: Param) -> str:
    if param.role is not Role.ATTR:
        axes = "" if param.axes is None else f"[{render_axes(param.axes)}]"
        return f"{param.role.value}{axes}"
    return f"attr.{param.name}:{param.dtype.name}" if param.dtype else f"attr.{param.name}"


def _parse_token(token: str, function: str, locate: Locate, index: int) -> Param:
    """Parse one token; errors name it."""
    role = _ROLES.get(token)
    if role is not None:
        return Param(role=role)
    array = _ARRAY.fullmatch(token)
    if array is not None:
        try:
            return Param(role=_ROLES[array[1]], axes=parse_axes(array[2]))
        except ValueError as error:
            raise SpecError(f"{function}: {token!r}: {error}", span=locate(index)) from None
    match = _ATTR.fullmatch(token)
    if match is None:
        raise SpecError(
            f"{function}: unknown arg_spec token {token!r}", span=locate(index), hints=(*_similar(token), _KNOWN)
        )
    name, type_name = match[1], match[2]
    if not is_identifier(name):
        raise SpecError(
            f"{function}: {token!r} names the attribute {name!r}, which is not an identifier",
            span=locate(index),
            hints=("write attr.NAME or attr.NAME:TYPE",),
        )
    if type_name is not None and type_name not in BY_NAME:
        raise SpecError(
            f"{function}: {token!r} has the unknown type {type_name!r}",
            span=locate(index),
            hints=(*_similar_type(name, type_name), f"types: {', '.join(BY_NAME)}"),
        )
    return Param(role=Role.ATTR, name=name, dtype=None if type_name is None else BY_NAME[type_name])


def _check(params: tuple[Param, ...], tokens: Sequence[str], function: str, locate: Locate) -> None:
    """Check the rules for the spec as a whole."""
    seen: set[str] = set()
    has_stream = False
    for index, param in enumerate(params):
        if param.role is Role.STREAM and has_stream:
            raise SpecError(f"{function}: a second {tokens[index]!r}; there is one stream", span=locate(index))
        has_stream = has_stream or param.role is Role.STREAM
        if param.role is Role.ATTR and param.name in seen:
            raise SpecError(
                f"{function}: {tokens[index]!r} names the attribute {param.name!r} again", span=locate(index)
            )
        if param.role is Role.ATTR:
            seen.add(param.name)
    bound = axis_names(param.axes for param in params if param.role is Role.ARG)
    for index, param in enumerate(params):
        unbound = set(axis_names([param.axes])).difference(bound) if param.role is Role.RET else ()
        for name in sorted(unbound):
            raise SpecError(
                f"{function}: {tokens[index]!r} has the axis {name!r}, which no 'arg' has",
                span=locate(index),
                hints=("leave the brackets out where the shape does not follow from an input's",),
            )
    if not any(param.role is Role.RET for param in params):
        raise SpecError(
            f"{function}: the arg_spec has no 'ret'; a function needs at least one output",
            span=locate(-1),
        )


def _similar(token: str) -> tuple[str, ...]:
    """Make a hint with the token that was probably meant."""
    from difflib import get_close_matches

    head, colon, tail = token.partition(":")
    if is_identifier(head) and (tail in BY_NAME) and colon:
        return (f"did you mean 'attr.{token}'?",)
    if head in ("attr", "attrs"):
        return ("an attribute needs a name: attr.NAME",)
    prefix, dot, rest = token.partition(".")
    close = get_close_matches(prefix, ("attr", "attrs"), n=1, cutoff=0.5) if dot and rest not in _ROLES else []
    if close:
        return (f"did you mean '{close[0]}.{rest}'?",)
    return tuple(f"did you mean {meant!r}?" for meant in get_close_matches(token, _ROLES, n=1, cutoff=0.5))


def _similar_type(name: str, type_name: str) -> tuple[str, ...]:
    """Make a hint with the type that was probably meant; C++ spellings are certain."""
    from difflib import get_close_matches

    meant = CPP_SCALARS.get(canonical_type(re.findall(r"\w+|\W", type_name.lower().replace(" ", "")))) or next(
        iter(get_close_matches(type_name.lower(), BY_NAME, n=1)), None
    )
    return (f"did you mean 'attr.{name}:{meant}'?",) if meant else ()
