"""The tokens of an arg_spec.

::

    spec  = token { token }               in the order of the C++ parameters
    token = "arg" [ "?" | "..." ] [ AXES ] [ ":" DTYPE ]
                                          the next input; with "?", a call may omit this input; with "...", all
                                          inputs that no other token declares
          | "ret" [ "?" | "..." ] [ AXES ] [ ":" DTYPE ] [ "=0" ]
                                          the next result; with "?", a call may omit this result; with "...", all
                                          results that no other token declares; "=0" fills the result with zeros
                                          before the call, but can't follow "ret..."
          | "inout" [ AXES ] [ ":" DTYPE ]
                                          the next input and the next result, one array that the kernel changes
          | NAME "=" KNOWN { "|" KNOWN }  the dtypes that the dtype variable NAME stands for; at least one "arg" or
                                          "inout" has the DTYPE NAME
          | "scalar." NAME ":" NUMBER [ "=" DEFAULT ]
                                          the next input, a number that a call passes by name
          | "stream"                      the CUDA stream; at most one
          | "attr." NAME [ ":" TYPE ] [ "=" DEFAULT ]
                                          a keyword argument of a call, compiled into the program
          | "scratch" [ "[" BYTES "]" | "=" NAME ]
                                          memory until the call ends; "=f" means [f()]; without a size, the kernel
                                          allocates the memory
          | "state"                       an object that the program keeps between calls; at most one
          | "parallel" "[" { AXIS } "]"   axes along which the elements are computed independently
          | "reduce" "[" { AXIS } "]"     axes over which each result is a sum
    AXES  = "[" [ "..." ] { AXIS } "]"    the shape of the array; without AXES, any shape, except in
                                          "ret:like(" INDEX ")"
    AXIS  = an identifier | a number | an expression, see the section Arithmetic
    BYTES = an expression
    NAME  = an identifier; in one arg_spec, no two attributes or scalars share a name; no attribute or scalar has the
            name outs or be_present; in an arg_spec with "ret?", no attribute or scalar has the name want
    DTYPE = KNOWN | a dtype variable | "like(" INDEX ")" | "attr." NAME
    KNOWN = the name of a dtype, such as float32
    NUMBER = "bool" | an integer type of 8 to 64 bits | "float32" | "float64"
    TYPE, DEFAULT = see the section Types of attributes; without TYPE, the type of the C++ parameter NAME

``args``, ``rets``, ``attrs.`` and ``ctx.stream`` are other spellings of ``arg``, ``ret``, ``attr.`` and ``stream``. The
meaning is the same.

At least one token declares a result that a call can't omit: ``ret``, ``ret...`` or ``inout``.

A name in an expression or in the axes of a result must be an axis of an input, or ``attr.NAME`` for an integer
attribute. ``like(INDEX)`` is the dtype of the input with this index, from 0; an input can refer only to an earlier
input. ``ret:like(INDEX)`` without AXES has the dtype and the shape of this input. ``f()`` is a C++ function of the
source that computes the size of scratch memory or of a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import chain

from be_runtime.dtypes import ATTR_TYPES, BY_NAME
from be_runtime.errors import SourceSpan, SpecError
from be_runtime.signature import attribute_types, model
from be_runtime.signature.cpp.params import CPP_SCALARS, canonical_type
from be_runtime.signature.expressions import parse_expression

_ROLES = {
    "arg": model.Role.ARG,
    "args": model.Role.ARG,
    "ret": model.Role.RET,
    "rets": model.Role.RET,
    "inout": model.Role.ARG,
    "stream": model.Role.STREAM,
    "ctx.stream": model.Role.STREAM,
    "scratch": model.Role.SCRATCH,
    "state": model.Role.STATE,
}
RESERVED = {
    "outs": "which is an argument of every call",
    "be_present": "which records the optional arguments of a call",
}
"""Names that no attribute can have."""
_WORDS = {*_ROLES, "attr", "attrs", "scalar", "parallel", "reduce"}
_ONCE = {model.Role.STREAM: "there is one stream", model.Role.STATE: "an entry point has one object of state"}
_ATTR = r"(?s:attrs?\.([^:=]*)(.*))"
_ARRAY = r"(?s:(args?|rets?|inout)(\?|\.\.\.)?(?:\[(.*)\])?(?::([^=]*))?(?:=(.*))?)"
_SCRATCH = r"(?s:scratch(?:\[(.*)\]|=([A-Za-z_][A-Za-z0-9_]*)(?:\(\))?))"
_SCALAR = r"(?s:scalar\.([^:=]*):([^=]*)(?:=(.*))?)"
_RULE = r"(?s:(parallel|reduce)\[(.*)\])"
_LIKE = r"like\((\d{1,3})\)|(attr\.\w+)"
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KNOWN = (
    "known tokens: arg, arg[n k]:float32, arg?, arg..., ret, ret[n]:like(0), ret[n]=0, ret?, ret..., inout[n], "
    "scalar.NAME:float32, stream, "
    "attr.NAME, attr.NAME:TYPE=VALUE, scratch[4*n], scratch=f, scratch, state, parallel[b], reduce[k], T=float32|int8"
)

_MOST_OPTIONAL = 63
MOST = 1000
"""Limit for the parameters of an entry point, and so for the tokens of an arg_spec."""
_LONGEST = 10_000
"""Limit for the characters of a token, since some of the patterns above take quadratic time."""

Locate = Callable[[int], SourceSpan | None]
"""A function that returns the place of a token by its index; -1 is the function's name."""


