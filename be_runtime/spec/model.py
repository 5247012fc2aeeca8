"""Entry points of a kernel source as JAX sees them: the values that discovery makes and codegen reads."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from be_runtime.dtypes import DType
from be_runtime.spec.axes import Axes


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


RULES = (Role.PARALLEL, Role.REDUCE)
"""Roles of tokens that say something of axes and stand for no parameter of the C++ call."""


class Many(Enum):
    """The number of arrays that a parameter stands for: one, one or none, or any number."""

    ONE = ""
    OPTIONAL = "?"
    ANY = "..."


class AttrKind(Enum):
    """The kind of an attribute: a number, a text, numbers, one of some names, named values, or a type of elements."""

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
        Name of the attribute for ``Role.ATTR``; else the C++ name if the signature is known, or empty.
    dtype : DType or None
        Type of an attribute's numbers or of an array's elements; None if any will do, or if it isn't known yet.
    axes : tuple of (str, int or Expression), or None
        Axes of an array, see `parse_axes`; None if a call may pass any. Of ``Role.SCRATCH``, its bytes as the only
        axis; None if the kernel asks for memory while it runs.
    many : Many
        Number of arrays for ``Role.ARG`` and ``Role.RET``.
    like : int, str or None
        Source of a result's dtype: the number of an input, or the name of an attribute.
    kind : AttrKind
        Kind of the attribute.
    choices : tuple of str
        Names that an attribute of ``AttrKind.ENUM`` may have.
    fields : tuple of Param
        Values of an attribute of ``AttrKind.STRUCT``.
    default : bool, int, float, str or None
        Value of the attribute in a call without it; None if every call passes it.
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


class EntryPoint(NamedTuple):
    """One C++ function that becomes one FFI target.

    Parameters
    ----------
    name : str
        Last part of the target's name.
    call_name : str
        Qualified name in generated code: ``"::vector_add"`` or ``"::ops::vector_add"``.
    params : tuple of Param
        Parameters in the order of the C++ call; at least one has ``Role.RET``, at most one ``Role.STREAM``.
    source : str
        ``SourceText.name`` of the source that defines it.
    line : int
        One-based line of its definition, or of its annotation.
    launches_out_of_order : bool
        True if its own code is known to launch a CUDA kernel on a stream other than XLA's.
    rules : tuple of Param
        Axes that may be split over devices, with ``Role.PARALLEL`` and ``Role.REDUCE``.
    doc : str
        Text of the documentation comment above it.
    """

    name: str
    call_name: str
    params: tuple[Param, ...]
    source: str
    line: int
    launches_out_of_order: bool = False
    rules: tuple[Param, ...] = ()
    doc: str = ""

    def with_role(self, role: Role) -> tuple[Param, ...]:
        """Return the parameters of one role, in call order."""
        return tuple(param for param in self.params if param.role is role)
