"""Functions of a module for arrays of PyTorch and NumPy, without JAX, with their results, attributes and calls in C.

`be_runtime.torch` and `be_runtime.numpy` describe their arrays by an `Arrays`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from be_runtime.call.attributes import convert_attributes, hold, known_dtype, with_defaults
from be_runtime.call.compiled_function import OfThisProcess
from be_runtime.call.resolve import WANT, Export, resolve
from be_runtime.dtypes import BY_NAME, DType
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import Numbers
from be_runtime.signature.model import AttrKind, Param, Role, exported_params, size_functions
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction

_MOST_PLANS = 1024
_INT, _BOOL, _FLOAT, _DTYPE, _TENSOR, _TEXT, _WANTS_TEXT = 1, 2, 3, 5, 7, 8, -16962
_ROOM = 2048
_CODES = {"int": 0, "uint": 1, "float": 2, "complex": 5, "bool": 6}
_OTHER_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""DLPack's numbers of kinds, and of types that have their own number."""
_KINDS: dict[str, type[Exception]] = {"TypeError": TypeError, "ValueError": ValueError, "MemoryError": MemoryError}


class ArrayParts(NamedTuple):
    """Address and layout of an array. `device` has DLPack's two numbers. Strides count elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device: tuple[int, int] = (1, 0)


class Row(NamedTuple):
    """An array that a call makes, with the framework's dtype. `like` is an input of the same shape and dtype."""

    shape: tuple[int, ...]
    dtype: Any
    like: int | None = None


class Arrays(Protocol):
    """The arrays of a framework."""

    def key(self, given: Sequence[Any]) -> tuple[Any, ...]:
        """Return the properties of inputs on which a call depends, as a key; for other objects, the type."""

    def describe(self, array: Any, what: str) -> tuple[tuple[int, ...], str, Any]:
        """Return shape, name of the dtype and device of an array; raise `ArgumentError` for any other object."""

    def dtype(self, name: str) -> Any:
        """Return the framework's dtype of a name."""

    def make(self, rows: Sequence[Row | None], given: Sequence[Any], device: Any) -> list[Any]:
        """Return a new array for each row, and None for None; the device is None if the call has no arrays."""

    def copy(self, array: Any) -> Any:
        """Return a contiguous copy."""

    def parts(self, array: Any) -> ArrayParts:
        """Return the parts of an array for a call in C."""


class _Shaped(NamedTuple):
    shape: tuple[int, ...]
    dtype: str


class Plan(NamedTuple):
    """The data that calls with equal shapes, dtypes and attributes share.

    Parameters
    ----------
    rows : tuple of (Row or None)
        Results, then scratch memory; None for a result that is absent, or a copy of an input.
    copies : tuple of (int, int)
        Numbers of results, and of the inputs that they are copies of.
    absent : tuple of None
        Inputs at the end that the call omits.
    values : tuple
        Attributes in the form for the function in C.
    device
        Device of the first array.
    route : str
        Empty for a plain call, otherwise the framework's name for the kind of call.
    kept : dict
        Objects that the framework makes for the plan.
    """

    rows: tuple[Row | None, ...]
    copies: tuple[tuple[int, int], ...]
    absent: tuple[None, ...]
    values: tuple[Any, ...]
    device: Any
    route: str
    kept: dict[str, Any]


class _Any(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int32), ("small_size", ctypes.c_uint32), ("value", ctypes.c_int64))


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    )


def dl_type(dtype: DType) -> tuple[int, int, int]:
    """Return DLPack's code, bits and lanes of an element type.

    Examples
    --------
    >>> dl_type(BY_NAME["bfloat16"])
    (4, 16, 1)
    """
    return _OTHER_CODES.get(dtype.name, _CODES[dtype.kind]), dtype.bits, 1


