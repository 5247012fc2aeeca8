"""Arrays of a call against the axes that the arg_spec declares: check inputs, derive results and scratch. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from be_runtime.dtypes import DType
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.signature.expressions import Expression, evaluate
from be_runtime.signature.model import LEADING, Axes, Axis, Many, Param, Role, render_axes

Argument = ArraySpec | None | Sequence[ArraySpec]
"""An array, None for an optional array that is left out, or the arrays of a parameter that takes any number."""

_MOST_BYTES = 2**47


class Bound(NamedTuple):
    """An extent, and its array and axis in messages."""

    extent: int
    place: str


class Extents(NamedTuple):
    """Known extents of one call.

    Parameters
    ----------
    axes : dict of str to Bound
        Extents by the names of axes.
    leading : tuple of int, or None
        Extents of the leading axes; None if no array declares any.
    attributes : mapping of str to int
        Values of integer attributes by ``attr.NAME``.
    """

    axes: dict[str, Bound]
    leading: tuple[int, ...] | None
    attributes: Mapping[str, int]

    def values(self) -> dict[str, int]:
        """Return the values that an expression may use."""
        return {**{name: bound.extent for name, bound in self.axes.items()}, **self.attributes}


def bind(label: str, params: Sequence[Param], arguments: Sequence[Argument], attributes: Mapping[str, int]) -> Extents:
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
    see docs/errors.md#be101, or run: python -m be_runtime explain BE101
    """
    extents = Extents({}, None, attributes)
    arrays = paired(params, arguments)
    for param, spec, place in arrays:
        if param.dtype is not None and spec.dtype != param.dtype:
            is_wide = param.dtype.size_bytes == (16 if param.dtype.kind == "complex" else 8)
            wide = ', after jax.config.update("jax_enable_x64", True)' if is_wide else ""
            hint = f'cast it first, x.astype("{param.dtype.name}"){wide}'
            raise ArgumentError(f"{label}: {place} is {spec}, but {param.dtype.name} is declared", hints=(hint,))
        if param.axes is not None:
            extents = _bind_array(label, param.axes, spec, place, extents)
    values = extents.values()
    for param, spec, place in arrays:
        own = [axis for axis in param.axes or () if axis != LEADING]
        for index, axis in enumerate(own, start=spec.ndim - len(own)):
            if isinstance(axis, Expression) and (expected := compute(label, axis, values)) != spec.shape[index]:
                given = f"{spec.shape[index]} in {place} (axis {index})"
                raise ArgumentError(f"{label}: an axis is declared as {axis} = {expected} and is {given}")
    return extents


def paired(params: Sequence[Param], arguments: Sequence[Argument]) -> list[tuple[Param, ArraySpec, str]]:
    """List the arrays of a call, each with its parameter and its name in messages."""
    found = []
    for number, (param, argument) in enumerate(zip(params, arguments, strict=True)):
        if isinstance(argument, ArraySpec):
            found.append((param, argument, f"argument {number}"))
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
            hints=("attributes are passed by name",) * (len(arguments) > len(params)),
        )
    for number, (param, argument) in enumerate(zip(params, arguments, strict=False)):
        given = "an array" if isinstance(argument, ArraySpec) else "None" if argument is None else "a sequence"
        allowed = {Many.ONE: ("an array",), Many.OPTIONAL: ("an array", "None"), Many.ANY: ("a sequence",)}[param.many]
        if given not in allowed:
            wanted = "a sequence of arrays" if param.many is Many.ANY else " or ".join(allowed)
            name = f" ({param.name})" if param.name else ""
            raise ArgumentError(
                f"{label}: argument {number}{name} is {given}, but the kernel takes {wanted}",
                hints=("make an array of a list of numbers, by jnp.array",) * (given == "a sequence"),
            )


def _bind_array(label: str, axes: Axes, spec: ArraySpec, place: str, extents: Extents) -> Extents:
    """Bind the names among an array's axes; expressions are checked when all names are known."""
    has_leading = axes[:1] == (LEADING,)
    own = axes[1:] if has_leading else axes
    count = spec.ndim - len(own)
    if count < 0 or (count > 0 and not has_leading):
        raise ArgumentError(
            f"{label}: {place} has the shape {spec.shape}, but its axes are declared as [{render_axes(axes)}]",
            hints=(f"map over the other axes by jax.vmap, or declare them: [... {render_axes(axes)}]",) * (count > 0),
        )
    if has_leading:
        leading = spec.shape[:count]
        if extents.leading is not None and extents.leading != leading:
            raise ArgumentError(f"{label}: the leading axes of {place} are {leading}, others are {extents.leading}")
        extents = extents._replace(leading=leading)
    for index, axis in enumerate(own, start=count):
        here = Bound(spec.shape[index], f"{place} (axis {index})")
        if isinstance(axis, int) and axis != here.extent:
            raise ArgumentError(f"{label}: an axis is declared as {axis} and is {here.extent} in {here.place}")
        if isinstance(axis, str):
            first = extents.axes.setdefault(axis, here)
            if first.extent != here.extent:
                raise ArgumentError(
                    f"{label}: axis {axis} is {first.extent} in {first.place} and {here.extent} in {here.place}"
                )
    return extents


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
        return evaluate(axis, values)
    except ValueError as error:
        known = ", ".join(f"{name} = {values[name]}" for name in names)
        raise ArgumentError(f"{label}: {axis} can't be computed{' for ' * bool(known)}{known}: {error}") from None


