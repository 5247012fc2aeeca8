"""The attributes and arrays of a call: checks, and the axes that may be split over devices.

Axes are named by *factors*, as in Shardy's rules. A factor is split in the same way in all arrays that have it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.signature.expressions import evaluate, parse_expression
from be_runtime.signature.model import LEADING, Param, Role
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import many

_VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized")

BATCHING_METHODS = frozenset(_VMAP_METHODS[2:])
"""Methods with which one call receives a whole batch."""


class Numbers(NamedTuple):
    """The bits of a number or of an array of one dimension.

    Parameters
    ----------
    dtype : str
        numpy's name of the type in XLA.
    data : bytes
    is_array : bool
    """

    dtype: str
    data: bytes
    is_array: bool = False


class Fields(NamedTuple):
    """A dictionary."""

    items: tuple[tuple[str, Value], ...]


Value = str | Numbers | Fields


def as_jax(value: Value) -> Any:
    """Convert an attribute to what ``jax.ffi`` takes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Fields):
        return {name: as_jax(each) for name, each in value.items}
    import numpy as np

    array = np.frombuffer(value.data, value.dtype)
    return array if value.is_array else array[0]


EffectKind = Literal["none", "side", "ordered"]
Layouts = tuple[tuple[int, ...] | None, ...]
"""Axes of each array from major to minor in memory; None for row-major order."""


class ArraySpec(NamedTuple):
    """The dtype and shape of an array in a kernel; an extent may be a symbolic dimension of ``jax.export``."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


def is_symbolic(extent: object) -> bool:
    """Return whether an extent is a symbolic dimension of ``jax.export``, which has the arithmetic of integers."""
    return hasattr(extent, "dimension_as_value")


def array_spec(value: Any, what: str) -> ArraySpec:
    """Return the spec of an array, or of any object with a shape and a dtype.

    Raises
    ------
    ArgumentError
        The value lacks a shape or a dtype, or kernels can't take its dtype.
    """
    _check_struct(value, what)
    dtype = BY_NAME.get(str(value.dtype))
    if dtype is None:
        raise ArgumentError(f"{what} is of {value.dtype}, which a kernel can't take", hints=("cast it first",))
    return ArraySpec(dtype, tuple(each if is_symbolic(each) else int(each) for each in value.shape))


def _check_struct(value: object, what: str) -> None:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise ArgumentError(
            f"{what} is {value!r}, which has no shape and dtype", hints=("pass jax.ShapeDtypeStruct(shape, dtype)",)
        )


def check_known(label: str, arrays: Sequence[Any]) -> None:
    """Check that the extents of all arrays are known."""
    for each in arrays:
        if any(map(is_symbolic, each.shape)):
            raise ArgumentError(
                f"{label}: the shape ({', '.join(map(str, each.shape))}) is symbolic, but the extents must be known",
                hints=("export the program once for each shape", "or load the kernel as a module, from C++ or CUDA"),
            )


def check_structs(leaves: Sequence[object], label: str = "outs") -> None:
    """Check that there is an output, and that each output has a shape and a dtype, which may be unsupported."""
    if not leaves:
        raise ArgumentError(f"{label} is empty: a kernel needs at least one output")
    for index, leaf in enumerate(leaves):
        _check_struct(leaf, f"{label}[{index}]")


def check_outs(leaves: Sequence[Any]) -> tuple[ArraySpec, ...]:
    """Check the outputs of a kernel, at least one."""
    check_structs(leaves)
    return tuple(array_spec(leaf, f"outs[{index}]") for index, leaf in enumerate(leaves))


def check_vmap_method(method: object) -> str | None:
    """Check that a method is one of ``jax.ffi.ffi_call``'s, or None."""
    if method is not None and method not in _VMAP_METHODS:
        raise ArgumentError(f"vmap_method={method!r} is not one of {', '.join(map(repr, _VMAP_METHODS))} or None")
    return None if method is None else str(method)


def check_aliases(aliases: object) -> dict[int, int]:
    """Check the argument ``input_output_aliases`` and copy it to a dict."""
    given = {} if aliases is None else aliases
    numbers = [n for pair in given.items() for n in pair] if isinstance(given, Mapping) else [None]
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
        raise ArgumentError(
            f"input_output_aliases must map the number of an input to the number of an output, not {aliases!r}"
        )
    return dict(given)  # type: ignore[call-overload, no-any-return]


