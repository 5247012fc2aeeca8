"""Compare the inputs of a call with their declaration: dtypes, extents of named axes, and values of expressions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.jax import port
from be_runtime.jax.arrays import ArraySpec, is_symbolic
from be_runtime.signature.expressions import Expression, evaluate
from be_runtime.signature.model import LEADING, Axes, Axis, Many, Param, render_axes
from be_toolchain.named import NamedTuple

_SAME_SYMBOL = 'use one symbol for equal axes, as in symbolic_shape("b, n"), and 2*n where the arg_spec has it'
_CONSTRAINT = 'write symbolic_shape("2*k") for an even axis, and constraints=("n >= 3",) for a bound'
_CONST = "or is a const missing? In C++, a BE::Tensor that is not const is a result"

Argument = ArraySpec | None | Sequence[ArraySpec]
"""An array, None for an optional array that is left out, or the arrays of a parameter that takes any number."""


class Extents(NamedTuple):
    """Known extents of one call.

    Parameters
    ----------
    axes : dict of str to (int, str)
        Extents by the names of axes, with the array and axis in messages.
    leading : tuple of int, or None
        Extents of the leading axes; None if no array declares leading axes.
    attributes : mapping of str to int
        Values of integer attributes by ``attr.NAME``.
    dtypes : dict of str to DType
        Values of the attributes of ``AttrKind.DTYPE`` by ``attr.NAME``, and of dtype variables.
    measured : mapping of str to int
        Results of functions of the source, by ``f()``.
    """

    axes: dict[str, tuple[int, str]]
    leading: tuple[int, ...] | None
    attributes: Mapping[str, int]
    dtypes: dict[str, DType]
    measured: Mapping[str, int] = MappingProxyType({})

    def values(self) -> dict[str, int]:
        """Return the values that an expression may use."""
        return {
            **{name: extent for name, (extent, _place) in self.axes.items()},
            **self.attributes,
            **self.sizes(),
            **self.measured,
        }

    def sizes(self) -> dict[str, int]:
        """Return the bytes of an element for each dtype variable, by ``sizeof(NAME)``."""
        return {f"sizeof({name})": dtype.size_bytes for name, dtype in self.dtypes.items() if "." not in name}


def bind(
    label: str,
    params: Sequence[Param],
    arguments: Sequence[Argument],
    attributes: Mapping[str, int],
    dtypes: Mapping[str, DType] = MappingProxyType({}),
    variables: Sequence[Param] = (),
) -> Extents:
    """Check the inputs of a call, and return the extents of their axes.

    Parameters
    ----------
    label : str
        Name of the entry point, for messages.
    params : sequence of Param
        Parameters with ``Role.ARG``.
    arguments : sequence of (ArraySpec, None or sequence of ArraySpec)
        One for each parameter.
    attributes : mapping of str to int
        Values of integer attributes by ``attr.NAME``.
    dtypes : mapping of str to DType
        Values of attributes of ``AttrKind.DTYPE`` by ``attr.NAME``.
    variables : sequence of Param
        Parameters with ``Role.DTYPE``.

    Raises
    ------
    ArgumentError
        The dtype, the number of axes or an extent of an array is not as declared.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.signature.grammar import parse_spec
    >>> a, x, _ = parse_spec(["arg[n k]", "arg[k]", "ret[n]"])
    >>> f32 = BY_NAME["float32"]
    >>> bind("matvec", [a, x], [ArraySpec(f32, (3, 4)), ArraySpec(f32, (5,))], {})
    Traceback (most recent call last):
    be_runtime.errors.ArgumentError: matvec: axis k is 4 in argument 0 (axis 1) and 5 in argument 1 (axis 0)
    causes and remedies: python -m be_runtime explain BE101
    """
    arrays = paired(params, arguments)
    extents = Extents({}, None, attributes, dict(dtypes))
    inputs = [spec for param, spec, _ in arrays if param.many is Many.ONE]
    choices = {variable.name: variable.choices for variable in variables}
    for param, spec, place in arrays:
        _bind_dtype(label, param, spec, place, extents.dtypes, inputs, choices)
        if param.axes is not None:
            extents = _bind_array(label, param.axes, spec, place, extents)
    values = extents.values()
    for param, spec, place in arrays:
        own = [axis for axis in param.axes or () if axis != LEADING]
        for index, axis in enumerate(own, start=spec.ndim - len(own)):
            if isinstance(axis, Expression) and (expected := compute(label, axis, values)) != spec.shape[index]:
                given = f"{spec.shape[index]} in {place} (axis {index})"
                raise _unequal(f"{label}: an axis is declared as {axis} = {expected} and is {given}", spec.shape[index])
    return extents


def _bind_dtype(
    label: str,
    param: Param,
    spec: ArraySpec,
    place: str,
    known: dict[str, DType],
    inputs: Sequence[ArraySpec],
    choices: Mapping[str, Sequence[str]],
) -> None:
    """Check the dtype of an input; the first array of a variable gives the variable its dtype, in `known`."""
    if param.like in choices and param.like not in known:
        allowed = choices[str(param.like)]
        if spec.dtype.name in allowed:
            known[str(param.like)] = spec.dtype
            return
        wanted, declared = BY_NAME[allowed[0]], f"{param.like} is {' or '.join(allowed)}"
    else:
        dtype = declared_dtype(param, inputs, known)
        if dtype is None or dtype == spec.dtype:
            return
        wanted = dtype
        declared = f"{param.like} is {dtype.name}" if param.like in known else f"{dtype.name} is declared"
    is_wide = wanted.size_bytes == (16 if wanted.kind == "complex" else 8)
    wide = '; JAX has this type after jax.config.update("jax_enable_x64", True)' if is_wide else ""
    hint = f"cast it to {wanted.name} first{wide}"
    raise ArgumentError(f"{label}: {place} is {spec}, but {declared}", hints=(hint,))


def paired(params: Sequence[Param], arguments: Sequence[Argument]) -> list[tuple[Param, ArraySpec, str]]:
    """List the arrays of a call, each with its parameter and its name in messages."""
    found = []
    for number, (param, argument) in enumerate(zip(params, arguments, strict=True)):
        if isinstance(argument, ArraySpec):
            found.append((param, argument, param.name if param.by_name else f"argument {number}"))
        elif argument is not None:
            found += [(param, each, f"argument {number}[{index}]") for index, each in enumerate(argument)]
    return found


def check_presence(label: str, params: Sequence[Param], arguments: Sequence[Argument]) -> None:
    """Check that each parameter has as many arrays as it takes; optional ones at the end may be left out.

    Raises
    ------
    ArgumentError
        There are too few or too many arrays, or an argument is None or a sequence where the kernel takes an array.
    """
    least = sum(param.many is not Many.OPTIONAL for param in params)
    if not least <= len(arguments) <= len(params):
        takes = str(len(params)) if least == len(params) else f"{least} to {len(params)}"
        names = ", ".join(param.name or f"argument {index}" for index, param in enumerate(params))
        raise ArgumentError(
            f"{label} takes {takes} array{'s' * (takes != '1')} ({names}), but the call has {len(arguments)}",
            hints=("attributes are passed by name", _CONST) if len(arguments) > len(params) else (),
        )
    for number, (param, argument) in enumerate(zip(params, arguments, strict=False)):
        given = "an array" if isinstance(argument, ArraySpec) else "None" if argument is None else "a sequence"
        allowed = {Many.ONE: ("an array",), Many.OPTIONAL: ("an array", "None"), Many.ANY: ("a sequence",)}[param.many]
        if given not in allowed:
            wanted = "a sequence of arrays" if param.many is Many.ANY else " or ".join(allowed)
            name = f" ({param.name})" if param.name else ""
            raise ArgumentError(
                f"{label}: argument {number}{name} is {given}, but the kernel takes {wanted}",
                hints=("make an array of a list of numbers first",) * (given == "a sequence"),
            )


def _bind_array(label: str, axes: Axes, spec: ArraySpec, place: str, extents: Extents) -> Extents:
    """Bind the names among an array's axes; expressions are checked when all names are known."""
    has_leading = axes[:1] == (LEADING,)
    own = axes[1:] if has_leading else axes
    count = spec.ndim - len(own)
    if count < 0 or (count > 0 and not has_leading):
        raise ArgumentError(
            f"{label}: {place} has the shape {spec.shape}, but its axes are declared as [{render_axes(axes)}]",
            hints=(f"declare the other axes, [... {render_axes(axes)}], or map over them, in JAX by jax.vmap",)
            * (count > 0 and axes != ()),
        )
    if has_leading:
        leading = spec.shape[:count]
        if extents.leading is not None and extents.leading != leading:
            problem = f"{label}: the leading axes of {place} are {leading}, but another array has {extents.leading}"
            raise _unequal(problem, *leading, *extents.leading)
        extents = extents._replace(leading=leading)
    for index, axis in enumerate(own, start=count):
        extent, here = spec.shape[index], f"{place} (axis {index})"
        if isinstance(axis, int) and axis != extent:
            raise _unequal(f"{label}: an axis is declared as {axis} and is {extent} in {here}", extent)
        if isinstance(axis, str):
            first, where = extents.axes.setdefault(axis, (extent, here))
            if first != extent:
                raise _unequal(f"{label}: axis {axis} is {first} in {where} and {extent} in {here}", first, extent)
    return extents


