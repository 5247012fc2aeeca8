"""The signature of a call. It checks the inputs, and derives the results and the scratch memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import compress
from typing import TYPE_CHECKING, Any

from be_runtime.call.attributes import convert_attributes, dtype_of
from be_runtime.call.extents import Argument, Extents, bind, check_presence, compute, declared_dtype, paired
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError, call_named
from be_runtime.jax import port
from be_runtime.jax.arrays import (
    ArraySpec,
    Numbers,
    Split,
    Value,
    array_spec,
    check_outs,
    is_symbolic,
    share_memory,
    split_of,
)
from be_runtime.signature.model import LEADING, AttrKind, EntryPoint, Many, Param, Role, render_axes, size_functions
from be_toolchain.named import NamedTuple
from be_toolchain.terminal import many

if TYPE_CHECKING:
    from pathlib import Path

    from be_runtime.jax.sizes import Measure

PRESENT = "be_present"
"""Name of the attribute with a bit for each optional array that a call has."""
WANT = "want"
"""Name of a call's argument for the optional results that the call asks for."""

_SCRATCH = BY_NAME["uint8"]
_MOST_BYTES = 2**47


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
    def has_optional_results(self) -> bool:
        """True if calls may leave out results."""
        return any(param.many is Many.OPTIONAL and param.role is Role.RET for param in self.params)

    @property
    def vmap_method(self) -> str | None:
        """The `vmap` method that the declared axes allow: one call for a batch, or one call after the other."""
        arrays = [param for role in (Role.ARG, Role.RET) for param in self.with_role(role) if not param.by_name]
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


