"""Sizes that functions of an author's source compute, while a program is traced or split over devices."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from be_runtime.errors import ArgumentError
from be_runtime.jax import port
from be_runtime.jax.arrays import Numbers, Value
from be_runtime.signature.model import Param, Role, size_functions
from be_toolchain.named import NamedTuple


class Measure(NamedTuple):
    """A function of a module with all arguments except extents. JSON can represent the fields.

    Parameters
    ----------
    name : str
        Name in expressions, as ``f()``.
    label : str
        Beginning of messages.
    targets : tuple of str
        Registered targets of the entry point, one for each platform; the largest size counts.
    number : int
        Its position among the functions of the entry point.
    counts : tuple of int
        Number of arrays of each parameter for inputs: -1 if the array is absent, -2 - n for n arrays of a parameter
        that takes any number.
    codes : tuple of int
        ``XLA_FFI_DataType`` of each array.
    attributes : tuple of str
        Bytes of each attribute of the entry point, as hexadecimal digits; empty if the function can't take it.
    """

    name: str
    label: str
    targets: tuple[str, ...]
    number: int
    counts: tuple[int, ...]
    codes: tuple[int, ...]
    attributes: tuple[str, ...]

    def __call__(self, shapes: Sequence[Sequence[int]]) -> int:
        """Return the size for inputs of some shapes.

        Raises
        ------
        ArgumentError
            The function throws an exception.
        """
        words = [len(self.counts), len(shapes)]
        rest = iter(zip(self.codes, shapes, strict=True))
        for count in self.counts:
            words.append(count)
            for code, shape in [next(rest) for _ in range(max(count, -2 - count, 0))]:
                words += [code, len(shape), *shape]
        data = [ctypes.create_string_buffer(bytes.fromhex(text)) for text in self.attributes]
        values = (ctypes.c_void_p * len(data))(*(ctypes.addressof(each) for each in data))
        found = ctypes.c_int64()
        sizes = []
        for target in self.targets:
            function = _function_beside(target)
            failure = function(self.number, (ctypes.c_int64 * len(words))(*words), values, ctypes.byref(found))
            if failure is not None:
                raise ArgumentError(f"{self.label}: {self.name} failed: {failure.decode(errors='replace')}")
            sizes.append(found.value)
        if min(sizes) < 0:
            raise ArgumentError(f"{self.label}: {self.name} is {min(sizes)}, which is not a size")
        return max(sizes)


def measures(
    label: str, params: Sequence[Param], counts: Sequence[int], codes: Sequence[int], targets: Sequence[str],
    attributes: Mapping[str, Value],
) -> tuple[Measure, ...]:  # fmt: skip
    """Return the functions in the expressions of an entry point's parameters, for one call.

    Parameters
    ----------
    params : sequence of Param
    counts, codes, targets
        See `Measure`.
    attributes : mapping of str to Value
        Numbers among the attributes of the call, with the defaults of those that it leaves out.
    """
    values = [attributes.get(param.name) for param in params if param.role is Role.ATTR]
    texts = tuple(value.data.hex() if isinstance(value, Numbers) else "" for value in values)
    return tuple(
        Measure(name, label, tuple(targets), number, tuple(counts), tuple(codes), texts)
        for number, name in enumerate(size_functions(params))
    )


def _function_beside(target: str) -> ctypes._NamedFuncPointer:
    """Return the function that calls the size functions of an entry point, from its library."""

    class Found(ctypes.Structure):
        _fields_ = (
            ("path", ctypes.c_char_p),
            ("base", ctypes.c_void_p),
            ("symbol", ctypes.c_char_p),
            ("at", ctypes.c_void_p),
        )

    found = Found()
    ctypes.CDLL(None).dladdr(ctypes.c_void_p(port.address(target)), ctypes.byref(found))
    library = ctypes.CDLL(found.path.decode())  # it is open: this finds it by its name
    function = library[f"be_size_{found.symbol.decode().split('_', 2)[2]}"]
    function.restype = ctypes.c_char_p
    return function