def is_identifier(name: str) -> bool:
    """Return whether `name` is an ASCII identifier of C++."""
    return _IDENTIFIER.fullmatch(name) is not None


class _TokenError(Exception):
    """Error of one token; the index is the token's position."""

    def __init__(self, index: int, problem: str, hints: Sequence[str] = ()) -> None:
        super().__init__(problem)
        self.index, self.problem, self.hints = index, problem, tuple(hints)


def parse_spec(
    tokens: Sequence[str], *, function: str = "", locate: Locate = lambda _index: None
) -> tuple[model.Param, ...]:
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
    be_runtime.errors.SpecError: f: the arg_spec has no 'ret'; a function needs at least one output that each call has
    causes and remedies: python -m be_runtime explain BE201
    """
    try:
        return _parse(tokens)
    except _TokenError as error:
        raise SpecError(f"{function}: {error.problem}", span=locate(error.index), hints=error.hints) from None


def render_spec(params: Sequence[model.Param]) -> tuple[str, ...]:
    """Format the tokens of an arg_spec in their canonical spelling.

    Examples
    --------
    >>> render_spec([model.Param(role=model.Role.RET), model.Param(role=model.Role.ATTR, name="n")])
    ('ret', 'attr.n')
    """
    pairs = zip((None, *params), params, strict=False)
    return tuple(
        _render_token(param)
        for before, param in pairs
        if not (param.in_place and param.role is model.Role.RET and before is not None and before.in_place)
    )


def normalize_tokens(tokens: Sequence[str]) -> list[str]:
    """Return the tokens of an arg_spec in their canonical spelling.

    Parameters
    ----------
    tokens : sequence of str
        Tokens of an arg_spec.

    Returns
    -------
    list of str
        Equivalent tokens, for example ``"arg"`` for ``"args"``.

    Raises
    ------
    SpecError
        The tokens are not a valid arg_spec.

    See Also
    --------
    - :doc:`/arg-spec`: all tokens.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.normalize_tokens(["args", "rets", "ctx.stream"])
    ['arg', 'ret', 'stream']
    """
    return [*render_spec(parse_spec(tokens))]


def _render_token(param: model.Param) -> str:
    if param.role is model.Role.ATTR:
        kind = attribute_types.render_type(param)
        return f"attr.{param.name}{':' if kind else ''}{kind}{attribute_types.render_default(param)}"
    if param.by_name:
        return f"scalar.{param.name}:{attribute_types.render_type(param)}{attribute_types.render_default(param)}"
    if param.role is model.Role.DTYPE:
        return f"{param.name}={'|'.join(param.choices)}"
    axes = "" if param.axes is None else f"[{model.render_axes(param.axes)}]"
    dtype = "" if param.dtype is None else f":{param.dtype.name}"
    if param.like is not None and not (param.in_place and param.role is model.Role.RET):
        dtype = f":like({param.like})" if isinstance(param.like, int) else f":{param.like}"
    role = "inout" if param.in_place else param.role.value
    return f"{role}{param.many.value}{axes}{dtype}{'' if param.default is None else '=0'}"


def _parse(tokens: Sequence[str]) -> tuple[model.Param, ...]:
    if len(tokens) > MOST:
        raise _TokenError(-1, f"the arg_spec has {len(tokens):,} tokens, but the limit is {MOST:,}")
    params: list[model.Param] = []
    places: list[int] = []
    variables = {match[1] for token in tokens if (match := _VARIABLE.match(token))} - _WORDS
    for index, token in enumerate(tokens):
        param = _parse_token(token, index, variables)
        found = [param]
        if param.in_place:
            number = sum(each.role is model.Role.ARG and each.many is model.Many.ONE for each in params)
            found.append(param._replace(role=model.Role.RET, dtype=None, like=number))
        params += found
        places += [index] * len(found)
    written = [tokens[index] for index in places]
    checks = (_problems, _dtype_problems, _split_problems, _unbound)
    for error in chain.from_iterable(check(params, written) for check in checks):
        error.index = places[error.index]
        raise error
    if not any(param.role is model.Role.RET and param.many is not model.Many.OPTIONAL for param in params):
        raise _TokenError(-1, "the arg_spec has no 'ret'; a function needs at least one output that each call has")
    return tuple(params)


def _parse_token(token: str, index: int, variables: Collection[str]) -> model.Param:
    """Parse one token; an error names the token's index."""
    if token in _ROLES:
        return model.Param(role=_ROLES[token], in_place=token.startswith("inout"))
    if len(token) > _LONGEST:
        raise _TokenError(index, f"a token has more than {_LONGEST} characters: {token[:40]!r}...")
    try:
        if (param := _parse_known(token, variables)) is not None:
            return param
    except attribute_types.UnknownTypeError as error:
        name = error.args[0]
        raise _TokenError(index, f"{token!r} has the unknown type {name!r}", _similar_type(token, name)) from None
    except ValueError as error:
        is_plain = re.fullmatch(_ATTR, token) and "=" not in token
        hints = ("write attr.NAME or attr.NAME:TYPE",) if is_plain else ()
        raise _TokenError(index, f"{token!r}: {error}", hints) from None
    raise _TokenError(index, f"unknown arg_spec token {token!r}", (*_similar(token), _KNOWN))


