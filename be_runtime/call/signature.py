"""The `signature` argument of kernels without host code, and the Python signature of a call: types, help, stubs."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from be_runtime.call.attributes import hold, known_dtype
from be_runtime.call.resolve import WANT, CallSignature, is_derived
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.signature.cpp.lexer import split_words
from be_runtime.signature.expressions import Expression
from be_runtime.signature.grammar import parse_spec, render_spec
from be_runtime.signature.model import RULES, AttrKind, Many, Param, Role, axis_names, expressions
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    import inspect


_ATTRIBUTE = re.compile(r"attrs?\.(\w+)")
_ORDER = (Role.ARG, Role.RET, Role.SCRATCH)
_EXAMPLE = "signature='arg[n k] arg[k] ret[n]:like(0)'"


def read_signature(
    label: str, given: object, names: Sequence[str] = (), scalars: Sequence[Param] = ()
) -> CallSignature | None:
    """Read the argument ``signature`` of a function that makes a kernel callable; None gives None.

    Parameters
    ----------
    label : str
        Name of the kernel, for messages.
    given : str, sequence of str or None
        Tokens, as one text or one by one.
    names : sequence of str
        Names of the kernel's arrays: inputs, outputs, scratch memory.
    scalars : sequence of Param
        Scalars of the kernel. A scalar without a token is as the kernel declares it.

    Raises
    ------
    SpecError
        A token is unknown, or does not fit the kernel.

    Examples
    --------
    >>> signature = read_signature("f", "arg[n k] ret[ceil(n / 2)]:float32", ["x", "y"])
    >>> [(param.name, param.role.value) for param in signature.params]
    [('x', 'arg'), ('y', 'ret')]
    """
    if given is None:
        return None
    if isinstance(given, str):
        tokens: Sequence[str] = [word for _, word in split_words(given)]
    elif isinstance(given, Sequence) and all(isinstance(each, str) for each in given):
        tokens = given
    else:
        raise ArgumentError(
            f"{label}: signature must be a string or a list of strings, not {given!r}", hints=(_EXAMPLE,)
        )
    mentioned = {match[1] for token in tokens if (match := _ATTRIBUTE.match(token))}
    implied = [f"attr.{each.name}:{known_dtype(each).name}" for each in scalars if each.name not in mentioned]
    params = parse_spec([*tokens, *implied], function=label)
    declared = {param.name: param for param in scalars}
    for param, token in zip(params, tokens, strict=False):
        if problem := _problem(param, declared):
            raise SpecError(f"{label}: {token!r} {problem}")
    last = 0
    for param, token in zip(params, tokens, strict=False):
        place = _ORDER.index(param.role) if param.role in _ORDER else last
        if place < last:
            raise SpecError(f"{label}: {token!r} comes too late: a kernel takes inputs, then outputs, then scratch")
        last = place
    typed = [p._replace(dtype=declared[p.name].dtype) if p.role is Role.ATTR else p for p in params]
    known = integers(typed)
    for param in typed:
        for expression in expressions(param.axes):
            check_names(label, expression, known)
    rest = iter(names)
    return CallSignature(label, tuple(p._replace(name=next(rest, "")) if p.role in _ORDER else p for p in typed))


def _problem(param: Param, scalars: dict[str, Param]) -> str:
    """Return the reason a kernel without host code can't have a parameter; empty if it can."""
    return array_problem(param) if param.role is not Role.ATTR else _scalar_problem(param, scalars)


def array_problem(param: Param) -> str:
    """Return the reason a kernel without host code can't have a parameter, which is not an attribute; else empty."""
    if param.role in (Role.STREAM, Role.STATE):
        return "is for functions with host code; a kernel has arg, ret, attr and scratch"
    if param.many is Many.OPTIONAL:
        return "is optional; declare a kernel with the array and one without, which in Triton has the token none"
    if param.many is not Many.ONE:
        return "stands for any number of arrays; write one token for each array of the kernel"
    if param.role is Role.SCRATCH and param.axes is None:
        return "lacks the number of bytes, as in scratch[4*n]"
    advice = "write an arg and a ret, and pass input_output_aliases" if param.in_place else "write the zeros yourself"
    if param.by_name:
        advice = f"a kernel takes a pointer to the number, arg[]:{known_dtype(param).name}"
    has_contents = param.by_name or param.in_place or param.default is not None
    return f"is for functions with host code; {advice}" if has_contents else ""


def _scalar_problem(param: Param, scalars: dict[str, Param]) -> str:
    """Return the reason a kernel can't have a scalar; empty if it can."""
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


def integers(params: Sequence[Param]) -> frozenset[str]:
    """Return the names for expressions: axes of inputs, ``attr.NAME`` of integer attributes, ``sizeof(VARIABLE)``."""
    numbers = (p for p in params if p.role is Role.ATTR and known_dtype(p).kind in ("int", "uint"))
    axes = axis_names(param.axes for param in params if param.role is Role.ARG)
    sizes = (f"sizeof({param.name})" for param in params if param.role is Role.DTYPE)
    return frozenset(axes) | {f"attr.{param.name}" for param in numbers} | {*sizes}


