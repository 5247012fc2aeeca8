"""Options of a function and attributes of a call: convert Python's values to the declared types."""

from __future__ import annotations

import cmath
from collections.abc import Mapping, Sequence
from enum import Enum
from numbers import Number
from typing import Any, Literal, TypedDict, get_args

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.jax import arrays, port
from be_runtime.signature.attribute_types import render_type
from be_runtime.signature.model import AttrKind, Param
from be_toolchain.named import NamedTuple

OnGather = Literal["warn", "error"]


class Options(NamedTuple):
    """Options of a function, see `be_runtime.call.function.KernelFunction.with_options`."""

    vmap_method: str | None = None
    aliases: tuple[tuple[int, int], ...] = ()
    effect: arrays.EffectKind = "none"
    outs: Any = None
    input_layouts: arrays.Layouts | None = None
    output_layouts: arrays.Layouts | None = None
    on_gather: OnGather = "warn"
    random: bool = False


class KernelOptions(TypedDict, total=False):
    """The keyword arguments for calls of a kernel without host code, except `outs`."""

    vmap_method: str | None
    input_output_aliases: Mapping[int, int] | None
    has_side_effect: bool
    ordered: bool
    input_layouts: Sequence[Sequence[int] | None] | None
    output_layouts: Sequence[Sequence[int] | None] | None
    random: bool


class CallOptions(KernelOptions, total=False):
    """The keyword arguments of `KernelFunction.with_options` except `outs`."""

    on_gather: OnGather


def check_options(given: Mapping[str, Any]) -> Options:
    """Return the options of calls among the arguments of a function, checked.

    Raises
    ------
    ArgumentError
        An option is not allowed.

    Examples
    --------
    >>> check_options({"ordered": True}).effect
    'ordered'
    """
    on_gather = given.get("on_gather", "warn")
    if on_gather not in get_args(OnGather):
        raise ArgumentError(f"on_gather must be 'warn' or 'error', not {on_gather!r}")
    flags = {name: given.get(name, False) for name in ("has_side_effect", "ordered", "random")}
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise ArgumentError(f"{name} must be True or False, not {value!r}")
    return Options(
        vmap_method=arrays.check_vmap_method(given.get("vmap_method")),
        aliases=tuple(sorted(arrays.check_aliases(given.get("input_output_aliases")).items())),
        effect="ordered" if flags["ordered"] else "side" if flags["has_side_effect"] else "none",
        outs=given.get("outs"),
        input_layouts=arrays.check_layouts(given.get("input_layouts"), "input_layouts"),
        output_layouts=arrays.check_layouts(given.get("output_layouts"), "output_layouts"),
        on_gather=on_gather,
        random=flags["random"],
    )


def convert_attributes(
    label: str, params: Sequence[Param], given: Mapping[str, Any]
) -> tuple[tuple[str, arrays.Value], ...]:
    """Convert the keyword arguments of a call; an attribute with a default may be left out.

    Raises
    ------
    ArgumentError
        An attribute is unknown or missing, or its value does not fit its type; the error names the attribute.
    """
    known = {param.name: param for param in params}
    unknown = [name for name in given if name not in known]
    missing = [name for name, param in known.items() if name not in given and not _may_be_left_out(param)]
    if unknown or missing:
        raise _wrong_names(label, known, unknown, missing, given)
    return tuple((name, _convert(f"{label}: {name}", known[name], given[name])) for name in sorted(given))


