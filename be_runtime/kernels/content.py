"""Digests of a Python function's content, which identify what is compiled from it and are the same in every process.

The content consists of the function's bytecode, its constants, the defaults of its parameters, and the values of its
closure and of its global names, including the functions that it calls, recursively. Line numbers and file names are not
part of the content, so that a moved kernel stays the same. The content of a function in a just-in-time compiler's
wrapper (an object with ``py_func`` and ``targetoptions``, as in Numba) includes the compiler's options.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

NUMBA = frozenset({"llvmlite", "numba", "numba_cuda", "numba_cuda_mlir"})
_BY_NAME = NUMBA | {"builtins", "cmath", "math", "numpy", "operator"}
"""Packages whose classes and functions are identified by name and by the package's version."""

_DESCRIBED = ("numba.core.types", "numba_cuda_mlir.numba_cuda.types", "cuda.tile.DType")
"""Beginnings of the names of classes whose objects are described completely by their text."""

_KIND_FLAGS = 0xFFF
"""Bits of ``co_flags`` that describe the kind of function, without the ``__future__`` imports of its file."""

_OF_THE_TEXT = frozenset(
    {"__dict__", "__doc__", "__firstlineno__", "__module__", "__static_attributes__", "__weakref__"}
)
"""Attributes of a class that depend on the place and form of its text alone."""


def package_of_module(module: object) -> str:
    """Return the package in the name of a module."""
    return str(module or "").partition(".")[0]


class Content(NamedTuple):
    """The identity of a function.

    Parameters
    ----------
    digest : str
        SHA-256 in hexadecimal digits.
    anchors : tuple
        Objects that are identified by their addresses, which are part of the digest. With anchors the digest is valid
        only in this process and while they live. Nearly every kernel has none.
    """

    digest: str
    anchors: tuple[object, ...] = ()


def function_content(function: object, by_name: Iterable[str] = (), *, with_objects: bool = False) -> Content:
    """Return the content of a function, or of a just-in-time compiler's wrapper around one.

    Parameters
    ----------
    function : object
    by_name : iterable of str
        Further packages whose classes and functions are identified by name and by the package's version.
    with_objects : bool
        True to describe classes by their attributes, and other objects by their class and attributes.

    Examples
    --------
    >>> def scale(by):
    ...     return lambda x: by * x
    >>> function_content(scale(2)) == function_content(scale(2))
    True
    >>> function_content(scale(2)) == function_content(scale(3))
    False
    """
    walk = _Walk(_BY_NAME.union(by_name), with_objects=with_objects)
    walk.write(sys.implementation.cache_tag or sys.version)
    walk.visit(function)
    return Content(walk.digest.hexdigest(), tuple(walk.anchors))


