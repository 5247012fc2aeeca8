"""A call over several devices: which axes are split, and where the parts are. Pure.

Axes are named by *factors*, as Shardy's rules name them. A factor of several arrays is split in all of them alike.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

VMAPPED = "vmap"


class Split(NamedTuple):
    """The factors of a call's arrays.

    Parameters
    ----------
    operands, results : tuple of tuple of str
        A factor for each axis of each array, without scratch memory.
    free : tuple of str
        Factors that may be split; each device needs all of any other.
    reduce : tuple of str
        Those of them along which results of parts are summed.
    scratch : tuple of str
        Bytes of each scratch memory, as an expression over the axes of one device.
    places : tuple of (str, (int, int))
        Axes that an expression may name: the number of an operand, and that of its axis.
    integers : tuple of (str, int)
        Attributes that an expression may name, as ``attr.NAME``.
    on_gather : {"warn", "error"}
    """

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    free: tuple[str, ...] = ()
    reduce: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    places: tuple[tuple[str, tuple[int, int]], ...] = ()
    integers: tuple[tuple[str, int], ...] = ()
    on_gather: str = "warn"

    def with_axis(self, sizes: Sequence[int | None]) -> Split:
        """Return the factors of a batch, which is a leading axis of all results.

        Parameters
        ----------
        sizes : sequence of (int or None)
            Extent of the new leading axis of each operand; None if it has none.
        """
        level = sum(factor.startswith(VMAPPED) for factor in self.free)
        factor = f"{VMAPPED}{level}"
        new = [
            () if size is None else (factor if size != 1 else f"argument {i}: {factor}",)
            for i, size in enumerate(sizes)
        ]
        return self._replace(
            operands=tuple(axis + each for axis, each in zip(new, self.operands, strict=True)),
            results=tuple((factor, *each) for each in self.results),
            free=(*self.free, factor),
            places=tuple((name, (i, axis + len(new[i]))) for name, (i, axis) in self.places),
        )

    def partial_sums(self) -> tuple[str, ...]:
        """Return the factors of which each device has a part of every result, in the order of the operands' axes.

        Examples
        --------
        >>> Split(operands=(("b", "n"), ("n", "k")), results=(("b",),), reduce=("k", "n")).partial_sums()
        ('n', 'k')
        """
        kept = {factor for each in self.results for factor in each}
        every = dict.fromkeys(factor for each in self.operands for factor in each)
        return tuple(factor for factor in every if factor in self.reduce and factor not in kept)

    def to_json(self) -> dict[str, object]:
        """Return a form that `from_json` reads."""
        return self._asdict()

    @staticmethod
    def from_json(fields: dict[str, object]) -> Split:
        """Read what `to_json` wrote, after it went through JSON."""
        return Split(**{name: _tuples(value) for name, value in fields.items()})  # type: ignore[arg-type]


def _tuples(value: object) -> object:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def encode(**fields: object) -> str:
    """Write a configuration as JSON, the same for equal values."""
    return json.dumps(fields, sort_keys=True)
