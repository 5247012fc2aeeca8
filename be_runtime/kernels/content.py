"""Digests of a Python function's content, which identify its compiled code and are equal in every process.

The content consists of the function's bytecode, its constants, the defaults of its parameters, and the values of its
closure and of its global names, including the functions that it calls, recursively. Line numbers and file names are not
part of the content, so that a moved kernel stays the same. The content of a function in a just-in-time compiler's
wrapper includes the compiler's options. A wrapper of Numba has ``py_func`` and ``targetoptions``, one of Triton ``fn``.

Only the standard library and a compiler's own package count by name and version; their files' folders identify them. An
object that can't be read is an anchor: the digest has its address, and callers don't keep the compiled code.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import copyreg
import dis
import enum
import functools
import hashlib
import importlib
import importlib.machinery
import inspect
import linecache
import os
import sys
import sysconfig
import textwrap
import tokenize
import types
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

NUMBA = frozenset({"llvmlite", "numba", "numba_cuda", "numba_cuda_mlir"})
_BY_NAME = NUMBA | {"numpy"}
"""Packages whose modules count by name and by the package's version."""

_DESCRIBED = ("numba.core.types", "numba_cuda_mlir.numba_cuda.types", "cuda.tile.DType")
"""Prefixes of the names of classes whose objects are described completely by their text."""

_PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
_HIDING = (__import__, eval, exec, globals, importlib.import_module)
"""Functions that reach objects without naming them in the code."""

_KIND_FLAGS = 0xFFF
"""Bits of ``co_flags`` that describe the kind of function, without the ``__future__`` imports of its file."""
_HEAP_TYPE = 1 << 9
"""Flag of a class that was made at run time, as all classes of Python code are."""