def _parse_known(token: str, variables: Collection[str]) -> model.Param | None:
    if match := re.fullmatch(_ARRAY, token):
        return _parse_array(match, variables)
    if match := re.fullmatch(_SCRATCH, token):
        return model.Param(role=model.Role.SCRATCH, axes=(parse_expression(match[1] or f"{match[2]}()"),))
    if match := re.fullmatch(_SCALAR, token):
        return _parse_scalar(match)
    if match := re.fullmatch(_RULE, token):
        return model.Param(role=model.Role(match[1]), axes=_axis_names(match[2]))
    if match := re.fullmatch(_ATTR, token):
        return _parse_attr(match)
    if (match := _VARIABLE.match(token)) and match[1] in variables:
        return _parse_variable(match)
    return None


def _parse_array(match: re.Match[str], variables: Collection[str]) -> model.Param:
    role, many, axes, dtype = _ROLES[match[1]], model.Many(match[2] or ""), match[3], match[4]
    is_in_place = match[1] == "inout"
    if is_in_place and many is not model.Many.ONE:
        raise ValueError("it stands for one array")
    fill = match[5]
    if fill is not None and (role is not model.Role.RET or many is model.Many.ANY):
        raise ValueError("only a single result can be filled before the call")
    if fill is not None and dtype == "float8_e8m0fnu":
        raise ValueError("float8_e8m0fnu has no zero")
    if fill is not None and ":" in fill:
        raise ValueError("the dtype comes before =0, as in ret[n]:float32=0")
    if fill not in (None, "0"):
        raise ValueError(f"a result can be filled with zeros only: write =0, not ={fill}")
    parsed = None if axes is None else model.parse_axes(axes)
    param = model.Param(role=role, many=many, axes=parsed, in_place=is_in_place)
    param = param if fill is None else param._replace(default=0)
    if dtype in variables:
        return param._replace(like=dtype)
    if like := re.fullmatch(_LIKE, dtype or ""):
        return param._replace(like=like[2] or int(like[1]))
    if dtype is not None and dtype not in BY_NAME:
        raise attribute_types.UnknownTypeError(dtype)
    return param if dtype is None else param._replace(dtype=BY_NAME[dtype])