def with_defaults(params: Sequence[Param], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes of a call, with the defaults of the attributes that it leaves out.

    Examples
    --------
    >>> from be_runtime.signature.grammar import parse_spec
    >>> with_defaults(parse_spec(["attr.n:int32=2", "attr.o:{a:bool=true b:int8}", "ret"])[:2], {"o": {"b": 1}})
    {'n': 2, 'o': {'a': True, 'b': 1}}
    """
    found: dict[str, Any] = {}
    for param in params:
        value = given.get(param.name, {} if param.kind is AttrKind.STRUCT else param.default)
        found[param.name] = with_defaults(param.fields, value) if param.kind is AttrKind.STRUCT else value
    return found


def _may_be_left_out(param: Param) -> bool:
    """Return whether an attribute has a default, or each field of a structure has one."""
    return param.default is not None or (param.kind is AttrKind.STRUCT and all(map(_may_be_left_out, param.fields)))


def _wrong_names(
    label: str, known: Mapping[str, Param], unknown: Sequence[str], missing: Sequence[str], given: Mapping[str, Any]
) -> ArgumentError:
    from difflib import get_close_matches

    takes = ", ".join(
        f"{name}: {render_type(param)}{'' if param.default is None else f' = {param.default}'}"
        for name, param in known.items()
    )
    problem = f"has no attribute {unknown[0]!r}" if unknown else f"needs the attribute {missing[0]!r}"
    close = get_close_matches(unknown[0], known, n=1) if unknown else []
    return ArgumentError(
        f"{label} {problem}; it takes ({takes})" if takes else f"{label} {problem}; it takes no attributes",
        hints=tuple(f"did you mean {name}?" for name in close)
        or ("arrays are passed by position",) * (unknown != [] and hasattr(given[unknown[0]], "ndim"))
        or tuple(f"attributes are passed by name: {name}=..." for name in missing[:1] if not unknown),
    )


def _convert(what: str, param: Param, value: Any) -> arrays.Value:
    _refuse_unknown_values(what, value)
    match param.kind:
        case AttrKind.SCALAR:
            return _scalar(what, known_dtype(param), value)
        case AttrKind.ARRAY:
            return _array(what, known_dtype(param), value)
        case AttrKind.STRING:
            return _string(what, value)
        case AttrKind.ENUM:
            return _choice(what, param.choices, value)
        case AttrKind.DTYPE:
            return _scalar(what, BY_NAME["int32"], dtype_of(what, value).xla_code)
        case AttrKind.STRUCT:
            if not isinstance(value, Mapping):
                raise _refused(what, value, f"a dict of {render_type(param)}")
            if not all(isinstance(name, str) for name in value):
                raise _refused(what, value, "a dict with names")
            return arrays.Fields(convert_attributes(what, param.fields, value))


def known_dtype(param: Param) -> DType:
    """Return the type of the numbers of an attribute whose entry point was compiled."""
    assert param.dtype is not None, "discovery gives every attribute a type"
    return param.dtype


def _refuse_unknown_values(what: str, value: Any) -> None:
    """Refuse a symbolic dimension, and a traced value, even with a known value: its derivative would be lost."""
    if hasattr(value, "aval") and port.is_traced(value):
        label, _, name = what.partition(": ")
        function, name = label.rpartition(".")[2], name.partition(".")[0]
        raise ArgumentError(
            f"{what} is an attribute, which is compiled into the program, but its value is traced",
            hints=(
                f"bind it before the function is traced: jax.jit(functools.partial({function}, {name}=...))",
                f'or make it static: jax.jit({function}, static_argnames=("{name}",))',
                f"or make it an input, whose value may change: scalar.{name}:{value.dtype} in C++ and CUDA modules",
                f"or arg[]:{value.dtype} in a kernel without host code, which gets a pointer to the number",
            ),
        )
    if arrays.is_symbolic(value):
        raise ArgumentError(
            f"{what} is an attribute, which is compiled into the program, but {value} is a symbolic dimension",
            hints=("read the extent in the kernel: x.size(0)", "or make it an input of the kernel, arg[]:int32"),
        )


def _refused(what: str, value: object, wanted: str) -> ArgumentError:
    text = repr(value)
    return ArgumentError(f"{what} is {text if len(text) <= 80 else f'a {type(value).__name__}'}, which is not {wanted}")


def hold(value: Any, dtype: DType) -> Any:
    """Convert a number to a numpy scalar of a type; None if the type does not hold it.

    Floats are rounded, but never to an infinity.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> int8, float32 = BY_NAME["int8"], BY_NAME["float32"]
    >>> int(hold(3, int8)), hold(300, int8), hold(1.5, int8), hold(1e39, float32)
    (3, None, None, None)
    """
    import numpy as np

    try:
        plain = value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value
        if not isinstance(plain, Number):
            return None
        with np.errstate(over="ignore"):
            number = numpy_dtype(dtype).type(plain)
        back = number.item() if dtype.module == "np" else float(number)
        is_held = back == plain
        if dtype.kind in ("float", "complex") and isinstance(plain, float | complex):
            is_held = is_held or cmath.isfinite(back) == cmath.isfinite(plain)
    except (TypeError, ValueError, OverflowError, DeprecationWarning):  # NumPy 1 warns of an overflow, and wraps
        return None
    return number if is_held else None


def takes_as_is(value: object, dtype: DType) -> bool:
    """Return whether JAX makes an array of a type of a Python number without a loss; it is faster than `hold`.

    Examples
    --------
    >>> float32, int8 = BY_NAME["float32"], BY_NAME["int8"]
    >>> takes_as_is(3, float32), takes_as_is(1e39, float32), takes_as_is(100, int8), takes_as_is(0.5, int8)
    (True, False, True, False)
    """
    if dtype.kind == "float":
        return type(value) in (float, int) and abs(value) < 1e38  # type: ignore[arg-type]
    bits = min(dtype.bits - (dtype.kind == "int"), 31)  # JAX's default integers have 32 bits
    if type(value) is not int:
        return type(value) is bool and dtype.kind == "bool"
    return (0 if dtype.kind != "int" else -(1 << bits)) <= value < 1 << bits and dtype.kind != "bool"


def numpy_dtype(dtype: DType) -> Any:
    """Return numpy's dtype of an element type."""
    import numpy as np

    if dtype.module == "np":
        return np.dtype(dtype.name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype.name))