_OF_THE_TEXT = frozenset(
    {"__annotations_cache__", "__dict__", "__firstlineno__", "__module__", "__static_attributes__"}
    | {"__weakref__", "_abc_impl"}
)
"""Attributes of a class that depend only on the place and form of its text."""
_OF_IMPORTS = frozenset({"__builtins__", "__cached__", "__file__", "__loader__", "__path__", "__spec__"})
"""Attributes of a module that depend only on its place."""
_OF_COMPILERS = ("_cute_", "_cutile_", "_decorator_", "_dsl_", "_original_code", "_preprocessed", "_pyir_", "__")
"""Prefixes of the names of attributes that compilers add to functions, even while they compile."""


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
        Objects that are identified by their addresses, which are part of the digest. With anchors, the digest is valid
        only in this process and while they exist. Most kernels have no anchors.
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
        True for a compiler that runs Python or reads the text of functions: annotations and the attributes of
        functions, modules, classes and other objects count, too.

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
    """One pass over all objects that a function reaches. Each object is visited once."""

    def __init__(self, by_name: frozenset[str], *, with_objects: bool) -> None:
        self._by_name, self._with_objects = by_name, with_objects
        self.digest = hashlib.sha256()
        self.anchors: list[object] = []
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # an address identifies an object only while it exists

    def write(self, *parts: str | bytes) -> None:
        """Add parts, each after its length, so that different parts give different bytes."""
        for part in parts:
            data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
            self.digest.update(len(data).to_bytes(8, "little") + data)

    def visit(self, value: object) -> None:
        """Add an object of any type."""
        if type(value) in _PLAIN:
            self.write(type(value).__qualname__, repr(value))
            return
        # Equal constants may be one object in one process and two in another, so constants are visited each time.
        if not isinstance(value, tuple | frozenset | types.CodeType):
            if id(value) in self._seen:
                self.write("again", str(self._seen[id(value)]))
                return
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
        self._visit_new(value)

    def _visit_new(self, value: object) -> None:
        match value:
            case _ if any(value is each for each in _HIDING):
                self._visit_anchor(value)
            case types.FunctionType():
                self._visit_function(value)
            case types.CodeType():
                self._visit_code(value)
            case types.ModuleType():
                self._visit_module(value)
            case types.BuiltinFunctionType():
                self.write("builtin", str(value.__module__), value.__qualname__)
                if not isinstance(value.__self__, types.ModuleType | types.NoneType):
                    self.visit(value.__self__)
                elif not self._release(value.__module__):
                    self._write_library(value.__module__, value)
            case tuple() | list() | dict() | set() | frozenset() | enum.Enum():
                self._visit_container(value)
            case int() | float() | complex() | str() | bytes():
                self._visit_container(value)
            case _:
                self._visit_other(value)

    def _visit_container(self, value: Any) -> None:
        """Add a container or a number; the methods of an author's subclass are code."""
        kind = type(value)
        match value:
            case enum.Enum():
                self.write("enum", kind.__qualname__, value.name)
                self.visit(value.value)
            case tuple() | list():
                self.write(kind.__qualname__, str(len(value)), *getattr(value, "_fields", ()))
                self._visit_all(value)
            case dict():
                self.write("dict", str(len(value)))
                self._visit_all(part for item in value.items() for part in item)
            case set() | frozenset():
                self.write(kind.__qualname__, *sorted(self._alone(item) for item in value))
            case _:
                base: Any = next(each for each in kind.__mro__ if each in _PLAIN)
                self.write(kind.__qualname__, repr(base.__repr__(value)))
        if not self._with_objects or kind in (tuple, list, dict, set, frozenset):
            return
        if isinstance(value, set | frozenset):  # pickle lists the members in no order
            self._visit_all((kind, object.__getstate__(value)))
        elif not self._visit_object(value):
            self._visit_anchor(value)

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
        release = self._release(kind.__module__)
        is_numpys, is_tritons = release.startswith("numpy "), release.startswith("triton ")
        if hasattr(value, "py_func") and hasattr(value, "targetoptions"):
            self.write("compiled", kind.__module__, kind.__qualname__)
            options = {**value.targetoptions, "locals": getattr(value, "locals", {})}
            texts = {
                name: sorted(map(str, x)) if isinstance(x, set | frozenset) else [getattr(x, "__qualname__", str(x))]
                for name, x in options.items()
            }
            self._visit_all(sorted((str(name), ",".join(each)) for name, each in texts.items()))
            self.visit(value.py_func)
        elif is_tritons and isinstance(getattr(value, "fn", None), types.FunctionType):
            self.write("compiled", kind.__module__, kind.__qualname__)
            self._visit_all((getattr(value, "noinline", False), getattr(value, "src", ""), value.fn))
        elif kind.__module__ == "numpy" and is_numpys and hasattr(value, "tobytes"):
            self.write("numpy", kind.__qualname__, value.dtype.str, str(value.dtype), repr(value.shape))
            self.visit(value.tolist() if value.dtype.hasobject else value.tobytes())
        elif isinstance(value, type) and (release := self._release_of_class(value)):
            self.write("type", value.__module__, value.__qualname__, release)
        elif f"{kind.__module__}.{kind.__qualname__}".startswith(_DESCRIBED) or (
            is_numpys and "dtype" in kind.__name__.lower()
        ):  # the text of such an object describes it completely
            self.write("described", kind.__module__, kind.__qualname__, str(value))
        elif is_numpys and hasattr(value, "__name__"):
            self.write("named", kind.__qualname__, value.__name__)
        elif not (self._with_objects and self._visit_object(value)):
            self._visit_anchor(value)

    def _visit_anchor(self, value: object) -> None:
        """Add an object that can't be read."""
        self.anchors.append(value)
        self.write("anchor", type(value).__module__, type(value).__qualname__, str(id(value)))

    def _visit_object(self, value: Any) -> bool:
        """Add a class by its attributes, and another object as pickle writes it; return False if it can't be read."""
        match value:
            case type():
                self.write("class", value.__module__, value.__qualname__)
                self._visit_all((type(value), *value.__mro__[1:]))
                self.visit({name: part for name, part in sorted(vars(value).items()) if name not in _OF_THE_TEXT})
                self._write_library(value.__module__)
                names = vars(sys.modules.get(value.__module__, builtins))
                self._visit_annotations(vars(value).get("__annotations__", {}), names)
            case staticmethod() | classmethod():
                self._visit_all((type(value), value.__func__, object.__getstate__(value)))
            case property():
                self._visit_all((type(value), value.fget, value.fset, value.fdel, object.__getstate__(value)))
            case types.MappingProxyType():
                self.visit(dict(value))
            case TypeVar():
                self.write("type variable", value.__name__)
                self._visit_all((value.__bound__, value.__constraints__))
            case types.MemberDescriptorType() | types.GetSetDescriptorType():
                self.write("descriptor", value.__name__)
            case _:
                try:
                    reduce = copyreg.dispatch_table.get(type(value))
                    made = value.__reduce_ex__(2) if reduce is None else reduce(value)
                except Exception:  # noqa: BLE001 - of the author's class
                    return False
                if isinstance(made, str) and not hasattr(value, "__wrapped__"):
                    # The name of an author's global variable does not identify its content.
                    release = self._release(module := getattr(value, "__module__", type(value).__module__))
                    self.write("global", made, release)
                    return bool(release) and getattr(sys.modules[module], made, None) is value
                self.write("object")
                self.visit(type(value))
                self.visit(getattr(value, "__wrapped__", None))
                # A name, or a function, its arguments, the state, and iterators over items.
                parts = (made,) if isinstance(made, str) else (*made[:3], *(part and tuple(part) for part in made[3:5]))
                self._visit_all(parts)
                if not self._release_of_class(type(value)):  # the author's class may hide attributes from pickle
                    self.visit(object.__getstate__(value))
        return True

    def _visit_module(self, module: types.ModuleType) -> None:
        """Add a module: all of it if it is an author's, since any part may be read."""
        if release := self._release(module.__name__, module):
            self.write("module", module.__name__, release)
        elif self._with_objects:
            self.write("module", module.__name__)
            self._write_library(module.__name__)
            self.visit(type(module))
            self.visit({name: part for name, part in sorted(vars(module).items()) if name not in _OF_IMPORTS})
        else:
            self._visit_anchor(module)

    def _write_library(self, name: str, value: object = None) -> None:
        """Add the file of an author's extension module; an object whose file is unknown is an anchor."""
        file = getattr(sys.modules.get(name), "__file__", None)
        if file and file.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES)):
            self.write(Path(file).read_bytes())
        elif value is not None:
            self._visit_anchor(value)

    def _visit_function(self, function: types.FunctionType) -> None:
        # CuTe DSL rewrites the code of its functions when it first compiles them, and keeps the author's.
        code = getattr(function, "_original_code", function.__code__)
        names, module = function.__globals__, str(function.__globals__.get("__name__"))
        release = self._release(module) if vars(sys.modules.get(module, builtins)) is names else ""
        self.write("function", release)
        if release:
            self.write(module, code.co_qualname, str(code.co_firstlineno))
            if "<locals>" not in code.co_qualname:
                return  # functions that a package's factory makes may hold what is an author's
        else:
            self._visit_code(code)
            self._visit_reads(code, ChainMap(names, vars(builtins)))
            self._visit_imports(code)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        if self._with_objects and not release:
            annotate = getattr(function, "__annotate__", None)  # of Python 3.14: it evaluates the annotations
            self.visit(annotate)
            self._visit_annotations(function.__annotations__ if annotate is None else {}, names)
            self._visit_text(code, names)
        if self._with_objects:
            attributes = sorted(vars(function).items())
            self.visit({name: each for name, each in attributes if not name.startswith(_OF_COMPILERS)})
        if hasattr(function, "__wrapped__"):  # cuTile compiles that in place of the wrapper
            self.visit(function.__wrapped__)
        cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=False))
        held = {name: cell.cell_contents for name, cell in cells.items() if cell != types.CellType()}
        self.write(*(name for name in cells if name not in held))
        modules = {name: value for name, value in held.items() if isinstance(value, types.ModuleType)}
        self._visit_all(value for name, value in held.items() if name not in modules)
        if modules:
            self._visit_reads(code, modules)

    def _visit_imports(self, code: types.CodeType) -> None:
        """Add the modules that code imports; an author's may change until then."""
        for name in sorted(set(_imports(code))):
            release = ""
            if package_of_module(name) in {*sys.stdlib_module_names, *map(package_of_module, self._by_name)}:
                with contextlib.suppress(ImportError):
                    release = self._release(name, importlib.import_module(name))
            self.write("import", name, release)
            if not release:
                self.anchors.append(f"import {name}")

    def _visit_reads(self, code: types.CodeType, names: Mapping[str, object]) -> None:
        """Add the values of the names that code reads."""
        for name, *attributes in sorted(set(_reads(code))):
            if name in names:
                self.write("global", name)
                self._visit_read(names[name], attributes)

    def _visit_read(self, value: object, attributes: list[str]) -> None:
        """Add a value that a function reads: an object, or an attribute of a module."""
        release = ""
        while attributes and isinstance(value, types.ModuleType) and hasattr(value, attributes[0]):
            release = self._release(value.__name__, value)
            name, *attributes = attributes
            self.write("attribute", value.__name__ if release else "", name)
            value = getattr(value, name)
        is_code = isinstance(value, types.FunctionType | types.ModuleType | type)  # maybe an author's
        if release and not is_code and not isinstance(value, _PLAIN) and self._release_of_class(type(value)):
            self.write("of", release)
        else:
            self.visit(value)

    def _visit_code(self, code: types.CodeType) -> None:
        self.write("code", code.co_code, code.co_exceptiontable)
        kind = code.co_flags & _KIND_FLAGS
        self.write(*(str(number) for number in (code.co_argcount, code.co_kwonlyargcount, kind)))
        for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
            self.write(str(len(names)), *names)
        self.write(str(len(code.co_consts)))
        self._visit_all(code.co_consts)

    def _visit_text(self, code: types.CodeType, names: dict[str, Any]) -> None:
        """Add the parts of a function's text that are not in its bytecode, such as annotations of variables."""
        linecache.checkcache(code.co_filename)
        # `inspect.getsource` would first search all modules of the process.
        lines = linecache.getlines(code.co_filename, names)[code.co_firstlineno - 1 :]
        try:
            tree = ast.parse(textwrap.dedent("".join(inspect.getblock(lines))))
        except (
            SyntaxError,
            ValueError,
            tokenize.TokenError,
        ):  # it has no text of its own, as a lambda
            return
        self.write("text", ast.dump(tree))
        found = [each.annotation for each in ast.walk(tree) if isinstance(each, ast.AnnAssign)]
        self._visit_annotations({str(at): ast.unparse(each) for at, each in enumerate(found)}, names)

    def _visit_annotations(self, annotations: Mapping[str, object], names: Mapping[str, object]) -> None:
        """Add annotations, and the values of the names in those that are texts."""
        self.visit(dict(sorted(annotations.items())))
        for text in sorted(each for each in annotations.values() if isinstance(each, str)):
            try:
                self._visit_reads(compile(text, "annotation", "eval"), names)
            except SyntaxError:  # it is not an expression, so no compiler evaluates it
                continue

    def _release_of_class(self, kind: type) -> str:
        """Return the release by which a class counts; empty for a class that counts by its content."""
        module = kind.__module__
        found: Any = sys.modules.get(module)
        for name in kind.__qualname__.split("."):
            found = getattr(found, name, None)
        return self._release(module) if found is kind or not kind.__flags__ & _HEAP_TYPE else ""

    def _release(self, name: object, module: object = None) -> str:
        """Return the package and version by which a module counts; empty if it counts by its content."""
        found = sys.modules.get(str(name))
        if found is None or module not in (None, found):
            return ""
        file = str(getattr(found, "__file__", None) or "")
        if getattr(found.__spec__, "origin", "") in ("built-in", "frozen") or _is_standard(file):
            return "python {}.{}.{}".format(*sys.version_info)
        if package_of_module(name) not in {package_of_module(each) for each in self._by_name}:
            return ""
        for package in self._by_name:  # the modules numba.cuda are files of numba-cuda where it is installed
            home = sys.modules.get(package)
            version = getattr(home, "__version__", "")
            folders = [f"{each}{os.sep}" for each in getattr(home, "__path__", ())]
            if version and file.startswith((*folders,)):
                return f"{package} {version}"
        return ""