def _parse_scalar(match: re.Match[str]) -> model.Param:
    name, dtype, default = match.groups()
    if not is_identifier(name):
        raise ValueError(f"it names the number {name!r}, which is not an identifier")
    if name in RESERVED:
        raise ValueError(f"a number can't be called {name}, {RESERVED[name]}")
    if dtype not in ATTR_TYPES:
        raise attribute_types.UnknownTypeError(dtype)
    if ATTR_TYPES[dtype].attr_type is not ATTR_TYPES[dtype]:
        raise ValueError(f"C++ has no numbers of {dtype}: take an array, arg[]:{dtype}")
    param = model.Param(role=model.Role.ARG, name=name, dtype=ATTR_TYPES[dtype], axes=(), by_name=True)
    return param if default is None else attribute_types.parse_default(default, param)


def _axis_names(text: str) -> tuple[str, ...]:
    for name in text.split():
        if not is_identifier(name):
            raise ValueError(f"{name!r} is not the name of an axis")
    return tuple(text.split())


def _parse_attr(match: re.Match[str]) -> model.Param:
    name = match[1]
    if not is_identifier(name):
        raise ValueError(f"it names the attribute {name!r}, which is not an identifier")
    if name in RESERVED:
        raise ValueError(f"an attribute can't be called {name}, {RESERVED[name]}")
    param = model.Param(role=model.Role.ATTR, name=name)
    text, default = attribute_types.split_default(match[2])
    if text:
        param = attribute_types.parse_type(text[1:], param)
    return param if default is None else attribute_types.parse_default(default, param)


def _parse_variable(match: re.Match[str]) -> model.Param:
    name, choices = match[1], tuple(match[2].split("|"))
    if name in BY_NAME:
        raise ValueError(f"{name} is a dtype: give the variable another name, such as T")
    for choice in choices:
        if choice not in BY_NAME:
            raise attribute_types.UnknownTypeError(choice)
    if len(set(choices)) < len(choices):
        raise ValueError("it names a dtype twice")
    return model.Param(role=model.Role.DTYPE, name=name, choices=choices)


def _problems(params: Sequence[model.Param], tokens: Sequence[str]) -> Iterator[_TokenError]:
    """Yield the errors of tokens that contradict other tokens."""
    optional = [index for index, param in enumerate(params) if param.many is model.Many.OPTIONAL]
    if len(optional) > _MOST_OPTIONAL:
        problem = f"more than {_MOST_OPTIONAL} arrays that a call may leave out"
        yield _TokenError(optional[_MOST_OPTIONAL], problem, ("take any number of arrays, as args...",))
    has_optional = any(param.role is model.Role.RET and param.many is model.Many.OPTIONAL for param in params)
    has_any_results = any(param.role is model.Role.RET and param.many is model.Many.ANY for param in params)
    seen: set[object] = set()
    for index, (param, token) in enumerate(zip(params, tokens, strict=True)):
        is_named = param.by_name or param.role in (model.Role.ATTR, model.Role.DTYPE)
        role = model.Role.ATTR if param.by_name else param.role  # calls pass both by name
        key: object = (role, param.name if is_named else param.many)
        repeated = key in seen
        seen.add(key)
        if repeated and param.role in _ONCE:
            yield _TokenError(index, f"a second {token!r}; {_ONCE[param.role]}")
        if repeated and role is model.Role.ATTR:
            what = "number" if param.by_name else "attribute"
            yield _TokenError(index, f"{token!r} names the {what} {param.name!r} again")
        if repeated and param.many is model.Many.ANY:
            yield _TokenError(index, f"a second {token!r}; one takes all that are left")
        if param.role is model.Role.SCRATCH and param.axes is not None and has_any_results:
            yield _TokenError(index, f"{token!r} is a result that XLA plans, so it can't stand beside 'ret...'")
        if has_optional and role is model.Role.ATTR and param.name == "want":
            yield _TokenError(index, f"{token!r}: beside 'ret?', want is the argument that names the results of a call")
        if repeated and param.role is model.Role.DTYPE:
            yield _TokenError(index, f"{token!r} names the dtypes of {param.name!r} again")