def derive_results(
    label: str, rets: Sequence[Param], inputs: Sequence[ArraySpec], extents: Extents, dtypes: Mapping[str, DType]
) -> tuple[ArraySpec, ...]:
    """Compute the shapes and dtypes of the results of a call.

    Parameters
    ----------
    rets : sequence of Param
        Parameters with ``Role.RET``.
    inputs : sequence of ArraySpec
        Arguments of the parameters that take one array, in order.
    dtypes : mapping of str to DType
        Values of the attributes of ``AttrKind.DTYPE``.

    Raises
    ------
    ArgumentError
        A shape or a dtype does not follow from the declaration.
    """
    results = []
    for number, ret in enumerate(rets):
        dtype = _declared_dtype(ret, inputs, dtypes)
        if dtype is None:
            every = {spec.dtype for spec in inputs}
            if len(every) != 1:
                raise _underived(label, number, "dtype", "ret[n]:float32 or ret[n]:like(0)", inputs)
            (dtype,) = every
        results.append(ArraySpec(dtype, _shape(label, number, ret, inputs, extents)))
    return tuple(results)


def _shape(label: str, number: int, ret: Param, inputs: Sequence[ArraySpec], extents: Extents) -> tuple[int, ...]:
    if ret.axes is None and isinstance(ret.like, int):
        return inputs[ret.like].shape
    if ret.axes is None or ret.many is Many.ANY:
        raise _underived(label, number, "shape", "ret[n] or ret:like(0)")
    leading = extents.leading or () if ret.axes[:1] == (LEADING,) else ()
    values = extents.values()
    return leading + tuple(compute(label, axis, values) for axis in ret.axes if axis != LEADING)


def _declared_dtype(ret: Param, inputs: Sequence[ArraySpec], dtypes: Mapping[str, DType]) -> DType | None:
    if isinstance(ret.like, int):
        return inputs[ret.like].dtype
    return ret.dtype if ret.like is None else dtypes[ret.like]


def is_derived(ret: Param, args: Sequence[Param]) -> bool:
    """Return whether the shape and the dtype of a result follow from the declaration."""
    has_shape = ret.many is Many.ONE and (ret.axes is not None or isinstance(ret.like, int))
    return has_shape and (ret.dtype is not None or ret.like is not None or any(arg.many is Many.ONE for arg in args))


def _underived(label: str, number: int, what: str, example: str, mixed: Sequence[ArraySpec] = ()) -> ArgumentError:
    given = ", ".join(f"argument {index} is {spec}" for index, spec in enumerate(mixed))
    return ArgumentError(
        f"{label}: the {what} of result {number} does not follow from the arg_spec{': ' * bool(given)}{given}",
        hints=(f"declare it, as in {example}", "or pass outs=jax.ShapeDtypeStruct(shape, dtype)"),
    )


def repeated(rets: Sequence[Param], count: int) -> list[Param]:
    """Return the parameter of each of `count` results."""
    rest = count - sum(ret.many is Many.ONE for ret in rets)
    return [ret for ret in rets for _ in range(1 if ret.many is Many.ONE else rest)]


def check_results(
    label: str,
    rets: Sequence[Param],
    outs: Sequence[ArraySpec],
    inputs: Sequence[ArraySpec],
    extents: Extents,
    dtypes: Mapping[str, DType],
) -> None:
    """Check the results that a caller describes against the declaration; see `derive_results` for the parameters.

    Raises
    ------
    ArgumentError
        The number of results, a dtype or an extent is not as declared.
    """
    some = [ret for ret in rets if ret.many is Many.ONE]
    if len(outs) != len(some) if len(some) == len(rets) else len(outs) < len(some):
        raise ArgumentError(f"{label} has {len(some)} results, but outs describes {len(outs)}")
    for number, (ret, out) in enumerate(zip(repeated(rets, len(outs)), outs, strict=True)):
        declared = _declared_dtype(ret, inputs, dtypes)
        if declared not in (None, out.dtype):
            raise ArgumentError(f"{label}: outs[{number}] is {out}, but {declared.name} is declared")
        if ret.axes is not None:
            wanted = _shape(label, number, ret._replace(many=Many.ONE), (), extents)
            if wanted != out.shape:
                raise ArgumentError(
                    f"{label}: outs[{number}] is {out}, but [{render_axes(ret.axes)}] is {wanted} in this call"
                )


def scratch_bytes(label: str, params: Sequence[Param], extents: Extents) -> tuple[int, ...]:
    """Return the bytes of each scratch memory that the entry point declares."""
    values, found = extents.values(), []
    for size in (param.axes[0] for param in params if param.role is Role.SCRATCH and param.axes is not None):
        found.append(compute(label, size, values))
        if found[-1] > _MOST_BYTES:
            raise ArgumentError(f"{label}: scratch[{size}] is {found[-1]} bytes, more than any machine has")
    return tuple(found)