def _unequal(problem: str, *extents: int) -> ArgumentError:
    """Return the error for extents that differ, or that JAX can't prove to be equal, since one is symbolic."""
    return ArgumentError(problem, hints=(_SAME_SYMBOL,) * any(map(is_symbolic, extents)))


def compute(label: str, axis: Axis, values: Mapping[str, int]) -> int:
    """Return the extent of an axis: a number, a name, or an expression.

    Raises
    ------
    ArgumentError
        The axis has no value in this call; the message names the expression and the values.
    """
    if isinstance(axis, int):
        return axis
    names = (axis,) if isinstance(axis, str) else axis.names
    for name in names:
        if name not in values:
            raise ArgumentError(
                f"{label}: no array of this call has the axis {name}",
                hints=("pass an optional array, or a sequence that is not empty, that declares it",),
            )
    if isinstance(axis, str):
        return values[axis]
    try:
        extent: int = evaluate(axis, values)
        problem = "" if not is_symbolic(extent) or port.is_at_least(extent, 0) else f"{extent} may be less than 0"
    except ValueError as error:
        problem = str(error)
    if problem:
        known = ", ".join(f"{name} = {values[name]}" for name in names)
        raise ArgumentError(
            f"{label}: {axis} can't be computed{' for ' * bool(known)}{known}: {problem}",
            hints=(_CONSTRAINT,) * any(is_symbolic(values[name]) for name in names),
        )
    return extent


def declared_dtype(param: Param, inputs: Sequence[ArraySpec], dtypes: Mapping[str, DType]) -> DType | None:
    """Return the declared dtype of an array; None if the array may have any dtype.

    Parameters
    ----------
    inputs : sequence of ArraySpec
        Arguments of the parameters that take one array, in order.
    dtypes : mapping of str to DType
        See `Extents`.
    """
    if isinstance(param.like, int):
        return inputs[param.like].dtype
    return param.dtype if param.like is None else dtypes[param.like]