def _dtype_problems(params: Sequence[model.Param], tokens: Sequence[str]) -> Iterator[_TokenError]:
    """Yield the errors of dtypes that no input or attribute determines."""
    inputs = [param for param in params if param.role is model.Role.ARG and param.many is model.Many.ONE]
    attributes = {f"attr.{param.name}" for param in params if param.kind is model.AttrKind.DTYPE}
    before = 0
    for index, (param, token) in enumerate(zip(params, tokens, strict=True)):
        like = param.like
        if param.role is model.Role.DTYPE and all(each.like != param.name for each in inputs):
            yield _TokenError(index, f"{token!r}: no input has the dtype {param.name}: write arg[n]:{param.name}")
        if isinstance(like, int) and like >= len(inputs):
            yield _TokenError(index, f"{token!r} is like input {like}, but the number of inputs is {len(inputs)}")
        if isinstance(like, int) and param.role is model.Role.ARG and like >= before:
            yield _TokenError(index, f"{token!r} is like input {like}, which does not come before it")
        before += param.role is model.Role.ARG and param.many is model.Many.ONE
        if isinstance(like, str) and like.startswith("attr.") and like not in attributes:
            yield _TokenError(index, f"{token!r} does not name an attribute of the type dtype: write {like}:dtype")


def _split_problems(params: Sequence[model.Param], tokens: Sequence[str]) -> Iterator[_TokenError]:
    """Yield the errors of ``parallel`` and ``reduce`` tokens that contradict the arrays."""
    inputs = model.axis_names(param.axes for param in params if param.role is model.Role.ARG)
    arrays = [
        (param, token)
        for param, token in zip(params, tokens, strict=True)
        if param.role in (model.Role.ARG, model.Role.RET)
    ]
    axes = [
        (index, str(name))
        for index, param in enumerate(params)
        if param.role in model.RULES
        for name in param.axes or ()
    ]
    seen: set[str] = set()
    for index, name in axes:
        rule = tokens[index]
        is_parallel = params[index].role is model.Role.PARALLEL
        if name not in inputs:
            yield _TokenError(index, f"{rule!r} has the axis {name!r}, which no 'arg' has")
        if name in seen:
            yield _TokenError(index, f"{rule!r} has the axis {name!r} again")
        if not is_parallel and any(param.in_place for param, _ in arrays):
            problem = f"{rule!r} sums the results of parts, and each part of an inout array has all its old contents"
            yield _TokenError(index, problem, ("declare the result as ret[...]=0, and add the old contents in JAX",))
        seen.add(name)
        for array, token in arrays:
            count = (array.axes or ()).count(name)
            if count > 1 or any(name in expression.names for expression in model.expressions(array.axes)):
                yield _TokenError(index, f"{rule!r} splits the axis {name!r}, but {token!r} needs all of it")
            if array.role is model.Role.RET and is_parallel and count == 0:
                yield _TokenError(index, f"{token!r} lacks the axis {name!r} of {rule!r}; is it reduce[{name}]?")
            if array.role is model.Role.RET and not is_parallel and count > 0:
                yield _TokenError(index, f"{token!r} has the axis {name!r} of {rule!r}; is it parallel[{name}]?")


