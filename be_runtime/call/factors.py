"""The axes of a call that may be split over devices, by its declaration. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from be_runtime.expressions import Expression
from be_runtime.spec.axes import LEADING
from be_runtime.spec.model import Param, Role
from be_runtime.xla.arrays import ArraySpec
from be_runtime.xla.split import Split


def split_of(
    params: Sequence[Param],
    operands: Sequence[tuple[Param, ArraySpec]],
    results: Sequence[tuple[Param, ArraySpec]],
) -> Split:
    """Name each axis of a call's arrays, and say which may be split.

    Parameters
    ----------
    params : sequence of Param
        All parameters of the entry point, and its ``parallel`` and ``reduce`` tokens.
    operands, results : sequence of (Param, ArraySpec)
        The arrays of the call.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.spec.grammar import parse_spec
    >>> params = parse_spec(["arg[b n]", "ret[b n]", "parallel[b]"])
    >>> x = ArraySpec(BY_NAME["float32"], (8, 3))
    >>> split_of(params, [(params[0], x)], [(params[1], x)]).operands
    (('b', 'argument 0: n'),)
    """
    reduced = _names(params, Role.REDUCE)
    kept = {*_names(params, Role.PARALLEL), *reduced}
    if all(param.axes is not None and param.axes[:1] == (LEADING,) for param in params if param.role is Role.RET):
        kept.add(LEADING)
    named = [_factors(param, spec, kept, f"argument {i}") for i, (param, spec) in enumerate(operands)]
    places = {
        axis: (index, spec.ndim - len(param.axes or ()) + position)
        for index, (param, spec) in reversed(list(enumerate(operands)))
        for position, axis in enumerate(param.axes or ())
        if isinstance(axis, str) and axis != LEADING
    }
    return Split(
        operands=tuple(named),
        results=tuple(_factors(param, spec, kept, f"result {i}") for i, (param, spec) in enumerate(results)),
        free=tuple(
            sorted({factor for each in named for factor in each if factor in kept or factor.startswith(LEADING)})
        ),
        reduce=tuple(sorted(reduced)),
        scratch=tuple(str(p.axes[0]) for p in params if p.role is Role.SCRATCH and p.axes is not None),
        places=tuple(sorted(places.items())),
    )


def _names(params: Sequence[Param], role: Role) -> set[str]:
    return {str(axis) for param in params if param.role is role for axis in param.axes or ()}


def _factors(param: Param, spec: ArraySpec, kept: set[str], what: str) -> tuple[str, ...]:
    """Name the axes of one array: those that may be split by their own name, others uniquely."""
    axes = param.axes
    if axes is None:
        return tuple(f"{what}: axis {index}" for index in range(spec.ndim))
    own = [axis for axis in axes if axis != LEADING]
    prefix = "" if LEADING in kept else f"{what}: "
    leading = tuple(f"{prefix}{LEADING}{index}" for index in range(spec.ndim - len(own)))
    return leading + tuple(
        axis if isinstance(axis, str) and axis in kept else f"{what}: {_unique(axis, index)}"
        for index, axis in enumerate(own, start=len(leading))
    )


def _unique(axis: str | int | Expression, index: int) -> str:
    return axis if isinstance(axis, str) else f"axis {index}"