def _scalar(what: str, dtype: DType, value: Any) -> arrays.Numbers:
    number = hold(value, dtype)
    if number is None:
        raise _refused(what, value, f"a valid {dtype.name}")
    return arrays.Numbers(dtype.attr_type.name, number.tobytes(), dtype.attr_parts > 0)


def _array(what: str, dtype: DType, value: Any) -> arrays.Numbers:
    import numpy as np

    try:
        flat = np.asarray(value).ravel()
    except (TypeError, ValueError):
        raise _refused(what, value, f"an array of {dtype.name}") from None
    cast = flat if flat.dtype == numpy_dtype(dtype) else _cast(flat, dtype)
    if cast is not None:
        return arrays.Numbers(dtype.array_type.name, cast.tobytes(), is_array=True)
    held = [hold(each, dtype) for each in flat.tolist()]
    if any(number is None for number in held):
        raise _refused(what, value, f"an array of {dtype.name}")
    return arrays.Numbers(dtype.array_type.name, b"".join(number.tobytes() for number in held), is_array=True)


def _cast(flat: Any, dtype: DType) -> Any:
    """Convert many numbers at once, as `hold` does; None if a number does not fit, or `hold` must check each."""
    import numpy as np

    if flat.dtype.kind == "f" and dtype.kind == "float":
        with np.errstate(over="ignore"):
            cast = flat.astype(numpy_dtype(dtype))
        return cast if np.array_equal(np.isfinite(cast), np.isfinite(flat)) else None
    if flat.dtype.kind in "iu" and dtype.kind in ("int", "uint") and flat.size > 0:
        fits = hold(flat.min(), dtype) is not None and hold(flat.max(), dtype) is not None
        return flat.astype(numpy_dtype(dtype)) if fits else None
    return None


def _string(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _refused(what, value, "a string")
    if "\0" in value:
        raise _refused(what, value, "a string without NUL")
    if any("\ud800" <= each <= "\udfff" for each in value):
        raise _refused(what, value, "a string that UTF-8 can hold")
    return str.__str__(value)  # str() of a member of an enumeration may return another text


def _choice(what: str, choices: Sequence[str], value: Any) -> str:
    name = value.name if isinstance(value, Enum) else value
    if not isinstance(name, str) or name not in choices:
        raise _refused(what, value, f"one of {', '.join(choices)}")
    return str.__str__(name)


def dtype_of(what: str, value: Any) -> DType:
    """Return the element type that a value names: a string, or any value that numpy takes as a dtype."""
    import numpy as np

    try:
        name = value if isinstance(value, str) else "" if value is None else np.dtype(value).name
    except (TypeError, ValueError):
        name = ""
    if name not in BY_NAME:
        raise _refused(what, value, "a dtype")
    return BY_NAME[name]
