"""The Python signature of an entry point, for `inspect.signature`, `help` and stubs. Pure."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from be_runtime.call.attributes import known_dtype
from be_runtime.call.resolve import CallSignature
from be_runtime.call.shapes import is_derived
from be_runtime.spec.grammar import render_spec
from be_runtime.spec.model import AttrKind, Many, Param, Role

if TYPE_CHECKING:
    import inspect

_NUMBERS = {"uint": "int"}
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
        Type, its names with their modules.
    default : str
        Text of the default, ``...`` for one that has no literal; empty if every call passes it.
    is_keyword : bool
        True if it is passed by name, false if by position.
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
    >>> from be_runtime.spec.grammar import parse_spec
    >>> params = parse_spec(["arg[n]", "attr.mode:enum(up down)=up", "ret[n]"])
    >>> [(each.name, each.default) for each in call_arguments(CallSignature("ops.f", params))]
    [('argument0', ''), ('mode', "'up'"), ('outs', 'None')]
    """
    attributes, rets = signature.with_role(Role.ATTR), signature.with_role(Role.RET)
    spelt = [param for param in attributes if not keyword.iskeyword(param.name)]
    derived = has_outs or all(is_derived(ret, signature.with_role(Role.ARG)) for ret in rets)
    outs = _STRUCT if _is_single(rets) else f"{_LIST}[{_STRUCT}]"
    outs = f"{outs} | collections.abc.Callable[..., typing.Any]"
    return [
        *_arrays(signature),
        *(Argument(param.name, _type(param, struct), _default(param)) for param in spelt),
        Argument("outs", f"{outs} | None", "None") if derived else Argument("outs", outs),
        *([Argument("**attributes", "typing.Any")] if len(spelt) < len(attributes) else []),
    ]


def _arrays(signature: CallSignature) -> list[Argument]:
    """List the inputs; the last ones may be left out if they are optional."""
    taken = {"outs", *(param.name for param in signature.with_role(Role.ATTR))}
    found: list[Argument] = []
    args = signature.with_role(Role.ARG)
    for number, param in enumerate(args):
        name = param.name or f"argument{number}"
        while name in taken or keyword.iskeyword(name):
            name += "_"
        taken.add(name)
        may_end = all(later.many is Many.OPTIONAL for later in args[number:])
        found.append(Argument(name, _ARRAYS[param.many], "None" if may_end else "", is_keyword=False))
    return found


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
    kind = known_dtype(param).kind
    return _NUMBERS.get(kind, kind)


def _default(param: Param) -> str:
    if param.default is None:
        return ""
    is_literal = not isinstance(param.default, float) or abs(param.default) < float("inf")
    return repr(param.default) if is_literal else "..."


def struct_fields(param: Param, struct: Callable[[Param], str]) -> dict[str, str]:
    """Map the fields of an attribute to their types in a ``TypedDict``."""
    types = {field.name: _type(field, struct) for field in param.fields}
    has_default = {field.name for field in param.fields if field.default is not None}
    return {name: f"typing.NotRequired[{kind}]" if name in has_default else kind for name, kind in types.items()}


def result_type(signature: CallSignature) -> str:
    """Return the type of a call's result."""
    rets = signature.with_role(Role.RET)
    if _is_single(rets):
        return "jax.Array"
    several = ["jax.Array", "..."] if any(ret.many is Many.ANY for ret in rets) else ["jax.Array"] * len(rets)
    return f"tuple[{', '.join(several)}]"


def render_arguments(arguments: Sequence[Argument]) -> list[str]:
    """Write the parameters as they stand between the parentheses of a definition."""
    texts = [f"{each.name}: {each.type}{f' = {each.default}' if each.default else ''}" for each in arguments]
    count = sum(not each.is_keyword for each in arguments)
    star = ["*"] if any(each.is_keyword and not each.name.startswith("**") for each in arguments) else []
    return [*texts[:count], *(["/"] if count else []), *star, *texts[count:]]


def without_modules(text: str) -> str:
    """Write types by their last names.

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
    """Write a call with the types of its arguments and of its result."""
    arguments = ", ".join(render_arguments(call_arguments(signature, has_outs=has_outs)))
    return without_modules(f"{signature.label.rpartition('.')[2]}({arguments}) -> {result_type(signature)}")


def documentation(signature: CallSignature, *, has_outs: bool = False) -> str:
    """Return the text that `help` shows, with the call as its first line."""
    return f"{call_text(signature, has_outs=has_outs)}\n\n{describe(signature)}"


def inspect_signature(signature: CallSignature, *, has_outs: bool = False) -> inspect.Signature:
    """Return the signature that `inspect.signature` gives."""
    import ast
    from inspect import Parameter, Signature

    def parameter(argument: Argument) -> Parameter:
        by_name = Parameter.VAR_KEYWORD if argument.name.startswith("**") else Parameter.KEYWORD_ONLY
        return Parameter(
            argument.name.lstrip("*"),
            by_name if argument.is_keyword else Parameter.POSITIONAL_ONLY,
            default=ast.literal_eval(argument.default) if argument.default else Parameter.empty,
            annotation=without_modules(argument.type),
        )

    arguments = call_arguments(signature, has_outs=has_outs)
    result = without_modules(result_type(signature))
    return Signature([parameter(each) for each in arguments], return_annotation=result)