class Export(NamedTuple):
    """A function that a module exports for calls without JAX; the platform is JAX's name, ``"cpu"`` or ``"CUDA"``."""

    signature: CallSignature
    library: Path
    symbol: str
    platform: str


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
        Attributes for XLA in addition to the caller's.
    values : mapping of str to int
        Values for expressions over axes.
    split : Split
        Axes that may be split over devices.
    aliases : tuple of (int, int)
        Inputs and the results that share their memory.
    asked : tuple of bool
        Whether the call has each result of the signature; empty if it has all of them.
    """

    operands: list[Any]
    inputs: tuple[ArraySpec, ...]
    results: tuple[ArraySpec, ...]
    scratch: int
    is_single: bool
    attributes: tuple[tuple[str, Value], ...]
    values: Mapping[str, int]
    split: Split
    aliases: tuple[tuple[int, int], ...]
    asked: tuple[bool, ...] = ()

    @property
    def shown(self) -> tuple[ArraySpec, ...]:
        """The results without scratch memory."""
        return self.results[: len(self.results) - self.scratch]

    @property
    def hidden(self) -> tuple[ArraySpec, ...]:
        """The scratch memory, as arrays of bytes."""
        return self.results[len(self.results) - self.scratch :]

    def with_scratch(self, size: int, text: str, unit: int) -> Resolved:
        """Return the call with further scratch memory, whose size in bytes is rounded up to a multiple of `unit`."""
        return self._replace(
            results=(*self.results, ArraySpec(_SCRATCH, (-(-size // unit) * unit,))),
            scratch=self.scratch + 1,
            split=self.split._replace(scratch=(*self.split.scratch, text)),
        )

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
    aliases: Mapping[int, int],
    want: Collection[str] = (),
    targets: Sequence[str] = (),
    scratch_unit: int = 1,
    as_array: Callable[..., Any] = port.as_array,
) -> Resolved:
    """Check the arrays of a call and derive its results.

    Parameters
    ----------
    signature : CallSignature
    arrays : sequence of (array, None or sequence of array)
        Arguments of the call.
    outs : ShapeDtypeStruct, sequence of them, callable or None
    attributes : mapping of str to object
        Attributes as the caller passed them, which have been checked.
    aliases : mapping of int to int
    want : collection of str
        Names of optional results that the call requests in addition to the results that `outs` describes.
    targets : sequence of str
        Registered targets of the entry point, for functions of its source that compute sizes.
    scratch_unit : int
        Number of bytes of which the size of scratch memory is a multiple.
    as_array : callable
        Function that converts an argument to an array, optionally of a dtype, or raises TypeError or ValueError.

    Raises
    ------
    ArgumentError
        Arrays are not as declared, or results can't be derived.
    """
    label, args, rets = signature.label, signature.with_role(Role.ARG), signature.with_role(Role.RET)
    given, padded = _read_inputs(label, args, arrays, as_array)
    extents, measured = _bind_call(signature, padded, attributes, targets)
    taken = zip(args, padded, strict=True)
    singles = [spec for param, spec in taken if param.many is Many.ONE and isinstance(spec, ArraySpec)]
    if callable(outs) and not hasattr(outs, "shape"):
        outs = call_named(f"outs of {label}", outs, *given, **attributes)
    is_one = not isinstance(outs, Sequence)
    is_single = len(rets) == 1 if outs is None or signature.has_optional_results else is_one
    described = None if outs is None else [outs] if is_one else list(outs)
    asked = asked_results(label, rets, described, want)
    presence = _presence(args, padded, rets, asked)
    if described is not None and len(described) == len(rets):
        described = list(compress(described, asked))
    rets = tuple(map(_always, compress(rets, asked)))
    if not all(asked):  # the caller counts the declared results
        aliases = {source: sum(asked[:target]) for source, target in aliases.items() if all(asked[target : target + 1])}
    if described is None:
        results = derive_results(label, rets, singles, extents)
    else:
        results = check_outs(described)
        check_results(label, rets, results, singles, extents)
    operands = [each for one in given if one is not None for each in (one if isinstance(one, list) else [one])]
    named = paired(args, padded)
    inputs = tuple(spec for _, spec, _ in named)
    shared = share_memory(
        label, [param for param, _, _ in named], inputs, repeated(rets, len(results)), results, aliases
    )
    scratch = scratch_bytes(label, signature.params, extents)
    if not any(spec.size for spec in results):  # nothing runs then
        scratch = (0,) * len(scratch)
    split = split_of(
        signature.params,
        [(param, spec) for param, spec, _ in named],
        list(zip(repeated(rets, len(results)), results, strict=True)),
    )
    return Resolved(
        operands,
        inputs,
        (*results, *(ArraySpec(_SCRATCH, (-(-size // scratch_unit) * scratch_unit,)) for size in scratch)),
        len(scratch),
        is_single,
        presence,
        extents.values(),
        split._replace(integers=tuple(sorted({**extents.attributes, **extents.sizes()}.items())), measured=measured),
        tuple(sorted(shared.items())),
        tuple(asked),
    )


def _read_inputs(
    label: str, args: Sequence[Param], arrays: Sequence[Any], as_array: Callable[..., Any]
) -> tuple[list[Any], list[Argument]]:
    """Convert the arguments of a call to arrays, and return the arrays and a spec for each parameter."""
    given = [as_argument(label, number, each, as_array) for number, each in enumerate(arrays)]
    declared = _dtypes_of_numbers(args, given)
    given[: len(args)] = [
        as_array(each, dtype.name) if dtype is not None and _may_become(each, dtype) else each
        for dtype, each in zip(declared, given, strict=False)
    ]
    specs = [_spec(f"{label}: argument {number}", each) for number, each in enumerate(given)]
    check_presence(label, args, specs)
    return given, [*specs, *[None] * (len(args) - len(specs))]


def _bind_call(
    signature: CallSignature, specs: Sequence[Argument], attributes: Mapping[str, Any], targets: Sequence[str]
) -> tuple[Extents, tuple[Measure, ...]]:
    """Return the extents of a call, and the functions of the source that compute sizes of the call."""
    label, args = signature.label, signature.with_role(Role.ARG)
    attrs = [(param, attributes.get(param.name, param.default)) for param in signature.with_role(Role.ATTR)]
    numbers = {param: value for param, value in attrs if param.kind is AttrKind.SCALAR}
    integers = {
        f"attr.{param.name}": int(value)
        for param, value in numbers.items()
        if value is not None and param.dtype is not None and param.dtype.kind in ("int", "uint")
    }
    dtypes = {f"attr.{p.name}": dtype_of(p.name, value) for p, value in attrs if p.kind is AttrKind.DTYPE}
    extents = bind(label, args, specs, integers, dtypes, signature.with_role(Role.DTYPE))
    functions = size_functions(signature.params)
    if not functions:
        return extents, ()
    from be_runtime.jax.sizes import measures

    arrays = [spec for _, spec, _ in paired(args, specs)]
    if any(is_symbolic(extent) for spec in arrays for extent in spec.shape):
        problem = f"{functions[0]} computes a size, which needs known extents instead of symbolic shapes"
        raise ArgumentError(f"{label}: {problem}")
    converted = convert_attributes(label, list(numbers), {param.name: value for param, value in numbers.items()})
    counts = [-1 if spec is None else 1 if isinstance(spec, ArraySpec) else -2 - len(spec) for spec in specs]
    codes = [spec.dtype.xla_code for spec in arrays]
    measured = measures(label, signature.params, counts, codes, targets, dict(converted))
    shapes = [spec.shape for spec in arrays]
    return extents._replace(measured={each.name: each(shapes) for each in measured}), measured


def asked_results(label: str, rets: Sequence[Param], outs: Sequence[Any] | None, want: Collection[str]) -> list[bool]:
    """Return for each result whether the call has it.

    Parameters
    ----------
    rets : sequence of Param
        Parameters with ``Role.RET``.
    outs : sequence or None
        A description of each result, None in place of an optional result that the call leaves out.
    want : collection of str
        Names of optional results.

    Raises
    ------
    ArgumentError
        A name is not the name of an optional result.
    """
    names = {ret.name for ret in rets if ret.many is Many.OPTIONAL}
    if unknown := next((name for name in want if name not in names), None):
        takes = f"its optional results are {', '.join(sorted(names))}" if names else "all its results are in every call"
        raise ArgumentError(f"{label} has no optional result {unknown!r}; {takes}")
    described = [None] * len(rets) if outs is None or len(outs) != len(rets) else outs
    for index, (ret, out) in enumerate(zip(rets, described, strict=True)):
        if outs is not None and len(outs) == len(rets) and out is None and ret.name in want:
            raise ArgumentError(f"{label}: outs[{index}] is None, but want asks for {ret.name!r}")
    return [
        ret.many is not Many.OPTIONAL or ret.name in want or out is not None
        for ret, out in zip(rets, described, strict=True)
    ]


def _always(ret: Param) -> Param:
    """Return the parameter of a result that a call has."""
    return ret._replace(many=Many.ONE) if ret.many is Many.OPTIONAL else ret


def as_argument(
    label: str, number: int, value: Any, as_array: Callable[[Any], Any] = port.as_array, *, takes_many: bool = True
) -> Any:
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


def one_array(label: str, number: int, value: Any, as_array: Callable[[Any], Any] = port.as_array) -> Any:
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


def _dtypes_of_numbers(args: Sequence[Param], given: Sequence[Any]) -> list[DType | None]:
    """Return the dtype of each input that a Python number becomes; a variable has the dtype of its first array."""
    arrays = [(param, each) for param, each in zip(args, given, strict=False) if hasattr(each, "dtype")]
    variables = {p.like: str(each.dtype) for p, each in reversed(arrays) if not getattr(each, "weak_type", False)}
    singles = [str(each.dtype) for param, each in arrays if param.many is Many.ONE]
    variables |= dict(enumerate(singles))
    return [param.dtype or BY_NAME.get(variables.get(param.like, "")) for param in args]


def _may_become(value: Any, dtype: DType) -> bool:
    """Return whether an array is a Python number that JAX would convert to a dtype, as in ``x + 3``."""
    kinds = ("bool", "int", "float", "complex")
    kind = next((kind for kind in kinds if kind in str(value.dtype)), "") if getattr(value, "weak_type", False) else ""
    to = "int" if dtype.kind == "uint" else dtype.kind
    return kind in kinds and to in kinds and kinds.index(kind) <= kinds.index(to) and str(value.dtype) != dtype.name


def _spec(what: str, value: Any) -> Argument:
    if isinstance(value, list):
        return [array_spec(each, f"{what}[{index}]") for index, each in enumerate(value)]
    return None if value is None else array_spec(value, what)


def _presence(
    args: Sequence[Param], specs: Sequence[Argument], rets: Sequence[Param], asked: Sequence[bool]
) -> tuple[tuple[str, Value], ...]:
    """Return the attribute for the presence of optional inputs and results, if one of them is absent."""
    present = [spec is not None for param, spec in zip(args, specs, strict=True) if param.many is Many.OPTIONAL]
    present += [is_there for ret, is_there in zip(rets, asked, strict=True) if ret.many is Many.OPTIONAL]
    if all(present):
        return ()
    mask = sum(1 << index for index, is_present in enumerate(present) if is_present)
    return ((PRESENT, Numbers("int64", mask.to_bytes(8, "little"))),)


def derive_results(
    label: str, rets: Sequence[Param], inputs: Sequence[ArraySpec], extents: Extents
) -> tuple[ArraySpec, ...]:
    """Compute the shapes and dtypes of the results of a call.

    Parameters
    ----------
    rets : sequence of Param
        Parameters with ``Role.RET``.
    inputs : sequence of ArraySpec
        Arguments of the parameters that take one array, in order.

    Raises
    ------
    ArgumentError
        A shape or a dtype does not follow from the declaration.
    """
    results = []
    for number, ret in enumerate(rets):
        dtype = declared_dtype(ret, inputs, extents.dtypes)
        if dtype is None:
            every = {spec.dtype for spec in inputs}
            if len(every) != 1:
                raise _underived(label, number, "dtype", "ret[n]:float32 or ret[n]:like(0)", inputs)
            (dtype,) = every
        results.append(ArraySpec(dtype, _shape(label, number, ret, inputs, extents)))
        if not any(map(is_symbolic, results[-1].shape)) and results[-1].size > _MOST_BYTES:
            raise ArgumentError(f"{label}: result {number} is {results[-1]}, which is more than any machine has")
    return tuple(results)


def _shape(label: str, number: int, ret: Param, inputs: Sequence[ArraySpec], extents: Extents) -> tuple[int, ...]:
    if ret.axes is None and isinstance(ret.like, int):
        return inputs[ret.like].shape
    if ret.axes is None or ret.many is Many.ANY:
        raise _underived(label, number, "shape", "ret[n] or ret:like(0)")
    leading = extents.leading or () if ret.axes[:1] == (LEADING,) else ()
    values = extents.values()
    return leading + tuple(compute(label, axis, values) for axis in ret.axes if axis != LEADING)


def is_derived(ret: Param, args: Sequence[Param]) -> bool:
    """Return whether the shape and the dtype of a result follow from the declaration."""
    has_shape = ret.many is not Many.ANY and (ret.axes is not None or isinstance(ret.like, int))
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
    label: str, rets: Sequence[Param], outs: Sequence[ArraySpec], inputs: Sequence[ArraySpec], extents: Extents
) -> None:
    """Compare the results that a caller describes with the declaration; see `derive_results` for the parameters.

    Raises
    ------
    ArgumentError
        The number of results, a dtype or an extent is not as declared.
    """
    some = [ret for ret in rets if ret.many is Many.ONE]
    if len(outs) != len(some) if len(some) == len(rets) else len(outs) < len(some):
        raise ArgumentError(f"{label} has {many(len(some), 'result')}, but outs describes {len(outs)}")
    for number, (ret, out) in enumerate(zip(repeated(rets, len(outs)), outs, strict=True)):
        declared = declared_dtype(ret, inputs, extents.dtypes)
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
        if not is_symbolic(found[-1]) and found[-1] > _MOST_BYTES:
            raise ArgumentError(f"{label}: scratch[{size}] is {found[-1]} bytes, more than any machine has")
    return tuple(found)