def match_aliases(aliases: Mapping[int, int], inputs: Sequence[ArraySpec], outs: Sequence[ArraySpec]) -> None:
    """Check that each input can share its memory with its output, and that no two inputs share it."""
    for source, target in aliases.items():
        if source >= len(inputs) or target >= len(outs):
            raise ArgumentError(
                f"input_output_aliases has {source}: {target}, but the call has {many(len(inputs), 'input')} and "
                f"{many(len(outs), 'output')}"
            )
    taken: dict[int, int] = {}
    for source, target in aliases.items():
        if taken.setdefault(target, source) != source:
            raise ArgumentError(
                f"input_output_aliases gives output {target} the memory of inputs {taken[target]} and {source}"
            )
    for source, target in aliases.items():
        if inputs[source] != outs[target]:
            raise ArgumentError(
                f"input {source} is {inputs[source]} and can't be output {target}, which is {outs[target]}"
            )


def share_memory(
    label: str,
    taking: Sequence[Param],
    inputs: Sequence[ArraySpec],
    rets: Sequence[Param],
    results: Sequence[ArraySpec],
    aliases: Mapping[int, int],
) -> dict[int, int]:
    """Pair the inputs and results that share their memory: inout arrays, and those that the caller names.

    Parameters
    ----------
    taking, rets : sequence of Param
        The parameter of each input, and of each result.
    aliases : mapping of int to int
        The pairs that the caller names.

    Raises
    ------
    ArgumentError
        Two arrays can't share their memory.
    """
    changed = [number for number, param in enumerate(taking) if param.in_place]
    in_place = dict(zip(changed, (number for number, param in enumerate(rets) if param.in_place), strict=True))
    for source, target in in_place.items():
        if inputs[source] != results[target]:
            raise ArgumentError(
                f"{label}: result {target} is {results[target]}, but it is inout: input {source} is {inputs[source]}"
            )
    for source, target in aliases.items():
        if in_place.get(source, target) != target or (target in in_place.values() and source not in in_place):
            raise ArgumentError(
                f"{label}: input_output_aliases has {source}: {target}, but an inout array is an input and a result by "
                f"itself, here {in_place}",
                hints=("leave the inout arrays out of input_output_aliases",),
            )
        if target < len(rets) and rets[target].default is not None:
            raise ArgumentError(
                f"{label}: input_output_aliases puts result {target} into an input's memory, which =0 would clear"
            )
    shared = {**in_place, **aliases}
    match_aliases(shared, inputs, results)
    return shared


def check_layouts(given: Sequence[Sequence[int] | None] | None, what: str) -> Layouts | None:
    """Check layouts: a permutation of the axes of each array."""
    if given is None:
        return None
    try:
        layouts = tuple(None if each is None else tuple(map(int, each)) for each in given)
    except (TypeError, ValueError):
        raise ArgumentError(f"{what} must have a sequence of axes, or None, for each array, not {given!r}") from None
    for index, each in enumerate(layouts):
        if each is not None and sorted(each) != list(range(len(each))):
            raise ArgumentError(f"{what}[{index}] is {each}, which is not a permutation of an array's axes")
    return layouts


def match_alias_layouts(
    label: str, aliases: Sequence[tuple[int, int]], inputs: Layouts | None, outputs: Layouts | None
) -> None:
    """Check that an input and a result that share their memory have the same layout."""
    for source, target in aliases:
        pair = [
            None if each is None or each == (*range(len(each)),) else each
            for each in (inputs and inputs[source], outputs and outputs[target])
        ]
        if pair[0] != pair[1]:
            shown = [f"the layout {each}" if each else "the usual layout" for each in pair]
            raise ArgumentError(
                f"{label}: input {source} and result {target} share their memory, but have {shown[0]} and {shown[1]}",
                hints=("pass the same layout for both, in input_layouts and in output_layouts",),
            )


def match_layouts(label: str, layouts: Layouts | None, arrays: Sequence[ArraySpec], what: str) -> None:
    """Check that each array has a layout with the same number of axes."""
    if layouts is None:
        return
    if len(layouts) != len(arrays):
        raise ArgumentError(f"{label}: {what} describes {many(len(layouts), 'array')}, but the call has {len(arrays)}")
    for index, (layout, array) in enumerate(zip(layouts, arrays, strict=True)):
        if layout is not None and len(layout) != array.ndim:
            raise ArgumentError(f"{label}: {what}[{index}] is {layout}, but the array is {array}")


VMAPPED = "vmap axis "
"""Prefix of the factors of batches, which no name in a declaration can have."""


