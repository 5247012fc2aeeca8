"""The content of a Python function as a digest that is the same in every process: the identity of a compiled kernel.

The content of a function is its bytecode, its constants, the defaults of its parameters, the values in its closure and
those of its global names, including the functions that it calls, recursively. Line numbers and file names are not part
of it, so moving a kernel changes nothing. Functions wrapped by a just-in-time compiler (anything with ``py_func`` and
``targetoptions``, as in Numba) include their options.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_BY_NAME = frozenset({"builtins", "cmath", "llvmlite", "math", "numba", "numba_cuda", "numpy", "operator"})
"""Packages whose classes and functions are identified by name; the version of each is part of the content."""


_KIND_FLAGS = 0xFFF
"""Bits of ``co_flags`` for the kind of function, without the ``__future__`` imports of its file."""


class Content(NamedTuple):
    """The identity of a function.

    Parameters
    ----------
    digest : str
        SHA-256 in hexadecimal digits.
    anchors : tuple
        Objects that are identified by their addresses, which are part of the digest. It is valid as long as they live,
        and only in this process. Empty for nearly every kernel.
    """

    digest: str
    anchors: tuple[object, ...] = ()


def function_content(function: object) -> Content:
    """Return the content of a function, or of a just-in-time compiler's wrapper around one.

    Examples
    --------
    >>> def scale(by):
    ...     return lambda x: by * x
    >>> function_content(scale(2)) == function_content(scale(2))
    True
    >>> function_content(scale(2)) == function_content(scale(3))
    False
    """
    walk = _Walk()
    walk.write(sys.implementation.cache_tag or sys.version)
    walk.visit(function)
    return Content(walk.digest.hexdigest(), tuple(walk.anchors))


class _Walk:
    """One pass over all objects that a function reaches, each of them once."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.anchors: list[object] = []
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # an address identifies an object only while it lives

    def write(self, *parts: str | bytes) -> None:
        """Add parts, each after its length, so that different parts can't give the same bytes."""
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def visit(self, value: object) -> None:
        """Add an object of any type."""
        if value is None or isinstance(value, bool | int | float | complex | str | bytes) or value is Ellipsis:
            self.write(type(value).__qualname__, repr(value))
            return
        # Equal constants may be one object in one process and two in another, so constants are always followed.
        if not isinstance(value, tuple | frozenset | types.CodeType):
            if id(value) in self._seen:
                self.write("again", str(self._seen[id(value)]))
                return
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
        self._visit_new(value)

    def _visit_new(self, value: object) -> None:
        match value:
            case types.FunctionType():
                self._visit_function(value)
            case types.CodeType():
                self._visit_code(value)
            case types.ModuleType():
                self.write("module", value.__name__, str(getattr(value, "__version__", "")))
            case types.BuiltinFunctionType():
                self.write("builtin", str(value.__module__), value.__qualname__)
                if not isinstance(value.__self__, types.ModuleType | types.NoneType):
                    self.visit(value.__self__)
            case enum.Enum():
                self.write("enum", type(value).__qualname__, value.name)
                self.visit(value.value)
            case tuple() | list():
                self.write(type(value).__qualname__, str(len(value)), *getattr(value, "_fields", ()))
                self._visit_all(value)
            case dict():
                self.write("dict", str(len(value)))
                self._visit_all(part for item in value.items() for part in item)
            case set() | frozenset():
                self.write(type(value).__qualname__, *sorted(_alone(item) for item in value))
            case _:
                self._visit_other(value)

    def _visit_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.visit(value)

    def _visit_other(self, value: Any) -> None:
        """Add an object that is identified by its attributes or its name, or else by its address."""
        kind = type(value)
        if hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.write("compiled", kind.__module__, kind.__qualname__)
            options = {**value.targetoptions, "locals": getattr(value, "locals", {})}
            self._visit_all(sorted((str(name), _option(option)) for name, option in options.items()))
            self.visit(value.py_func)
        elif _package(kind) == "numpy" and hasattr(value, "tobytes"):
            self.write("numpy", kind.__qualname__, value.dtype.str, repr(value.shape), value.tobytes())
        elif isinstance(value, type) and _package(value) in _BY_NAME:
            self.write("type", value.__module__, value.__qualname__, _version(value.__module__))
        elif _is_described(kind):
            self.write("described", kind.__module__, kind.__qualname__, str(value))
        elif _package(kind) == "numpy" and hasattr(value, "__name__"):
            self.write("named", kind.__qualname__, value.__name__)
        else:
            self.anchors.append(value)
            self.write("anchor", kind.__module__, kind.__qualname__, str(id(value)))

    def _visit_function(self, function: types.FunctionType) -> None:
        module = function.__module__ or ""
        # Functions made by one factory have the same name.
        if module.partition(".")[0] in _BY_NAME and "<locals>" not in function.__qualname__:
            self.write("function", module, function.__qualname__, _version(module))
            return
        self.write("function")
        self._visit_code(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        for cell in function.__closure__ or ():
            self.visit(_content_of(cell))
        for name, *attributes in sorted(set(_global_reads(function.__code__))):
            if name in function.__globals__:
                self.write("global", name)
                self._visit_read(function.__globals__[name], attributes)

    def _visit_read(self, value: object, attributes: list[str]) -> None:
        """Add a value that a function reads: an object, or an attribute of a module that is not identified by name."""
        while attributes and isinstance(value, types.ModuleType) and hasattr(value, attributes[0]):
            if value.__name__.partition(".")[0] in _BY_NAME:
                break
            name, *attributes = attributes
            self.write("attribute", name)
            value = getattr(value, name)
        self.visit(value)

    def _visit_code(self, code: types.CodeType) -> None:
        self.write("code", code.co_code, code.co_exceptiontable)
        kind = code.co_flags & _KIND_FLAGS
        self.write(*(str(number) for number in (code.co_argcount, code.co_kwonlyargcount, kind)))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self.write(str(len(names)), *names)
        self.write(str(len(code.co_consts)))
        self._visit_all(code.co_consts)


def _alone(value: object) -> bytes:
    """Digest one member of a set by itself, since a set has no order."""
    walk = _Walk()
    walk.visit(value)
    return walk.digest.digest()


def _option(value: object) -> str:
    """Convert a compiler option to text, which is stable for Numba's flag classes."""
    return ",".join(sorted(map(str, value))) if isinstance(value, set | frozenset) else str(value)


def _package(kind: type) -> str:
    return (kind.__module__ or "").partition(".")[0]


def _version(module: str) -> str:
    """Return the version of the package that a module belongs to."""
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))


def _is_described(kind: type) -> bool:
    """Return whether the text of such an object describes it completely."""
    return (kind.__module__ or "").startswith("numba.core.types") or (
        _package(kind) == "numpy" and "dtype" in kind.__name__.lower()
    )


def _content_of(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return "an empty cell"


def _global_reads(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """List the global names that a code object, or one inside it, reads, each with the attributes read from it."""
    read: list[str] = []
    for instruction in dis.get_instructions(code):
        if read and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            read.append(instruction.argval)
            continue
        if read:
            yield tuple(read)
        read = [instruction.argval] if instruction.opname == "LOAD_GLOBAL" else []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_reads(constant)