@functools.cache
def _is_standard(file: str) -> bool:
    """Return whether a file belongs to the standard library."""
    folders = {os.path.realpath(sysconfig.get_path(each)) for each in ("stdlib", "platstdlib")}
    place = Path(os.path.realpath(file))
    is_installed = any(part in ("site-packages", "dist-packages") for part in place.parts)
    return bool(file) and not is_installed and any(place.is_relative_to(each) for each in folders)


def _imports(code: types.CodeType) -> Iterator[str]:
    """Yield the name of each module that a code object or one inside it imports; a relative import begins with dots."""
    before: list[Any] = []
    for each in dis.get_instructions(code):
        if each.opname == "IMPORT_NAME":
            yield "." * before[-2] + each.argval
        if each.opname != "EXTENDED_ARG":
            before.append(each.argval)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _imports(constant)


_READS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF")
_READS_OF_CLASSES = ("LOAD_FROM_DICT_OR_GLOBALS", "LOAD_FROM_DICT_OR_DEREF")


def _reads(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield each name outside of it that a code object or one inside it reads, with the attributes read from it."""
    read: list[str] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname == "EXTENDED_ARG":  # the next instruction has a large argument
            continue
        if read and instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            read.append(instruction.argval)
            continue
        if read:
            yield tuple(read)
        is_read = instruction.opname in (*_READS, *_READS_OF_CLASSES) and instruction.argval != "__name__"
        read = [instruction.argval] if is_read else []
    if read:
        yield tuple(read)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _reads(constant)