class Split(NamedTuple):
    """The factors of a call's arrays.

    Parameters
    ----------
    operands, results : tuple of tuple of str
        A factor for each axis of each array, without scratch memory.
    free : tuple of str
        Factors that may be split. Each device needs all other factors as a whole.
    reduce : tuple of str
        Free factors along which the results of parts are summed.
    scratch : tuple of str
        Bytes of each scratch memory, as an expression over the axes of one device.
    places : tuple of (str, (int, int))
        Axes that an expression may name: the numbers of an operand and of its axis.
    integers : tuple of (str, int)
        Attributes that an expression may name, as ``attr.NAME``.
    measured : tuple of Measure
        Functions that an expression may name, as ``f()``; see `be_runtime.jax.sizes`.
    computed : tuple of (str, tuple of str), or None
        Attributes with integers that differ between devices, as expressions. None if functions of the arrays compute
        them, so that the call can't be split.
    on_gather : {"warn", "error"}
    merged : int
        Number of leading axes, made by ``vmap``, that are one axis with the next when the kernel is called.
    looped : int
        Number of leading axes of the results, made by ``vmap``, along which the kernel is called for one element after
        the other. No merged axes come before them.
    numbers : tuple of int
        Operands that are numbers, of which a call has one.
    """

    operands: tuple[tuple[str, ...], ...]
    results: tuple[tuple[str, ...], ...]
    free: tuple[str, ...] = ()
    reduce: tuple[str, ...] = ()
    scratch: tuple[str, ...] = ()
    places: tuple[tuple[str, tuple[int, int]], ...] = ()
    integers: tuple[tuple[str, int], ...] = ()
    measured: tuple[tuple[Any, ...], ...] = ()
    computed: tuple[tuple[str, tuple[str, ...]], ...] | None = ()
    on_gather: str = "warn"
    merged: int = 0
    looped: int = 0
    numbers: tuple[int, ...] = ()

    def with_axis(self, sizes: Sequence[int | None]) -> Split:
        """Return the split of a batch, whose axis leads in all results.

        Parameters
        ----------
        sizes : sequence of (int or None)
            Extent of the new leading axis of each operand; None if it has none.
        """
        level = sum(factor.startswith(VMAPPED) for factor in self.free)
        factor = f"{VMAPPED}{level}"
        names = (factor if size != 1 else f"argument {i}: {factor}" for i, size in enumerate(sizes))
        new = [() if size is None else (name,) for size, name in zip(sizes, names, strict=True)]
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
        """The factor of the results' first axis that does not belong to a batch; empty without one."""
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
        known = axes | dict(self.integers)
        if self.measured:
            from be_runtime.jax.sizes import Measure

            known |= {measure[0]: Measure(*measure)(operands) for measure in self.measured}
        return known

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


def split_of(
    params: Sequence[Param], operands: Sequence[tuple[Param, ArraySpec]], results: Sequence[tuple[Param, ArraySpec]]
) -> Split:
    """Return the names of all axes of a call's arrays, and the axes that may be split.

    Parameters
    ----------
    params : sequence of Param
        All parameters of the entry point, and its ``parallel`` and ``reduce`` tokens.
    operands, results : sequence of (Param, ArraySpec)
        Arrays of the call.

    Examples
    --------
    >>> from be_runtime.dtypes import BY_NAME
    >>> from be_runtime.signature.grammar import parse_spec
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
        free=tuple(sorted({name for each in named for name in each if name in kept or name.startswith(LEADING)})),
        reduce=tuple(sorted(reduced)),
        scratch=tuple(str(p.axes[0]) for p in params if p.role is Role.SCRATCH and p.axes is not None),
        places=tuple(sorted(places.items())),
        numbers=tuple(index for index, (param, _) in enumerate(operands) if param.by_name),
    )


def _names(params: Sequence[Param], role: Role) -> set[str]:
    return {str(axis) for param in params if param.role is role for axis in param.axes or ()}


def _factors(param: Param, spec: ArraySpec, kept: set[str], what: str) -> tuple[str, ...]:
    """Name the axes of one array: an axis that may be split by its own name, any other uniquely."""
    axes = param.axes
    if axes is None:
        return tuple(f"{what}: axis {index}" for index in range(spec.ndim))
    own = [axis for axis in axes if axis != LEADING]
    prefix = "" if LEADING in kept else f"{what}: "
    leading = tuple(f"{prefix}{LEADING}{index}" for index in range(spec.ndim - len(own)))
    return leading + tuple(
        (axis if axis in kept else f"{what}: {axis}") if isinstance(axis, str) else f"{what}: axis {index}"
        for index, axis in enumerate(own, start=len(leading))
    )