def _unbound(params: Sequence[model.Param], tokens: Sequence[str]) -> Iterator[_TokenError]:
    """Yield the errors of axes and attributes in brackets that no other token defines."""
    known = set(model.axis_names(param.axes for param in params if param.role is model.Role.ARG))
    known |= {f"attr.{p.name}" for p in params if p.role is model.Role.ATTR and p.kind is model.AttrKind.SCALAR}
    variables = [param for param in params if param.role is model.Role.DTYPE]
    known |= {f"sizeof({v.name})" for v in variables if all(BY_NAME[choice].size_bytes for choice in v.choices)}
    for index, param in enumerate(params):
        functions = model.size_functions([param])
        if functions and param.role is model.Role.ARG:
            problem = f"{tokens[index]!r} is an input, and {functions[0]} is a size of results or scratch memory"
            yield _TokenError(index, problem)
        known.update(functions)
        used = set(model.axis_names([param.axes]) if param.role is model.Role.RET else ())
        for name in sorted(used.union(*(each.names for each in model.expressions(param.axes))) - known):
            if name.startswith("sizeof("):
                problem = f"{tokens[index]!r} has {name}, but no dtype variable with whole bytes has this name"
                yield _TokenError(index, problem, ("declare the dtypes, as in T=float32|float64",))
            is_attribute = name.startswith("attr.")
            what = f"the {'attribute' if is_attribute else 'axis'} {name.removeprefix('attr.')!r}"
            lack = "which is not a number of the arg_spec" if is_attribute else "which no 'arg' has"
            hints = ("leave the brackets out if the shape does not follow from the inputs",)
            yield _TokenError(index, f"{tokens[index]!r} has {what}, {lack}", hints)


def _similar(token: str) -> tuple[str, ...]:
    """Return a hint with a similar token."""
    from difflib import get_close_matches

    if token.count("[") > token.count("]"):
        return (f"the bracket is not closed: {token}]",)
    head, colon, tail = token.partition(":")
    if is_identifier(head) and (tail in ATTR_TYPES) and colon:
        return (f"did you mean 'attr.{token}'?",)
    if head in ("attr", "attrs"):
        return ("an attribute needs a name: attr.NAME",)
    prefix, dot, rest = token.partition(".")
    close = get_close_matches(prefix, ("attr", "attrs"), n=1, cutoff=0.5) if dot and rest not in _ROLES else []
    if close:
        return (f"did you mean '{close[0]}.{rest}'?",)
    word = re.match(r"\w*", token)[0]  # type: ignore[index]
    rest = token[len(word) :]
    if rest[:1] not in ("[", "?", ":") or word in _ROLES:
        word, rest = token, ""
    return tuple(f"did you mean {f'{each}{rest}'!r}?" for each in get_close_matches(word, _ROLES, n=1, cutoff=0.5))


def _similar_type(token: str, type_name: str) -> tuple[str, ...]:
    """Return hints with the type that was probably meant, certain for a C++ spelling, and with all types."""
    from difflib import get_close_matches

    known = ATTR_TYPES if token.startswith("attr") else BY_NAME
    kinds = "; of attributes also string, dtype, float32[], enum(a b) and {a:float32 b:int32}"
    every = f"types: {', '.join(known)}{kinds if token.startswith('attr') else ''}"
    spelt = CPP_SCALARS.get(canonical_type(re.findall(r"\w+|\W", type_name.lower().replace(" ", ""))))
    meant = spelt if spelt in known else next(iter(get_close_matches(type_name.lower(), known, n=1)), None)
    if not meant and is_identifier(type_name) and not token.startswith("attr"):
        return (every, f"or declare a dtype variable by a token of its own, as in {type_name}=float32|float64")
    if not meant or not type_name:
        return (every,)
    return (f"did you mean {token.replace('attrs.', 'attr.', 1).replace(type_name, meant, 1)!r}?", every)
