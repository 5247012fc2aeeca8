"""The signature of a kernel without host code, an arg_spec's text for its arrays and scalars. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from be_runtime.call.attributes import hold, known_dtype
from be_runtime.call.resolve import CallSignature
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.expressions import Expression
from be_runtime.spec.axes import axis_names, expressions
from be_runtime.spec.cpp.words import split_words
from be_runtime.spec.grammar import parse_spec
from be_runtime.spec.model import AttrKind, Many, Param, Role

_ATTRIBUTE = re.compile(r"attrs?\.(\w+)")
_ORDER = (Role.ARG, Role.RET, Role.SCRATCH)
_EXAMPLE = "signature='arg[n k] arg[k] ret[n]:like(0)'"


def read_signature(
    label: str, given: object, names: Sequence[str] = (), scalars: Sequence[Param] = ()
) -> CallSignature | None:
    """Read the argument ``signature`` of a function that makes a kernel callable.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    given : str, sequence of str or None
        Tokens, as one text or one by one.
    names : sequence of str
        Names of the kernel's arrays: inputs, outputs, scratch memory.
    scalars : sequence of Param
        Scalars of the kernel. Those that have no token are as the kernel declares them.

    Raises
    ------
    SpecError
        A token can't be understood, or does not fit the kernel.

    Examples
    --------
    >>> signature = read_signature("f", "arg[n k] ret[ceil(n / 2)]:float32", ["x", "y"])
    >>> [(param.name, param.role.value) for param in signature.params]
    [('x', 'arg'), ('y', 'ret')]
    """
    if given is None:
        return None
    tokens = _tokens(label, given)
    mentioned = {match[1] for token in tokens if (match := _ATTRIBUTE.match(token))}
    implied = [f"attr.{each.name}:{known_dtype(each).name}" for each in scalars if each.name not in mentioned]
    params = parse_spec([*tokens, *implied], function=label)
    declared = {param.name: param for param in scalars}
    for param, token in zip(params, tokens, strict=False):
        problem = _problem(param, declared)
        if problem:
            raise SpecError(f"{label}: {token!r} {problem}")
    _check_order(label, params, tokens)
    typed = [p._replace(dtype=declared[p.name].dtype) if p.role is Role.ATTR else p for p in params]
    known = integers(typed)
    for param in typed:
        for expression in expressions(param.axes):
            check_names(label, expression, known)
    rest = iter(names)
    return CallSignature(label, tuple(p._replace(name=next(rest, "")) if p.role in _ORDER else p for p in typed))


def _tokens(label: str, given: object) -> Sequence[str]:
    if isinstance(given, str):
        return [word for _, word in split_words(given)]
    if isinstance(given, Sequence) and all(isinstance(each, str) for each in given):
        return given
    raise ArgumentError(f"{label}: signature must be a text or a list of tokens, not {given!r}", hints=(_EXAMPLE,))


def _problem(param: Param, scalars: dict[str, Param]) -> str:
    """Say why a kernel without host code can't have a parameter; empty if it can."""
    if param.role in (Role.STREAM, Role.STATE):
        return "is for functions with host code; a kernel has arg, ret, attr and scratch"
    if param.many is not Many.ONE:
        return "stands for any number of arrays; write one token for each array of the kernel"
    if param.role is Role.SCRATCH and param.axes is None:
        return "does not say how many bytes, as scratch[4*n] does"
    if param.role is not Role.ATTR:
        return ""
    scalar = scalars.get(param.name)
    if scalar is None:
        has = f"; its scalars are {', '.join(scalars)}" if scalars else ", which has none: a number is an array, arg[]"
        return f"names no scalar of the kernel{has}"
    dtype = known_dtype(scalar)
    if param.kind is not AttrKind.SCALAR or param.dtype not in (None, dtype):
        return f"contradicts the kernel, whose parameter {param.name} is {dtype.name}"
    if param.default is not None and hold(param.default, dtype) is None:
        return f"has a default that is not a valid {dtype.name}"
    return ""


def _check_order(label: str, params: Sequence[Param], tokens: Sequence[str]) -> None:
    """Check that arrays come in the order of the kernel's parameters."""
    last = 0
    for param, token in zip(params, tokens, strict=False):
        place = _ORDER.index(param.role) if param.role in _ORDER else last
        if place < last:
            raise SpecError(f"{label}: {token!r} comes too late: a kernel takes inputs, then outputs, then scratch")
        last = place


def integers(params: Sequence[Param]) -> frozenset[str]:
    """Return the names that an expression may use: axes of inputs, and integer attributes as ``attr.NAME``."""
    numbers = (p for p in params if p.role is Role.ATTR and known_dtype(p).kind in ("int", "uint"))
    axes = axis_names(param.axes for param in params if param.role is Role.ARG)
    return frozenset(axes) | {f"attr.{param.name}" for param in numbers}


def check_names(what: str, expression: Expression, known: frozenset[str]) -> None:
    """Check that an expression uses only known names.

    Raises
    ------
    SpecError
    """
    for name in expression.names:
        if name not in known:
            kind = "an integer attribute" if name.startswith("attr.") else "an axis of an input"
            raise SpecError(f"{what}: {expression} has {name!r}, which is not {kind}")