class _Walk:
    """One pass over all objects that a function reaches; each is visited once."""

    def __init__(self, by_name: frozenset[str], *, with_objects: bool) -> None:
        self._by_name, self._with_objects = by_name, with_objects
        self.digest = hashlib.sha256()
        self.anchors: list[object] = []
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # an address identifies an object only while it lives

    def write(self, *parts: str | bytes) -> None:
        """Add parts, each after its length, so that different parts give different bytes."""
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
                self.write(type(value).__qualname__, *sorted(self._alone(item) for item in value))
            case _:
                self._visit_other(value)

    def _alone(self, value: object) -> bytes:
        """Digest one member of a set by itself, since a set has no order."""
        walk = _Walk(self._by_name, with_objects=self._with_objects)
        walk.visit(value)
        self.anchors += walk.anchors
        return walk.digest.digest()

    def _visit_all(self, values: Iterable[object]) -> None:
        for value in values:
            self.visit(value)

    def _visit_other(self, value: Any) -> None:
        """Add an object that is identified by its attributes, its name or its address."""
        kind = type(value)
        if hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.write("compiled", kind.__module__, kind.__qualname__)
            options = {**value.targetoptions, "locals": getattr(value, "locals", {})}
            texts = {
                name: sorted(map(str, x)) if isinstance(x, set | frozenset) else [getattr(x, "__qualname__", str(x))]
                for name, x in options.items()
            }
            self._visit_all(sorted((str(name), ",".join(each)) for name, each in texts.items()))
            self.visit(value.py_func)
        elif package_of_module(kind.__module__) == "numpy" and hasattr(value, "tobytes"):
            self.write("numpy", kind.__qualname__, value.dtype.str, repr(value.shape), value.tobytes())
        elif isinstance(value, type) and package_of_module(value.__module__) in self._by_name:
            self.write("type", value.__module__, value.__qualname__, _version(value.__module__))
        elif f"{kind.__module__}.{kind.__qualname__}".startswith(_DESCRIBED) or (
            package_of_module(kind.__module__) == "numpy" and "dtype" in kind.__name__.lower()
        ):  # the text of such an object describes it completely
            self.write("described", kind.__module__, kind.__qualname__, str(value))
        elif package_of_module(kind.__module__) == "numpy" and hasattr(value, "__name__"):
            self.write("named", kind.__qualname__, value.__name__)
        elif not (self._with_objects and self._visit_object(value)):
            self.anchors.append(value)
            self.write("anchor", kind.__module__, kind.__qualname__, str(id(value)))

    def _visit_object(self, value: Any) -> bool:
        """Add a class by its attributes, and another object as pickle writes it; return False if it can't be read."""
        match value:
            case type():
                self.write("class", value.__module__, value.__qualname__)
                self._visit_all(value.__mro__[1:])
                self.visit({name: part for name, part in sorted(vars(value).items()) if name not in _OF_THE_TEXT})
            case staticmethod() | classmethod():
                self.write(type(value).__qualname__)
                self.visit(value.__func__)
            case property():
                self.write("property")
                self._visit_all((value.fget, value.fset, value.fdel))
            case types.MemberDescriptorType() | types.GetSetDescriptorType():
                self.write("descriptor", value.__name__)
            case _:
                try:
                    made = value.__reduce_ex__(2)
                except Exception:  # noqa: BLE001 - of the author's class
                    return False
                if isinstance(made, str) and not hasattr(value, "__wrapped__"):
                    return False  # a name says nothing of the content
                self.write("object")
                self.visit(getattr(value, "__wrapped__", None))
                # A name, or a function, its arguments, the state, and iterators over items.
                parts = (made,) if isinstance(made, str) else (*made[:3], *(part and tuple(part) for part in made[3:5]))
                self._visit_all(parts)
        return True

    def _visit_function(self, function: types.FunctionType) -> None:
        module = function.__module__ or ""
        # Functions made by one factory have the same name.
        if package_of_module(module) in self._by_name and "<locals>" not in function.__qualname__:
            self.write("function", module, function.__qualname__, _version(module))
            return
        self.write("function")
        # CuTe DSL rewrites the code of its functions when it first compiles them, and keeps the author's.
        code = getattr(function, "_original_code", function.__code__)
        self.visit(getattr(function, "_preprocess_enabled", None))
        self._visit_code(code)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        if self._with_objects:
            self.visit(dict(sorted(getattr(function, "__annotations__", {}).items())))
        if hasattr(function, "__wrapped__"):  # cuTile compiles that in place of the wrapper
            self.visit(function.__wrapped__)
        for cell in function.__closure__ or ():
            self.visit("an empty cell" if cell == types.CellType() else cell.cell_contents)
        for name, *attributes in sorted(set(_global_reads(code))):
            if name in function.__globals__:
                self.write("global", name)
                self._visit_read(function.__globals__[name], attributes)
        for name in sorted(set(_imports(code))):
            self.write("import", name, _version(name))
            if package_of_module(name) not in self._by_name:
                self.anchors.append(f"import {name}")

    def _visit_read(self, value: object, attributes: list[str]) -> None:
        """Add a value that a function reads: an object, or an attribute of a module outside of the packages by name."""
        while attributes and isinstance(value, types.ModuleType) and hasattr(value, attributes[0]):
            if package_of_module(value.__name__) in self._by_name:
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


def _version(module: str) -> str:
    """Return the version of a module's package."""
    return str(getattr(sys.modules.get(package_of_module(module)), "__version__", ""))


def _imports(code: types.CodeType) -> Iterator[str]:
    """Yield the name of each module that a code object or one inside it imports; of a relative import without dots."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "IMPORT_NAME")
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imports(constant)


def _global_reads(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield each global name that a code object or one inside it reads, with the attributes read from it."""
    read: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":  # the next one has a large argument
            continue
        if read and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            read.append(instruction.argval)
            continue
        if read:
            yield tuple(read)
        read = [instruction.argval] if instruction.opname == "LOAD_GLOBAL" else []
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_reads(constant)