def check_names(what: str, expression: Expression, known: frozenset[str]) -> None:
    """Check that an expression uses only known names.

    Raises
    ------
    SpecError
    """
    for name in expression.names:
        if name not in known:
            kind = "an integer attribute" if name.startswith("attr.") else "an axis of an input"
            known_here = ", ".join(sorted(known)) or "no names"
            raise SpecError(f"{what}: {expression} has {name!r}, which is not {kind}", hints=(f"known: {known_here}",))


def require_same(one: CallSignature, other: CallSignature) -> None:
    """Check that two signatures are equal for JAX: inputs, results, attributes, rules for axes, and dtype variables.

    Raises
    ------
    SpecError
        The signatures differ. The error has both.
    """
    for roles in ((Role.ARG,), (Role.RET,), (Role.SCRATCH,), (Role.STATE,), (Role.ATTR,), RULES):
        first, second = (_rendered(each, roles) for each in (one, other))
        if roles in ((Role.ATTR,), RULES):  # their order is not part of a call
            first, second = sorted(first), sorted(second)
        if first != second:
            shown = [" ".join(each) or "nothing" for each in (first, second)]
            raise SpecError(
                f"{one.label}: one source declares {shown[0]}, and the other {shown[1]}",
                hints=("declare the same arrays, scratch memory, attributes, axes and dtypes in C++ and in CUDA",),
            )


def _rendered(signature: CallSignature, roles: Sequence[Role]) -> list[str]:
    """Write the tokens of some roles, and the names of optional results, by which calls ask for them."""
    params = [param for param in signature.params if param.role in roles]
    asked = [param.name for param in params if param.role is Role.RET and param.many is Many.OPTIONAL]
    return [*render_spec(params), *([f"({', '.join(asked)})"] if asked else [])]


_ARRAY, _STRUCT, _LIST = "jax.typing.ArrayLike", "jax.ShapeDtypeStruct", "collections.abc.Sequence"
_ARRAYS = {Many.ONE: _ARRAY, Many.OPTIONAL: f"{_ARRAY} | None", Many.ANY: f"{_LIST}[{_ARRAY}]"}
_MODULE = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


class Argument(NamedTuple):
    """One argument of a call.

    Parameters
    ----------
    name : str
        Name, or ``**attributes``.
    type : str
        Type, with the modules of its names.
    default : str
        Text of the default, ``...`` for a default without a literal; empty if every call passes the argument.
    is_keyword : bool
        True if calls pass it by name, false if by position.
    """

    name: str
    type: str
    default: str = ""
    is_keyword: bool = True


def _dictionary(_param: Param) -> str:
    return "dict[str, typing.Any]"


def call_arguments(
    signature: CallSignature, *, has_outs: bool = False, struct: Callable[[Param], str] = _dictionary
) -> list[Argument]:
    """List the arguments of a call: arrays by position, attributes by name, and `outs`.

    Parameters
    ----------
    signature : CallSignature
    has_outs : bool
        True if the function has `outs` among its options.
    struct : callable
        Function that returns the type of an attribute with fields.

    Examples
    --------
    >>> from be_runtime.signature.grammar import parse_spec
    >>> params = parse_spec(["arg[n]", "attr.mode:enum(up down)=up", "ret[n]"])
    >>> [(each.name, each.default) for each in call_arguments(CallSignature("ops.f", params))]
    [('argument0', ''), ('mode', "'up'"), ('outs', 'None')]
    """
    attributes, rets = signature.with_role(Role.ATTR), signature.with_role(Role.RET)
    numbers = [param for param in signature.with_role(Role.ARG) if param.by_name]
    spelt = [param for param in attributes if not keyword.iskeyword(param.name)]
    derived = has_outs or all(is_derived(ret, signature.with_role(Role.ARG)) for ret in rets)
    described = f"{_STRUCT} | None" if signature.has_optional_results else _STRUCT
    outs = _STRUCT if _is_single(rets) else f"{_LIST}[{described}]"
    outs = f"{outs} | collections.abc.Callable[..., typing.Any]"
    return [
        *_arrays(signature),
        *(Argument(param.name, _ARRAY, _default(param)) for param in numbers),
        *(Argument(param.name, _type(param, struct), _default(param)) for param in spelt),
        *([Argument(WANT, _want_type(rets), "()")] if signature.has_optional_results else []),
        Argument("outs", f"{outs} | None", "None") if derived else Argument("outs", outs),
        *([Argument("**attributes", "typing.Any")] if len(spelt) < len(attributes) else []),
    ]


