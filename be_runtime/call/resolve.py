"""The signature of a call, and the check of one call's arrays against it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from be_runtime.call import shapes
from be_runtime.call.attributes import dtype_of
from be_runtime.call.derivatives import split_of
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError, call_named
from be_runtime.jax.arrays import ArraySpec, Numbers, Value, array_spec, check_outs, match_aliases
from be_runtime.jax.split import Split
from be_runtime.signature.model import LEADING, AttrKind, EntryPoint, Many, Param, Role

PRESENT = "be_present"
"""Name of the attribute with a bit for each optional array that a call has."""

_SCRATCH = BY_NAME["uint8"]


class CallSignature(NamedTuple):
    """The signature of an entry point for its calls.

    Parameters
    ----------
    label : str
        ``module.function``, the beginning of every message.
    params : tuple of Param
        Parameters in the order of the C++ call.
    doc : str
        Description by its author.
    """

    label: str
    params: tuple[Param, ...]
    doc: str = ""

    def with_role(self, role: Role) -> tuple[Param, ...]:
        """Return the parameters of one role, in call order."""
        return tuple(param for param in self.params if param.role is role)

    @property
    def attribute_names(self) -> tuple[str, ...]:
        """The names of the attributes, in call order."""
        return tuple(param.name for param in self.with_role(Role.ATTR))

    @property
    def vmap_method(self) -> str | None:
        """The `vmap` method that the declared axes allow: one call for a batch, or one call after the other."""
        arrays = (*self.with_role(Role.ARG), *self.with_role(Role.RET))
        if any(param.axes is None for param in arrays):
            return None
        is_batched = all(param.axes is not None and param.axes[:1] == (LEADING,) for param in arrays)
        return "broadcast_all" if is_batched else "sequential"

    @property
    def has_parallel_first(self) -> bool:
        """True if each result begins with the same parallel axis, and so does each input with that axis."""
        arrays = [param.axes for param in (*self.with_role(Role.ARG), *self.with_role(Role.RET))]
        alone = {axis for param in self.with_role(Role.PARALLEL) for axis in param.axes or ()}
        first = next(iter(arrays[-1] or ()), None)
        return first in alone and all(axes is not None and first not in axes[1:] for axes in arrays)


def signature_of_entry(label: str, entry: EntryPoint) -> CallSignature:
    """Return the signature of an entry point that was read from a source."""
    return CallSignature(label, (*entry.params, *entry.rules), entry.doc)


class Resolved(NamedTuple):
    """A call with checked arrays.

    Parameters
    ----------
    operands : list of array
        Arrays of the call in order, without absent ones.
    inputs : tuple of ArraySpec
        Shapes and dtypes of the operands.
    results : tuple of ArraySpec
        Results, then scratch memory.
    scratch : int
        Number of scratch memories.
    is_single : bool
        True if the call returns an array, not a tuple.
    attributes : tuple of (str, Value)
        Attributes for XLA beyond the caller's.
    values : mapping of str to int
        Values for expressions over axes.
    split : Split
        Axes that may be split over devices.
    """

    operands: list[Any]
    inputs: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    scratch: int
    is_single: bool
    attributes: tuple[tuple[str, Value], ...]
    values: Mapping[str, int]
    split: Split

    @property
    def shown(self) -> tuple[ArraySpec, ...]:
        """The results without scratch memory."""
        return self.results[: len(self.results) - self.scratch]

    @property
    def hidden(self) -> tuple[ArraySpec, ...]:
        """The scratch memory, an array of bytes each."""
        return self.results[len(self.results) - self.scratch :]

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to compute."""
        return not any(spec.size for spec in self.shown)


