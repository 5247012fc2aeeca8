"""Parameters of a Python function that a compiler traces to a kernel: constants, tokens, and extents of axes."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from be_runtime.call.attributes import Options
from be_runtime.call.compiled_function import default_method
from be_runtime.call.resolve import CallSignature, Resolved
from be_runtime.errors import ArgumentError, SpecError
from be_runtime.jax.arrays import BATCHING_METHODS, ArraySpec
from be_runtime.kernels.cubin import Declared, declare, split_tokens
from be_runtime.kernels.geometry import Geometry, explicit_geometry
from be_runtime.kernels.source import Compilable, CompiledCode, Variant
from be_runtime.signature.model import Param, Role, axis_names
from be_toolchain.terminal import many

DIVISIBLE = 16
"""Divisor of addresses, strides in bytes and numbers for which compilers specialize; XLA's alignment is larger."""
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_CONSTANT = re.compile(r"none|=.*", re.DOTALL)
_RULE = re.compile(r"(parallel|reduce)\[|[A-Za-z_]\w*=")
"""Beginning of a token without a parameter: for axes that may be split, and for dtype variables."""


_OF_CONSTANTS = re.compile(r"\((meta|META|args|nargs|kwargs)\)")
"""Signature of a grid that is a function of constants, with the names that are usual in Triton."""


class Argument(NamedTuple):
    """A parameter of the function that is not a constant.

    Parameters
    ----------
    name : str
    param : Param or str
        Its token, or the axis whose extent it gets.
    """

    name: str
    param: Param | str


def check_constants(label: str, wanted: Collection[str], optional: Collection[str], constants: Collection[str]) -> None:
    """Check the names of constants that an author gives.

    Parameters
    ----------
    wanted, optional : collection of str
        Parameters that are constants, and those among them that have a default.
    constants : collection of str

    Raises
    ------
    ArgumentError
        A constant is missing or unknown.
    """
    lacking, unknown = {*wanted} - {*optional} - {*constants}, {*constants} - {*wanted}
    if lacking or unknown:
        problem = f"has no constant {min(unknown)}" if unknown else f"needs the constant {min(lacking)}"
        raise ArgumentError(f"{label} {problem}; its constants are: {', '.join(sorted(wanted)) or 'none'}")


class Matched(NamedTuple):
    """The parameters of a function with their tokens.

    Parameters
    ----------
    declared : Declared
        The tokens that are not constants.
    arguments : tuple of Argument
    constants : dict of str to (int or None)
        Parameters whose tokens are constants: ``none`` or ``=1``.
    """

    declared: Declared
    arguments: tuple[Argument, ...]
    constants: dict[str, int | None]


def match_arguments(label: str, names: Sequence[str], signature: object) -> Matched:
    """Give each parameter that is not a constant, in the function's order, its token or its axis.

    Raises
    ------
    ArgumentError
        The tokens don't fit the parameters.
    SpecError
        A token is unknown.

    Examples
    --------
    >>> made = match_arguments("f", ["x", "bias", "stride", "n", "out"], "arg[n k] none =k ret[n]")
    >>> made.constants, [name for name, param in made.arguments if isinstance(param, str)]
    ({'bias': None}, ['stride', 'n'])
    """
    tokens = split_tokens(label, signature)
    declared = declare(label, [each for each in tokens if not _CONSTANT.fullmatch(each)])
    axes = axis_names(param.axes for param in declared.signature.params if param.role is Role.ARG)
    numbers = {param.name for param in declared.params if param.role is Role.ATTR}
    by_axis = {name for name in names if name in axes and name not in numbers}
    params, given = iter(declared.params), [each for each in tokens if not _RULE.match(each)]
    slots = iter([_constant(label, each, axes) if _CONSTANT.fullmatch(each) else next(params) for each in given])
    if len(names) - len(by_axis) != len(given):
        by_itself = f" beside the axes {', '.join(sorted(by_axis))}" if by_axis else ""
        wanting = ", ".join(name for name in names if name not in by_axis)
        raise ArgumentError(
            f"{label} takes {wanting or 'nothing'}{by_itself}, but the signature has "
            f"{many(len(given), 'token')} for them: {' '.join(given)}",
            hints=(
                "write one token for each parameter except constants and axes, in the function's order",
                "an axis with the name of a parameter gives it the extent; =n is the extent of the axis n",
            ),
        )
    found = {name: name if name in by_axis else next(slots) for name in names}
    for name, param in found.items():
        if isinstance(param, Param) and param.role is Role.ATTR and param.name != name:
            raise ArgumentError(f"{label}: the token attr.{param.name} is in the place of the parameter {name}")
    arguments = tuple(Argument(name, each) for name, each in found.items() if isinstance(each, Param | str))
    return Matched(
        declared, arguments, {name: each for name, each in found.items() if not isinstance(each, Param | str)}
    )