def _arrays(signature: CallSignature) -> list[Argument]:
    """List the inputs; calls may leave out optional inputs at the end."""
    named = [param for param in signature.params if param.role is Role.ATTR or param.by_name]
    taken = {"outs", *(param.name for param in named)}
    found: list[Argument] = []
    args = [param for param in signature.with_role(Role.ARG) if not param.by_name]
    for number, param in enumerate(args):
        name = param.name or f"argument{number}"
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken.add(name)
        may_end = all(later.many is Many.OPTIONAL for later in args[number:])
        found.append(Argument(name, _ARRAYS[param.many], "None" if may_end else "", is_keyword=False))
    return found


def _want_type(rets: Sequence[Param]) -> str:
    names = ", ".join(repr(ret.name) for ret in rets if ret.many is Many.OPTIONAL and ret.name)
    return f"collections.abc.Collection[{f'typing.Literal[{names}]' if names else 'str'}]"


def _is_single(rets: Sequence[Param]) -> bool:
    return [ret.many for ret in rets] == [Many.ONE]


def _type(param: Param, struct: Callable[[Param], str]) -> str:
    match param.kind:
        case AttrKind.SCALAR:
            return _number(param)
        case AttrKind.ARRAY:
            return f"{_LIST}[{_number(param)}] | numpy.typing.NDArray[typing.Any]"
        case AttrKind.ENUM:
            return f"typing.Literal[{', '.join(map(repr, param.choices))}]"
        case AttrKind.STRUCT:
            return struct(param)
        case AttrKind.STRING:
            return "str"
        case AttrKind.DTYPE:
            return "numpy.typing.DTypeLike"


def _number(param: Param) -> str:
    return known_dtype(param).kind.removeprefix("u")


def _default(param: Param) -> str:
    if param.default is None:
        return ""
    is_literal = not isinstance(param.default, float) or math.isfinite(param.default)
    return repr(param.default) if is_literal else "..."


def struct_fields(param: Param, struct: Callable[[Param], str]) -> dict[str, str]:
    """Map the fields of an attribute to their types in a ``TypedDict``."""
    types = [(field, _type(field, struct)) for field in param.fields]
    return {each.name: kind if each.default is None else f"typing.NotRequired[{kind}]" for each, kind in types}


def result_type(signature: CallSignature) -> str:
    """Return the type of a call's result."""
    rets = signature.with_role(Role.RET)
    if _is_single(rets):
        return "jax.Array"
    several = ["jax.Array | None" if ret.many is Many.OPTIONAL else "jax.Array" for ret in rets]
    if any(ret.many is Many.ANY for ret in rets):
        several = ["jax.Array" if "jax.Array | None" not in several else "jax.Array | None", "..."]
    return f"tuple[{', '.join(several)}]"


def render_arguments(arguments: Sequence[Argument]) -> list[str]:
    """Return the text of each parameter between the parentheses of a definition."""
    texts = [f"{each.name}: {each.type}{f' = {each.default}' if each.default else ''}" for each in arguments]
    count = sum(not each.is_keyword for each in arguments)
    star = ["*"] if any(each.is_keyword and not each.name.startswith("**") for each in arguments) else []
    return [*texts[:count], *(["/"] if count else []), *star, *texts[count:]]


def without_modules(text: str) -> str:
    """Return a text of types without their modules.

    Examples
    --------
    >>> without_modules("collections.abc.Sequence[jax.typing.ArrayLike] | None")
    'Sequence[ArrayLike] | None'
    """
    return _MODULE.sub("", text)


def describe(signature: CallSignature) -> str:
    """Return the author's description, and the arg_spec."""
    spec = f"arg_spec: {' '.join(render_spec(signature.params))}"
    return f"{signature.doc}\n\n{spec}" if signature.doc else spec


def call_text(signature: CallSignature, *, has_outs: bool = False) -> str:
    """Return the text of a call, with the types of its arguments and of its result."""
    arguments = ", ".join(render_arguments(call_arguments(signature, has_outs=has_outs)))
    return without_modules(f"{signature.label.rpartition('.')[2]}({arguments}) -> {result_type(signature)}")


def inspect_signature(signature: CallSignature, *, has_outs: bool = False) -> inspect.Signature:
    """Return the signature for `inspect.signature`."""
    import ast
    from inspect import Parameter, Signature

    parameters = []
    for each in call_arguments(signature, has_outs=has_outs):
        by_name = Parameter.VAR_KEYWORD if each.name.startswith("**") else Parameter.KEYWORD_ONLY
        kind = by_name if each.is_keyword else Parameter.POSITIONAL_ONLY
        default = ast.literal_eval(each.default) if each.default else Parameter.empty
        annotation = without_modules(each.type)
        parameters.append(Parameter(each.name.lstrip("*"), kind, default=default, annotation=annotation))
    return Signature(parameters, return_annotation=without_modules(result_type(signature)))