def resolve(
    signature: CallSignature,
    arrays: Sequence[Any],
    outs: Any,
    attributes: Mapping[str, Any],
    *,
    as_array: Callable[..., Any],
    aliases: Mapping[int, int],
    scratch_unit: int = 1,
) -> Resolved:
    """Check the arrays of a call and derive its results.

    Parameters
    ----------
    signature : CallSignature
    arrays : sequence of (array, None or sequence of array)
        Arguments of the call.
    outs : ShapeDtypeStruct, sequence of them, callable or None
    attributes : mapping of str to object
        Attributes as the caller gave them, checked before.
    as_array : callable
        Function that converts an argument to an array, optionally of a dtype, or raises TypeError or ValueError.
    aliases : mapping of int to int
    scratch_unit : int
        Scratch memory is a multiple of so many bytes.

    Raises
    ------
    ArgumentError
        Arrays are not as declared, or results can't be derived.
    """
    label, args, rets = signature.label, signature.with_role(Role.ARG), signature.with_role(Role.RET)
    given = [as_argument(label, number, each, as_array) for number, each in enumerate(arrays)]
    given[: len(args)] = [
        as_array(each, param.dtype.name) if param.dtype is not None and _may_become(each, param.dtype) else each
        for param, each in zip(args, given, strict=False)
    ]
    specs = [_spec(label, number, each) for number, each in enumerate(given)]
    padded = [*specs, *[None] * (len(args) - len(specs))]
    shapes.check_presence(label, args, specs)
    attrs = [(param, attributes.get(param.name, param.default)) for param in signature.with_role(Role.ATTR)]
    integers = {
        f"attr.{param.name}": int(value)
        for param, value in attrs
        if param.kind is AttrKind.SCALAR and param.dtype is not None and param.dtype.kind in ("int", "uint")
    }
    dtypes = {param.name: dtype_of(param.name, value) for param, value in attrs if param.kind is AttrKind.DTYPE}
    extents = shapes.bind(label, args, padded, integers)
    singles = [spec for spec in padded if isinstance(spec, ArraySpec)]
    if outs is None:
        results = shapes.derive_results(label, rets, singles, extents, dtypes)
        is_single = len(rets) == 1
    else:
        if callable(outs) and not hasattr(outs, "shape"):
            outs = call_named(f"outs of {label}", outs, *given, **attributes)
        is_single = not isinstance(outs, Sequence)
        results = check_outs([outs] if is_single else list(outs))
        shapes.check_results(label, rets, results, singles, extents, dtypes)
    operands = [each for one in given if one is not None for each in (one if isinstance(one, list) else [one])]
    named = shapes.paired(args, padded)
    inputs = tuple(spec for _, spec, _ in named)
    match_aliases(aliases, inputs, results)
    scratch = shapes.scratch_bytes(label, signature.params, extents)
    if not any(spec.size for spec in results):  # nothing runs then
        scratch = (0,) * len(scratch)
    split = split_of(
        signature.params,
        [(param, spec) for param, spec, _ in named],
        list(zip(shapes.repeated(rets, len(results)), results, strict=True)),
    )
    return Resolved(
        operands,
        inputs,
        (*results, *(ArraySpec(_SCRATCH, (-(-size // scratch_unit) * scratch_unit,)) for size in scratch)),
        len(scratch),
        is_single,
        _presence(args, padded),
        extents.values(),
        split._replace(integers=tuple(sorted(integers.items()))),
    )


def as_argument(label: str, number: int, value: Any, as_array: Callable[[Any], Any], *, takes_many: bool = True) -> Any:
    """Convert an argument to an array, None, or, if a parameter may take many, a list of arrays.

    Raises
    ------
    ArgumentError
        The argument is no array.
    """
    if value is None:
        return None
    if takes_many and isinstance(value, tuple | list) and all(hasattr(each, "dtype") for each in value):
        return list(value)
    for index, each in enumerate(value if takes_many and isinstance(value, tuple | list) else ()):
        if each is None:
            raise ArgumentError(f"{label}: argument {number}[{index}] is None, which is not an array")
    return one_array(label, number, value, as_array)


def one_array(label: str, number: int, value: Any, as_array: Callable[[Any], Any]) -> Any:
    """Convert an argument to an array.

    Raises
    ------
    ArgumentError
        The argument is no array.
    """
    try:
        return as_array(value)
    except OverflowError:
        raise ArgumentError(
            f"{label}: argument {number} is {value!r}, which is too large for JAX's default integers",
            hints=("pass it with its type, such as numpy.float32(...)",),
        ) from None
    except (TypeError, ValueError):
        text = repr(value)
        shown = text if len(text) <= 60 else f"a {type(value).__name__}"
        raise ArgumentError(
            f"{label}: argument {number} is {shown}, which is not an array",
            hints=("arguments are JAX or NumPy arrays, or numbers",),
        ) from None


def _may_become(value: Any, dtype: DType) -> bool:
    """Return whether an array is a Python number that JAX would convert to a dtype, as in ``x + 3``."""
    kinds = ("bool", "int", "float", "complex")
    kind = next((kind for kind in kinds if kind in str(value.dtype)), "") if getattr(value, "weak_type", False) else ""
    to = "int" if dtype.kind == "uint" else dtype.kind
    return kind in kinds and to in kinds and kinds.index(kind) <= kinds.index(to) and str(value.dtype) != dtype.name


def _spec(label: str, number: int, value: Any) -> shapes.Argument:
    if value is None:
        return None
    if isinstance(value, list):
        return [array_spec(each, f"{label}: argument {number}[{index}]") for index, each in enumerate(value)]
    return array_spec(value, f"{label}: argument {number}")


def _presence(args: Sequence[Param], specs: Sequence[shapes.Argument]) -> tuple[tuple[str, Value], ...]:
    """Return the attribute for the presence of optional arrays, if one of them is absent."""
    optional = [spec for param, spec in zip(args, specs, strict=True) if param.many is Many.OPTIONAL]
    if all(spec is not None for spec in optional):
        return ()
    mask = sum(1 << index for index, spec in enumerate(optional) if spec is not None)
    return ((PRESENT, Numbers("int64", mask.to_bytes(8, "little"))),)
