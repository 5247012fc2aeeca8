"""The axes of a call's arrays that may be split over devices, named by *factors* as in Shardy's rules. Pure.

A factor of several arrays is split in all of them alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.signature.expressions import evaluate, parse_expression

VMAPPED = "vmap axis "
"""Prefix of the factors of batches; no name in a declaration has it."""


class Split(NamedTuple):
    """The factors of a call's arrays.

    Parameters
    ----------
    operands, results : tuple of tuple of str
        A factor for each axis of each array, without scratch memory.
    free : tuple of str
        Factors that may be split; each device needs all of any other.
    reduce : tuple of str
        Free factors along which the results of parts are summed.
    scratch : tuple of str
        Bytes of each scratch memory, as an expression over the axes of one device.
    places : tuple of (str, (int, int))
        Axes that an expression may name: the numbers of an operand and of its axis.
    integers : tuple of (str, int)
        Attributes that an expression may name, as ``attr.NAME``.
    computed : tuple of (str, tuple of str), or None
        Attributes of whole numbers that differ between devices, as expressions. None if functions of the arrays compute
        them, so that the call can't be split.
    on_gather : {"warn", "error"}
    merged : int
        Number of leading axes, made by ``vmap``, that are one axis with the next when the kernel is called.
    looped : int
        Number of leading axes of the results, made by ``vmap``, along which the kernel is called for one element after
        the other. No merged axes come before them.
    """

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    free: tuple[str, ...] = ()
    reduce: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    places: tuple[tuple[str, tuple[int, int]], ...] = ()
    integers: tuple[tuple[str, int], ...] = ()
    computed: tuple[tuple[str, tuple[str, ...]], ...] | None = ()
    on_gather: str = "warn"
    merged: int = 0
    looped: int = 0

    def with_axis(self, sizes: Sequence[int | None]) -> Split:
        """Return the split of a batch, whose axis leads in all results.

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

    def looped_axes(self, factors: Sequence[str]) -> list[int]:
        """Return the numbers of the looped axes that an array has; they are its leading axes.

        Examples
        --------
        >>> split = Split((("n",), ("n",)), (("n",),)).with_axis([2, None]).with_axis([3, 3])._replace(looped=2)
        >>> [split.looped_axes(each) for each in split.operands]
        [[0, 1], [0]]
        """
        levels = self.results[0][: self.looped]
        return [levels.index(own) for factor in factors if (own := factor.rpartition(": ")[2]) in levels]

    def element(self) -> Split:
        """Return the split of the call for one element of the looped axes."""
        counts = [len(self.looped_axes(factors)) for factors in self.operands]
        return self._replace(
            operands=tuple(factors[count:] for factors, count in zip(self.operands, counts, strict=True)),
            results=tuple(factors[self.looped :] for factors in self.results),
            places=tuple((name, (i, axis - counts[i])) for name, (i, axis) in self.places),
            looped=0,
        )

    @property
    def first(self) -> str:
        """The factor of the results' first axis that is not a batch's; empty if there is none."""
        return next((factor for factor in self.results[0] if not factor.startswith(VMAPPED)), "")

    def _merges(self, factors: Sequence[str]) -> int:
        return self.merged if self.first in factors else 0

    def kernel_shape(self, factors: Sequence[str], shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape in which the kernel gets an array with some factors.

        Examples
        --------
        >>> split = Split((("b", "n"), ("n",)), (("b", "n"),), merged=1).with_axis([2, None])
        >>> [split.kernel_shape(factors, shape) for factors, shape in zip(split.operands, [(2, 3, 5), (5,)])]
        [(6, 5), (5,)]
        """
        count = self._merges(factors)
        return (math.prod(shape[: count + 1]), *shape[count + 1 :]) if count else tuple(shape)

    def values(self, operands: Sequence[Sequence[int]]) -> dict[str, int]:
        """Return the values that an expression may use, from the shapes in which the kernel gets its operands."""
        axes = {name: operands[i][axis - self._merges(self.operands[i])] for name, (i, axis) in self.places}
        return axes | dict(self.integers)

    def scratch_shapes(self, operands: Sequence[Sequence[int]], batch: Sequence[int]) -> list[tuple[int, ...]]:
        """Compute the shapes of scratch memory from the shape of a batch and the operands' shapes in the kernel."""
        values = self.values(operands)
        return [(*batch, evaluate(parse_expression(text), values)) for text in self.scratch]

    def attributes(self, operands: Sequence[Sequence[int]]) -> dict[str, list[int]]:
        """Compute the attributes of the call on one device."""
        values = self.values(operands)
        return {name: [evaluate(parse_expression(text), values) for text in each] for name, each in self.computed or ()}

    def partial_sums(self) -> tuple[str, ...]:
        """Return the factors along which each device has a partial sum of every result, in the operands' order.

        Examples
        --------
        >>> Split(operands=(("b", "n"), ("n", "k")), results=(("b",),), reduce=("k", "n")).partial_sums()
        ('n', 'k')
        """
        kept = {factor for each in self.results for factor in each}
        every = dict.fromkeys(factor for each in self.operands for factor in each)
        return tuple(factor for factor in every if factor in self.reduce and factor not in kept)

    def without_sums(self) -> Split:
        """Return the split of a call whose results are never summed: each device computes them whole."""
        return self._replace(free=tuple(factor for factor in self.free if factor not in self.partial_sums()))

    @staticmethod
    def from_json(fields: dict[str, object]) -> Split:
        """Read the fields of a split that went through JSON."""
        return Split(**{name: _tuples(value) for name, value in fields.items()})  # type: ignore[arg-type]


def _tuples(value: object) -> object:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value