def _constant(label: str, word: str, axes: Collection[str]) -> str | int | None:
    """Read a token for a constant: ``none``, a whole number, or the extent of an axis."""
    text = word.removeprefix("=")
    if word == "none":
        return None
    if text in axes:
        return text
    if not re.fullmatch(r"-?[0-9]{1,18}", text):
        raise SpecError(
            f"{label}: {word!r} is not a constant",
            hints=(f"write none, a number such as =1, or an axis of an input: {', '.join(axes) or 'there is none'}",),
        )
    return int(text)


def with_constants(label: str, grid: Any, constants: Mapping[str, Any]) -> Any:
    """Replace the names of integer constants in a text, or in several texts, with their values.

    Raises
    ------
    ArgumentError
        A constant in a text is not an integer, or the grid is a function of constants, as in Triton.

    Examples
    --------
    >>> with_constants("f", ("ceil(n/BLOCK)", "m"), {"BLOCK": 64})
    ('ceil(n/64)', 'm')
    """
    if isinstance(grid, tuple | list):
        return tuple(with_constants(label, each, constants) for each in grid)
    if callable(grid) and (found := _OF_CONSTANTS.fullmatch(str(inspect.signature(grid)))):
        raise ArgumentError(
            f"{label}: grid is a function of {found[1]}, as in Triton",
            hints=(
                "write arithmetic over axes and constants as text: grid='ceil(n/BLOCK)'",
                "two numbers are grid=('ceil(m/BM)', 'ceil(n/BN)')",
            ),
        )
    if not isinstance(grid, str):
        return grid
    used = {name: constants[name] for name in _NAME.findall(grid) if name in constants}
    for name, value in used.items():
        if type(value) is not int:
            raise ArgumentError(
                f"{label}: grid={grid!r} names the constant {name}, which is {value!r} and no whole number",
                hints=("pass the constant as an int, or write the number into the grid",),
            )
    return _NAME.sub(lambda match: str(used.get(match[0], match[0])), grid)


def grid_geometry(grid: object, *, is_empty: bool) -> Geometry:
    """Make a geometry with a block that the compiler chooses."""
    return explicit_geometry(grid, 1, is_empty=is_empty)


def split_axes(signature: CallSignature) -> tuple[str, ...]:
    """Return the axes that may be shorter on one device than in the trace."""
    return axis_names(rule.axes for rule in signature.with_role(Role.PARALLEL) + signature.with_role(Role.REDUCE))


def takes_slices(options: Options, signature: CallSignature) -> bool:
    """Return whether ``vmap`` may pass slices of larger arrays; a loop of XLA passes arrays of their own."""
    return default_method(options, signature).vmap_method in BATCHING_METHODS


def is_aligned(spec: ArraySpec, *, may_be_slice: bool) -> bool:
    """Return whether an array begins at a multiple of 16 bytes, even as a slice of a batch.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> spec = ArraySpec(BY_NAME["float32"], (301,))
    >>> is_aligned(spec, may_be_slice=True), is_aligned(spec, may_be_slice=False)
    (False, True)
    """
    return not may_be_slice or spec.size * spec.dtype.bits % (8 * DIVISIBLE) == 0


class Typable(Protocol):
    """A kernel without types."""

    def for_variant(self, names: Sequence[str], variant: Variant) -> Compilable:
        """Return the kernel for the types of its arguments."""


class VariantCode(CompiledCode):
    """The images of a kernel for each combination of types.

    Parameters
    ----------
    kernel : Typable
    arguments : tuple of Argument
    asked : str or None
        See `CompiledCode`.
    """

    def __init__(self, kernel: Typable, arguments: Sequence[Argument], asked: str | None) -> None:
        super().__init__(asked)
        self._kernel, self._names = kernel, [name for name, _ in arguments]

    def compilable(self, _call: Resolved, variant: Variant) -> Compilable:
        """Return the kernel for the types of a call."""
        return self._kernel.for_variant(self._names, variant)
