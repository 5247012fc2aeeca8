"""Entry points and their parameters: the values that discovery makes and code generation reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum

from be_runtime.dtypes import DType
from be_runtime.signature.expressions import Expression, parse_expression
from be_toolchain.named import NamedTuple

Axis = str | int | Expression
Axes = tuple[Axis, ...]
"""Names, extents and expressions, optionally with ``"..."`` first."""

LEADING = "..."
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_EXTENT = r"0|[1-9][0-9]{0,17}"
_MOST = 64
"""Limit for the axes of an array, as in numpy."""
_WORD = r"(?:\([^()]*(?:\([^()]*\)[^()]*)*\)|\S)+"
"""Text without spaces outside of parentheses."""


def parse_axes(text: str) -> Axes:
    """Parse the text between the brackets.

    Raises
    ------
    ValueError
        A word is not an axis. The message names it.

    Examples
    --------
    >>> parse_axes("... n 3"), parse_axes("")
    (('...', 'n', 3), ())
    >>> parse_axes("n, k")
    Traceback (most recent call last):
    ValueError: 'n,' is not an axis: write names and extents with spaces between them, as in [n k] or [... 2*n 3]
        n,
         ^
    """
    words = re.findall(_WORD, text)
    if len(words) > _MOST:
        raise ValueError(f"an array has at most {_MOST} axes, not {len(words)}")
    return tuple(_parse_axis(word, index) for index, word in enumerate(words))


def _parse_axis(word: str, index: int) -> Axis:
    if word == LEADING:
        if index > 0:
            raise ValueError("'...' stands for leading axes, so it comes first")
        return word
    if re.fullmatch(_NAME, word):
        return word
    if re.fullmatch(_EXTENT, word):
        return int(word)
    try:
        expression = parse_expression(word)
    except ValueError as error:
        _, *caret = str(error).splitlines()
        raise _no_axis(word, caret) from None
    if not expression.names:
        raise _no_axis(word)
    return expression


def _no_axis(word: str, caret: Sequence[str] = ()) -> ValueError:
    advice = "write names and extents with spaces between them, as in [n k] or [... 2*n 3]"
    return ValueError("\n".join((f"{word!r} is not an axis: {advice}", *caret)))


def render_axes(axes: Axes) -> str:
    """Format axes for `parse_axes`.

    Examples
    --------
    >>> render_axes(("...", "n", 3))
    '... n 3'
    """
    return " ".join(map(str, axes))


def axis_names(every: Iterable[Axes | None]) -> tuple[str, ...]:
    """List the names of the axes of several arrays, without ``"..."``, in the order of their first use.

    Examples
    --------
    >>> axis_names([("...", "n", "k"), None, ("k", 3, "m")])
    ('n', 'k', 'm')
    """
    words = (axis for axes in every if axes is not None for axis in axes)
    return tuple(dict.fromkeys(axis for axis in words if isinstance(axis, str) and axis != LEADING))


def expressions(axes: Axes | None) -> tuple[Expression, ...]:
    """Return the expressions among the axes of one array."""
    return tuple(axis for axis in axes or () if isinstance(axis, Expression))


def size_functions(params: Iterable[Param]) -> tuple[str, ...]:
    """List the functions in the expressions of parameters, as ``f()``, in the order of their first use.

    Examples
    --------
    >>> size_functions([Param(role=Role.SCRATCH, axes=parse_axes("2*f()+g()")), Param(role=Role.RET, axes=("n",))])
    ('f()', 'g()')
    """
    every = (expression for param in params for expression in expressions(param.axes))
    return tuple(dict.fromkeys(name for each in every for name in each.names if name.endswith("()")))


class Role(Enum):
    """The role of a parameter of an entry point."""

    ARG = "arg"
    RET = "ret"
    STREAM = "stream"
    ATTR = "attr"
    SCRATCH = "scratch"
    STATE = "state"
    PARALLEL = "parallel"
    REDUCE = "reduce"
    DTYPE = "dtype"


RULES = (Role.PARALLEL, Role.REDUCE, Role.DTYPE)
"""Roles of tokens that describe axes and dtypes, and are no parameters of the C++ call."""


class Many(Enum):
    """The number of arrays of a parameter: one, one or none, or any number."""

    ONE = ""
    OPTIONAL = "?"
    ANY = "..."


class AttrKind(Enum):
    """The kind of an attribute: a number, a text, numbers, one of several names, named values, or an element type."""

    SCALAR = "scalar"
    STRING = "string"
    ARRAY = "array"
    ENUM = "enum"
    STRUCT = "struct"
    DTYPE = "dtype"


class Param(NamedTuple):
    """One parameter, in the order of the C++ call.

    Parameters
    ----------
    role : Role
        Source of its value.
    name : str
        Name of the attribute for ``Role.ATTR``, of the dtype variable for ``Role.DTYPE``; else the C++ name if the
        signature is known, or empty.
    dtype : DType or None
        Type of an attribute's numbers or of an array's elements; None if any type will do, or if it isn't known yet.
    axes : tuple of (str, int or Expression), or None
        Axes of an array, see `parse_axes`; None if a call may pass any. For ``Role.SCRATCH``, the bytes as the only
        axis; None if the kernel asks for memory while it runs.
    many : Many
        Number of arrays for ``Role.ARG`` and ``Role.RET``.
    like : int, str or None
        Source of an array's dtype: the number of an input, a dtype variable, or an attribute as ``attr.NAME``.
    kind : AttrKind
        Kind of the attribute.
    choices : tuple of str
        Names that an attribute of ``AttrKind.ENUM`` may have, or the dtypes of a variable.
    fields : tuple of Param
        Values of an attribute of ``AttrKind.STRUCT``.
    default : bool, int, float, str or None
        Value of the attribute or number in a call that leaves it out; None if every call passes it. For a result, 0 if
        it is filled with zeros before the C++ call, else None.
    by_name : bool
        True for an input without axes that calls pass by its name: a number.
    in_place : bool
        True for an input and a result that are one C++ parameter; they are neighbors.
    """

    role: Role
    name: str = ""
    dtype: DType | None = None
    axes: Axes | None = None
    many: Many = Many.ONE
    like: int | str | None = None
    kind: AttrKind = AttrKind.SCALAR
    choices: tuple[str, ...] = ()
    fields: tuple[Param, ...] = ()
    default: bool | float | str | None = None
    by_name: bool = False
    in_place: bool = False


def call_params(params: Sequence[Param]) -> tuple[Param, ...]:
    """Return the parameters of the C++ call; an array that is changed in place is the result.

    Examples
    --------
    >>> pair = (Param(role=Role.ARG, in_place=True), Param(role=Role.RET, in_place=True))
    >>> [param.role.value for param in call_params((*pair, Param(role=Role.STREAM)))]
    ['ret', 'stream']
    """
    return tuple(param for param in params if not (param.in_place and param.role is Role.ARG))


def exported_params(params: Sequence[Param]) -> tuple[Param, ...] | None:
    """Return the parameters of an exported function, in the order of the C++ call; None if it can't be exported.

    Scratch memory of a declared size is an argument; an array that is changed in place is one argument.

    Examples
    --------
    >>> pair = (Param(role=Role.ARG, in_place=True), Param(role=Role.RET, in_place=True))
    >>> [param.role.value for param in exported_params((*pair, Param(role=Role.STREAM))) or ()]
    ['ret']
    """
    if any(param.role is Role.STATE or param.many is Many.ANY for param in params):
        return None
    taken = (Role.ARG, Role.RET, Role.ATTR)
    return tuple(
        param
        for param in call_params(params)
        if param.role in taken or (param.role is Role.SCRATCH and param.axes is not None)
    )


class SizeFunction(NamedTuple):
    """A C++ function that computes a size for a call from its inputs and attributes.

    Parameters
    ----------
    name : str
        Name in expressions, as ``f()``.
    call_name : str
        Qualified name in generated code.
    params : tuple of str
        Names of the entry point's inputs and attributes that it takes, in its own order.
    """

    name: str
    call_name: str
    params: tuple[str, ...]


class EntryPoint(NamedTuple):
    """One C++ function that becomes one FFI target.

    Parameters
    ----------
    name : str
        Last part of the target's name.
    call_name : str
        Qualified name in generated code: ``"::vector_add"``, ``"::ops::vector_add"`` or, of a template with a dtype
        variable, ``"::vector_add<T>"``.
    params : tuple of Param
        Parameters in the order of the C++ call, see `call_params`; at least one has ``Role.RET``, at most one
        ``Role.STREAM``.
    source : str
        ``SourceText.name`` of the source that defines it.
    line : int
        One-based line of its definition, or of its annotation.
    unordered : tuple of str
        Each line of its code, its callees or its macros with work on CUDA's default stream.
    ends : tuple of str
        Lines that end the process, in the same code.
    rules : tuple of Param
        Tokens that are no parameters: axes that may be split over devices, and dtype variables. See `RULES`.
    doc : str
        Text of the documentation comment above it.
    sizes : tuple of SizeFunction
        Functions in the expressions of its parameters.
    """

    name: str
    call_name: str
    params: tuple[Param, ...]
    source: str
    line: int
    unordered: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    rules: tuple[Param, ...] = ()
    doc: str = ""
    sizes: tuple[SizeFunction, ...] = ()

    def with_role(self, role: Role) -> tuple[Param, ...]:
        """Return the parameters of one role, in call order."""
        return tuple(param for param in self.params if param.role is role)
