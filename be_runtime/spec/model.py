"""Entry points of a kernel source as JAX sees them: the values that discovery makes and codegen reads."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from be_runtime.dtypes import DType
from be_runtime.spec.axes import Axes


class Role(Enum):
    """The role of a parameter of an entry point: an input, an output, the stream or an attribute."""

    ARG = "arg"
    RET = "ret"
    STREAM = "stream"
    ATTR = "attr"


class Param(NamedTuple):
    """One parameter, in the order of the C++ call.

    Parameters
    ----------
    role : Role
        Source of its value.
    name : str
        Name of the attribute for ``Role.ATTR``; else the C++ name if the signature is known, or empty.
    dtype : DType or None
        Type of the attribute; None for every other role.
    axes : tuple of (str or int), or None
        Axes of an array, see `parse_axes`; None if a call may pass any.
    """

    role: Role
    name: str = ""
    dtype: DType | None = None
    axes: Axes | None = None


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
    """

    name: str
    call_name: str
    params: tuple[Param, ...]
    source: str
    line: int
    launches_out_of_order: bool = False

    def with_role(self, role: Role) -> tuple[Param, ...]:
        """Return the parameters of one role, in call order."""
        return tuple(param for param in self.params if param.role is role)