class ForeignFunction(OfThisProcess):
    """A function of a module, for arrays of one framework.

    Parameters
    ----------
    export : Export
    arrays : Arrays
    """

    def __init__(self, export: Export, arrays: Arrays) -> None:
        signature = export.signature
        self.signature, self.arrays = signature, arrays
        self.__name__ = signature.label.rpartition(".")[2]
        self.__qualname__, self.__doc__ = signature.label, signature.doc
        params = exported_params(signature.params)
        if params is None:
            raise ArgumentError(f"{signature.label} has a state or any number of arrays, so that only JAX can call it")
        if functions := size_functions(signature.params):
            raise ArgumentError(f"{signature.label}: {functions[0]} computes a size, which only JAX can ask for")
        self._symbol = getattr(ctypes.CDLL(str(export.library)), export.symbol)
        self._symbol.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p]
        self._args, self._rets = signature.with_role(Role.ARG), signature.with_role(Role.RET)
        self._attrs = signature.with_role(Role.ATTR)
        self._has_numbers = any(param.by_name for param in self._args)
        self._in_place = [index for index, arg in enumerate(self._args) if arg.in_place]
        scratch = sum(param.role is Role.SCRATCH for param in params)
        self._order = tuple(self._places(params, scratch))
        self._is_in_order = self._order == tuple(range(len(self._args) + len(self._rets) + scratch + len(self._attrs)))
        self._plans: dict[Any, Plan] = {}

    def _places(self, params: Sequence[Param], scratch: int) -> Iterator[int]:
        """Return the position of each argument in C among inputs, results, scratch memory and attributes."""
        first_ret, first_attr = len(self._args), len(self._args) + len(self._rets) + scratch
        inputs = (index for index in range(first_ret) if index not in self._in_place)
        rets, memory = iter(range(first_ret, first_attr)), iter(range(first_attr - scratch, first_attr))
        names = [param.name for param in self._attrs]
        for param in params:
            if param.role is Role.ATTR:
                yield first_attr + names.index(param.name)
            else:
                yield next({Role.ARG: inputs, Role.RET: rets, Role.SCRATCH: memory}[param.role])

    def __call__(self, *arrays: Any, **attributes: Any) -> Any:
        """Call the function with arrays by position and attributes by name, and return new arrays."""
        given: Sequence[Any] = arrays
        if self._has_numbers:
            given, attributes = self._with_numbers(arrays, attributes)
        return self.run(given, self.plan(given, attributes))

    def run(self, given: Sequence[Any], plan: Plan) -> Any:
        """Call the function with all inputs."""
        rows, copies, absent, values, device, _, _ = plan
        try:
            made = self.arrays.make(rows, given, device)
            for result, source in copies:
                made[result] = self.arrays.copy(given[source])
            every = (*given, *absent, *made, *values)
            self.call(every if self._is_in_order else [every[place] for place in self._order], device)
        except Exception:
            self._describe(given)  # the plan may be of dense arrays of the same shapes
            raise
        return made[0] if len(self._rets) == 1 else tuple(made[: len(self._rets)])

    def empty_results(self, arrays: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
        """Return the results of a call without their values."""
        given, left = self._with_numbers(tuple(arrays), attributes)
        plan = self.plan(given, left)
        made = self.arrays.make(plan.rows, given, plan.device)
        for result, source in plan.copies:
            made[result] = self.arrays.copy(given[source])
        return made[: len(self._rets)]

    def call(self, arguments: Sequence[Any], device: Any) -> None:
        """Call the function in C with the arguments of the C++ function, including the results."""
        del device
        kept: list[Any] = []
        anys = (_Any * len(arguments))(*(self._any(each, kept) for each in arguments))
        text = ctypes.create_string_buffer(_ROOM)
        result = _Any(_WANTS_TEXT, 0, ctypes.addressof(text))
        if self._symbol(None, anys, len(arguments), ctypes.byref(result)) != 0:
            kind, _, message = text.value.decode().partition(": ")
            raise _KINDS.get(kind, RuntimeError)(message)

    def _any(self, value: Any, kept: list[Any]) -> _Any:
        if value is None:
            return _Any(0, 0, 0)
        if isinstance(value, bool | int):
            return _Any(_BOOL if isinstance(value, bool) else _INT, 0, int(value))
        if isinstance(value, float):
            return _Any(_FLOAT, 0, int.from_bytes(bytes(ctypes.c_double(value)), "little", signed=True))
        if isinstance(value, str):
            if "\0" in value:
                raise ArgumentError(f"{self.signature.label}: a text has a NUL character")
            kept.append(ctypes.create_string_buffer(value.encode()))
            return _Any(_TEXT, 0, ctypes.addressof(kept[-1]))
        if isinstance(value, DType):
            code, bits, lanes = dl_type(value)
            return _Any(_DTYPE, 0, code | bits << 8 | lanes << 16)
        parts = value if isinstance(value, ArrayParts) else self.arrays.parts(value)
        ndim = len(parts.shape)
        extents = (ctypes.c_int64 * (2 * ndim + 1))(*parts.shape, *parts.strides)
        first = ctypes.addressof(extents)
        tensor = _Tensor(parts.address, *parts.device, ndim, *dl_type(BY_NAME[parts.dtype]), first, first + 8 * ndim, 0)
        kept += [extents, tensor, value]
        return _Any(_TENSOR, 0, ctypes.addressof(tensor))

    def _with_numbers(self, arrays: tuple[Any, ...], attributes: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return all inputs in order, with the numbers that calls pass by name, and the other keyword arguments."""
        named = [param for param in self._args if param.by_name]
        if not named or len(arrays) == len(self._args):
            return list(arrays), attributes
        rest, left = list(reversed(arrays)), dict(attributes)
        found: list[Any] = []  # torch.compile does not understand list[Any]()
        for param in self._args:
            if not param.by_name:
                found.append(rest.pop() if rest else None)
                continue
            value = left.pop(param.name, param.default)
            if value is None:
                raise ArgumentError(f"{self.signature.label} needs the number {param.name!r}")
            found.append(value)
        return [*found, *reversed(rest)], left

    def plan(self, given: Sequence[Any], attributes: Mapping[str, Any]) -> Plan:
        """Return the plan of a call, which may come from an earlier call."""
        try:
            key = self.arrays.key(given)
            if attributes:
                key += tuple([(name, value.__class__, _exact(value)) for name, value in attributes.items()])
            known = self._plans.get(key)
        except (TypeError, ValueError, RuntimeError):  # an attribute that is a list, or an array without a shape
            return self._new_plan(given, attributes)
        if known is None:
            known = self._new_plan(given, attributes)
            if len(self._plans) < _MOST_PLANS:
                self._plans[key] = known
        return known

    def _new_plan(self, given: Sequence[Any], attributes: Mapping[str, Any]) -> Plan:
        signature, left = self.signature, dict(attributes)
        want = left.pop(WANT, ()) if signature.has_optional_results else ()
        names = (want,) if isinstance(want, str) else tuple(want)
        arrays: list[Any] = []
        device = None
        for number, value in enumerate(given):
            if value is None:
                arrays.append(None)
            elif isinstance(value, bool | int | float):
                arrays.append(self._number(number, value))
            else:
                shape, dtype, place = self.arrays.describe(value, f"{signature.label}: argument {number}")
                arrays.append(_Shaped(shape, dtype))
                device = place if device is None else device
        converted = dict(convert_attributes(signature.label, self._attrs, left))
        values = tuple(self.value(param, converted.get(param.name)) for param in self._attrs)
        resolved = resolve(
            signature, arrays, None, with_defaults(self._attrs, left), aliases={}, want=names, as_array=_as_it_is
        )
        specs, rows, copies = iter((*resolved.shown, *resolved.hidden)), list[Row | None](), list[tuple[int, int]]()
        sources = iter(self._in_place)
        for ret, is_asked in zip(self._rets, resolved.asked or (True,) * len(self._rets), strict=True):
            spec = next(specs) if is_asked else None
            if ret.in_place:
                copies.append((len(rows), next(sources)))
            if spec is None or ret.in_place:
                rows.append(None)
                continue
            shaped = _Shaped(spec.shape, spec.dtype.name)
            is_like = [each == shaped and hasattr(x, "shape") for each, x in zip(arrays, given, strict=True)]
            like = is_like.index(True) if True in is_like else None
            rows.append(Row(spec.shape, self.arrays.dtype(spec.dtype.name), like))
        rows += [Row(spec.shape, self.arrays.dtype(spec.dtype.name)) for spec in specs]
        absent = (None,) * (len(self._args) - len(given))
        return Plan(tuple(rows), tuple(copies), absent, values, device, self.route(given), {})

    def _describe(self, given: Sequence[Any]) -> None:
        """Raise an error for an array that no function can take."""
        for number, value in enumerate(given):
            if not isinstance(value, bool | int | float | None):
                self.arrays.describe(value, f"{self.signature.label}: argument {number}")

    def route(self, given: Sequence[Any]) -> str:
        """Return the kind of calls with these inputs; empty for a plain call."""
        del given
        return ""

    def _number(self, number: int, value: float) -> _Shaped:
        """Return the shape and dtype of a number in place of an array, which its parameter must allow."""
        param = self._args[number] if number < len(self._args) else None
        if param is None or not param.by_name:
            raise ArgumentError(f"{self.signature.label}: argument {number} is {value!r}, not an array")
        if hold(value, known_dtype(param)) is None:
            raise ArgumentError(f"{self.signature.label}: {param.name} is {value!r}, no {known_dtype(param).name}")
        return _Shaped((), known_dtype(param).name)

    def value(self, param: Param, converted: Any) -> Any:
        """Return an attribute in the form for the function in C; None if the call omits it."""
        if converted is None:
            return None
        if isinstance(converted, str):
            return converted
        if param.kind is AttrKind.DTYPE:
            code = int.from_bytes(converted.data[:4], "little")
            return next(row for row in BY_NAME.values() if row.xla_code == code)
        if not isinstance(converted, Numbers):
            raise ArgumentError(f"{self.signature.label}: only JAX can pass {param.name}, which has fields")
        import numpy as np

        numbers = np.frombuffer(converted.data, converted.dtype)
        if param.kind is AttrKind.SCALAR and not converted.is_array:
            return numbers[0].item()
        dtype = known_dtype(param)
        address = numbers.__array_interface__["data"][0]
        count = len(converted.data) // max(dtype.size_bytes, 1)
        kept = _KeptParts(address, (count,), (1,), dtype.name)
        kept.owner = numbers
        return kept


class _KeptParts(ArrayParts):
    """Parts of an array of numbers, which keep the array alive."""

    owner: Any


def _exact(value: Any) -> Any:
    """Return a value that equals another attribute's value only if both are the same, although 0.0 equals -0.0.

    Raises
    ------
    TypeError
        The value may change between calls, as a tensor may, whose hash is its identity.
    """
    if isinstance(value, tuple):
        return tuple([_exact(each) for each in value])
    if hasattr(value, "__setitem__"):
        raise TypeError
    return value or str(value) if isinstance(value, float | int | str) else (value, str(value))


def _as_it_is(value: Any, _dtype: str | None = None) -> Any:
    return value


class Functions(Protocol):
    """A loaded module."""

    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function; raise KeyError if none has this name."""


class ForeignFunctions(OfThisProcess):
    """The functions of a module as attributes and items, for arrays of one framework."""

    def __init__(self, module: Functions, make: Callable[[KernelFunction[..., Any]], Any]) -> None:
        if not hasattr(type(module), "__getattr__"):  # modules and packages have it
            raise TypeError(f"functions() takes a loaded module, as load_cpp_file() returns it, not {module!r}")
        self.__dict__.update(_module=module, _make=make)

    def __getitem__(self, name: str) -> Any:
        found = self.__dict__[name] = self._make(self._module[name])
        return found

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(error.args[0], name=name, obj=self) from None

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *getattr(self._module, "__info__", self._module).function_names})
