"""Python functions and PTX as Numba's input and output: checks, hints, and digests of a function's content.

The content identifies a compiled kernel, and is the same in every process. It consists of the function's bytecode, its
constants, the defaults of its parameters, and the values of its closure and of its global names, including the
functions that it calls, recursively. Line numbers and file names are not part of the content, so that a moved kernel
stays the same. The content of a function in a just-in-time compiler's wrapper (an object with ``py_func`` and
``targetoptions``, as in Numba) includes the compiler's options.
"""

from __future__ import annotations

import dis
import enum
import hashlib
import importlib
import importlib.metadata
import inspect
import itertools
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec

Function = Callable[..., Any]
_NUMPY_LACKS = re.compile(r"module 'numpy(?:\.[\w.]+)?' has no attribute '(\w+)'")
_NUMPY_TOO_NEW = re.compile(r"Numba needs NumPy (\d+)\.(\d+) or less")
_FIRST_REFUSED = (2, 5)
"""First numpy with which numba-cuda fails without a reason."""

_ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$]+)", re.MULTILINE)

_COUNT = re.compile(r"B\d+v\d+")
"""Numba's mark in a mangled name, such as ``B2v1``."""

_EXTERN_FUNCTION = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_OF_THE_DRIVER = frozenset({"vprintf", "malloc", "free", "__assertfail"})
_LOOKS_UP = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL"})
_STORES = frozenset({"stcg", "stcs", "stwb", "stwt"})
_AXES = "xyz"
_IN_PLACE = "write to an output, and use input_output_aliases to work in place"
_ABOUT_WRITES = ("setitem(readonly", "Cannot modify readonly", "output that is read-only")
_ABOUT_NUMBERS = (", 0d, ", "<ufunc '", "object has no attribute 'dtype'")

_ABOUT_OPERATORS = "'NoneType' object has no attribute 'args'"
"""Numba's message for an operator such as ``+=`` with a read-only target or with unsupported operands."""

_NUMBA = frozenset({"llvmlite", "numba", "numba_cuda", "numba_cuda_mlir"})
_BY_NAME = _NUMBA | {"builtins", "cmath", "cuda", "math", "numpy", "operator"}
"""Packages whose classes and functions are identified by name and by the package's version."""

_DESCRIBED = ("numba.core.types", "numba_cuda_mlir.numba_cuda.types", "cuda.tile.DType")
"""Beginnings of the names of classes whose objects are described completely by their text."""

_KIND_FLAGS = 0xFFF
"""Bits of ``co_flags`` that describe the kind of function, without the ``__future__`` imports of its file."""


def import_error(function: str, package: str, error: BaseException) -> ImportError:
    """Make the error for a function of this package that needs Numba.

    Parameters
    ----------
    function : str
        Name of the function.
    package : {"numba", "numba-cuda", "numba-cuda-mlir"}
        Package that the function needs.
    error : BaseException
        Exception of the import.
    """
    hint = _explain(package, error) or "pip install 'brainevent-toolchain[numba]'"
    title = "Numba" if package == "numba" else "Numba with CUDA support"
    return ImportError(f"{function} needs {title}, which can't be imported: {error}\nhint: {hint}")


def import_cuda(function: str) -> Any:
    """Import ``numba.cuda`` of numba-cuda for a function of this package; without numba-cuda, import the successor's.

    Raises
    ------
    ImportError
        Numba's CUDA support is not installed, or doesn't work with other installed packages.
    """
    is_alone = installed_version("numba-cuda") == "none" != installed_version("numba-cuda-mlir")
    # Without the module numba_cuda, numba.cuda is Numba's older one.
    modules = ("numba_cuda_mlir.cuda",) if is_alone else ("numba_cuda", "numba.cuda.dispatcher", "numba.cuda")
    try:
        return [importlib.import_module(module) for module in modules][-1]
    except (ImportError, AttributeError) as error:
        raise import_error(function, "numba-cuda-mlir" if is_alone else "numba-cuda", error) from error


def explain_compilation(package: str, error: BaseException) -> str:
    """Return a hint if Numba can't compile because its own code doesn't work with the installed numpy; else empty.

    The first compilation imports this code. If the kernel itself uses a name that numpy lacks, the hint is empty.
    """
    lacking = _NUMPY_LACKS.search(str(error))
    named = [(_package(f.f_globals.get("__name__")), f) for f, _ in traceback.walk_tb(error.__traceback__)]
    user, frame = next((each for each in reversed(named) if each[0] != "numpy"), ("", None))
    # Numba looks up a kernel's names as values, so a name in the code of its own is its own.
    is_numbas = lacking and frame and user in _NUMBA and lacking[1] in frame.f_code.co_names
    return _explain(package, error) if is_numbas else ""


def _package(module: object) -> str:
    """Return the package in the name of a module."""
    return str(module or "").partition(".")[0]


def _explain(package: str, error: BaseException) -> str:
    """Return the hint of `numpy_mismatch` for the installed versions."""
    return numpy_mismatch(error, f"{package} {installed_version(package)}", installed_version("numpy"))


def numpy_mismatch(error: BaseException, package: str, numpy: str) -> str:
    """Return a hint if Numba refuses the installed numpy, or uses a name that this numpy lacks; else empty.

    Parameters
    ----------
    error : BaseException
        Exception that Numba raised.
    package : str
        Numba's package and its version.
    numpy : str
        Version of numpy.

    Examples
    --------
    >>> numpy_mismatch(AttributeError("module 'numpy' has no attribute 'row_stack'"), "numba-cuda 0.30.4", "2.5.0")
    "numba-cuda 0.30.4 does not work with numpy 2.5.0; pip install 'numpy<2.5', or a newer numba-cuda"
    >>> numpy_mismatch(ImportError("Numba needs NumPy 2.3 or less. Got NumPy 2.4."), "numba 0.62.0", "2.4.1")
    "numba 0.62.0 does not work with numpy 2.4.1; pip install 'numpy<2.4', or a newer numba"
    >>> numpy_mismatch(AttributeError("module 'numpy' has no attribute 'trapz'"), "numba 0.59.0", "2.4.1")
    'numba 0.59.0 does not work with numpy 2.4.1; install a newer numba'
    """
    refused = _NUMPY_TOO_NEW.search(str(error)) if isinstance(error, ImportError) else None
    if refused is None and not (isinstance(error, AttributeError) and _NUMPY_LACKS.search(str(error))):
        return ""
    name, remedy = package.partition(" ")[0], ""
    if refused is not None:
        remedy = f"'numpy<{refused[1]}.{int(refused[2]) + 1}', or "
    elif name != "numba-cuda-mlir" and tuple(map(int, re.findall(r"\d+", numpy)[:2])) >= _FIRST_REFUSED:
        remedy = "'numpy<{}.{}', or ".format(*_FIRST_REFUSED)
    return f"{package} does not work with numpy {numpy}; {'pip ' if remedy else ''}install {remedy}a newer {name}"


def installed_version(package: str) -> str:
    """Return the version of an installed package; ``"none"`` if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"


def parameter_names(function: Function) -> tuple[str, ...]:
    """Return the names of a kernel's parameters.

    Raises
    ------
    ArgumentError
        A parameter has a default, or is variadic, positional-only or keyword-only.
    """
    found = inspect.signature(function).parameters.values()
    for parameter in found:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            raise ArgumentError(
                f"the kernel {function.__name__} has the parameter '{parameter}', but its parameters "
                "are the arrays of a call, each named"
            )
    return tuple(parameter.name for parameter in found)


def check_count(function: Function, input_count: int, output_count: int) -> tuple[str, ...]:
    """Check that a kernel has a parameter for each input and output, and return the parameters' names."""
    names = parameter_names(function)
    if len(names) != input_count + output_count:
        raise ArgumentError(
            f"the kernel {function.__name__}({', '.join(names)}) takes {len(names)} arrays, but the call has "
            f"{input_count} inputs and {output_count} outputs",
            hints=("a kernel's parameters are the inputs of the call, then the outputs",),
        )
    return names


def check_dtypes(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], lacking: Sequence[str]) -> None:
    """Refuse arrays of unsupported dtypes, whose names are in `lacking`."""
    for what, side in (("input", inputs), ("output", outputs)):
        for index, spec in enumerate(side):
            if spec.dtype.name in lacking:
                usable = ", ".join(name for name in BY_NAME if name not in lacking)
                raise ArgumentError(
                    f"{what} {index} is {spec}: Numba has no arrays of {spec.dtype.name} here",
                    hints=(f"cast it to one of {usable}",),
                )


def direct_writes(function: Function) -> dict[str, str]:
    """Return each local name that a function passes to an atomic operation or a cached store, and the operation.

    Numba refuses an assignment to a read-only array, but not ``cuda.atomic.add(array, ...)`` or
    ``cuda.stcs(array, ...)``.
    """
    found: dict[str, str] = {}
    code = list(dis.get_instructions(function))
    for at, instruction in enumerate(code):
        name, operation = instruction.argval, ""
        if instruction.opname == "LOAD_ATTR" and name == "atomic":
            operation = "an atomic operation"
        elif instruction.opname in _LOOKS_UP and name in _STORES:
            operation = f"a cuda.{name}"
        loaded = next((each for each in code[at + 1 :] if each.opname.startswith("LOAD_FAST")), None)
        if operation and loaded is not None:  # the first argument, if it is a named array or a part of one
            found.setdefault(first_name(loaded), operation)
    return found


def first_name(instruction: dis.Instruction) -> str:
    """Return the first local name that an instruction loads or stores."""
    value = instruction.argval
    return str(value[0] if isinstance(value, tuple) else value)


def entry_in_ptx(ptx: str) -> str:
    """Return the name of the only kernel in PTX."""
    (name,) = _ENTRY.findall(ptx)
    return str(name)


def without_counts(codes: Sequence[str]) -> list[str]:
    """Renumber the functions in Numba's PTX, whose names count all compilations of the process.

    Examples
    --------
    >>> without_counts([".entry _ZN1fB3v17Ef; call _ZN1gB2v3Ef;", ".func _ZN1gB2v3Ef;"])
    ['.entry _ZN1fB2v1Ef; call _ZN1gB2v2Ef;', '.func _ZN1gB2v2Ef;']
    """
    numbers: dict[str, int] = {}

    def renumbered(match: re.Match[str]) -> str:
        text = f"v{numbers.setdefault(match[0], len(numbers) + 1)}"
        return f"B{len(text)}{text}"

    return [_COUNT.sub(renumbered, code) for code in codes]


def missing_functions(ptx: str) -> tuple[str, ...]:
    """List the functions that PTX calls without containing them, except functions of the driver."""
    return tuple(name for name in dict.fromkeys(_EXTERN_FUNCTION.findall(ptx)) if name not in _OF_THE_DRIVER)


def free_axis(ptx: str) -> int:
    """Return an axis of the grid that a kernel never reads, 2 or 1; 0 if it reads both.

    Examples
    --------
    >>> free_axis("mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.z;")
    1
    """
    return next((axis for axis in (2, 1) if not re.search(rf"%n?ctaid\.{_AXES[axis]}\b", ptx)), 0)


def batched_source(name: str, count: int, axis: int) -> str:
    """Write a kernel of `count` arrays that runs another kernel on the slices selected by an axis of the grid.

    An array that the whole batch shares has one slice.

    Examples
    --------
    >>> print(batched_source("scale", 2, 2))
    def scale_batched(a0, a1):
        i = cuda.blockIdx.z
        kernel(a0[i if a0.shape[0] > 1 else 0], a1[i if a1.shape[0] > 1 else 0])
    <BLANKLINE>
    """
    arrays = [f"a{number}" for number in range(count)]
    slices = ", ".join(f"{each}[i if {each}.shape[0] > 1 else 0]" for each in arrays)
    head = f"def {name}_batched({', '.join(arrays)}):\n"
    return f"{head}    i = cuda.blockIdx.{_AXES[axis]}\n    kernel({slices})\n"


def hints(function: Function, input_ndims: Sequence[int], output_ndims: Sequence[int], text: str) -> list[str]:
    """Return hints for a kernel that Numba refuses, the most likely first.

    Parameters
    ----------
    function : callable
        The kernel's Python function, whose parameters are the inputs, then the outputs.
    input_ndims, output_ndims : sequence of int
        Number of dimensions of each array.
    text : str
        Numba's message.

    Examples
    --------
    >>> def scale(a, x, out):
    ...     a += 1
    >>> hints(scale, [0, 1], [1], "int(readonly array(float32, 0d, C))")
    ['a is a 0-dimensional array, as all numbers are: its value is a[()]']
    >>> hints(scale, [0, 1], [1], "'NoneType' object has no attribute 'args'")
    ['a += ... writes the input a: write to an output, and use input_output_aliases to work in place']
    """
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    found = [f"an input can't be written: {_IN_PLACE}"] if any(mark in text for mark in _ABOUT_WRITES) else []
    if _ABOUT_OPERATORS in text:
        found += _about_operators(augmented(function), names[: len(input_ndims)], names[len(input_ndims) :])
    if any(mark in text for mark in _ABOUT_NUMBERS):
        ndims = zip(names, (*input_ndims, *output_ndims), strict=False)
        numbers = [name for name, ndim in ndims if ndim == 0]
        found += [f"{name} is a 0-dimensional array, as all numbers are: its value is {name}[()]" for name in numbers]
    return found


def _about_operators(targets: dict[str, str], inputs: Sequence[str], outputs: Sequence[str]) -> list[str]:
    """Return hints for operators: a target that is an input is the reason; other targets may be parts of an input."""
    written = [name for name in inputs if name in targets]
    if written:
        return [f"{name} {targets[name]} ... writes the input {name}: {_IN_PLACE}" for name in written]
    if targets and set(targets) <= set(outputs):
        return [f"Numba can't do {name} {operator} ... with this operand" for name, operator in targets.items()]
    return [f"+= and similar operators fail on an input and on a part of one: {_IN_PLACE}"]


def augmented(function: Function) -> dict[str, str]:
    """Return each local name that a function changes by an operator such as ``+=``, and the operator.

    Examples
    --------
    >>> def kernel(x, out):
    ...     x -= 1
    ...     out[0] += x[0]
    >>> augmented(kernel)
    {'x': '-='}
    """
    return {
        first_name(stored): operation.argrepr
        for operation, stored in itertools.pairwise(dis.get_instructions(function))
        if operation.opname == "BINARY_OP"
        and operation.argrepr.endswith("=")
        and stored.opname.startswith("STORE_FAST")
    }


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
    """One pass over all objects that a function reaches; each is visited once."""

    def __init__(self) -> None:
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
                self.write(type(value).__qualname__, *sorted(_alone(item) for item in value))
            case _:
                self._visit_other(value)

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
        elif _package(kind.__module__) == "numpy" and hasattr(value, "tobytes"):
            self.write("numpy", kind.__qualname__, value.dtype.str, repr(value.shape), value.tobytes())
        elif isinstance(value, type) and _package(value.__module__) in _BY_NAME:
            self.write("type", value.__module__, value.__qualname__, _version(value.__module__))
        elif f"{kind.__module__}.{kind.__qualname__}".startswith(_DESCRIBED) or (
            _package(kind.__module__) == "numpy" and "dtype" in kind.__name__.lower()
        ):  # the text of such an object describes it completely
            self.write("described", kind.__module__, kind.__qualname__, str(value))
        elif _package(kind.__module__) == "numpy" and hasattr(value, "__name__"):
            self.write("named", kind.__qualname__, value.__name__)
        else:
            self.anchors.append(value)
            self.write("anchor", kind.__module__, kind.__qualname__, str(id(value)))

    def _visit_function(self, function: types.FunctionType) -> None:
        module = function.__module__ or ""
        # Functions made by one factory have the same name.
        if _package(module) in _BY_NAME and "<locals>" not in function.__qualname__:
            self.write("function", module, function.__qualname__, _version(module))
            return
        self.write("function")
        self._visit_code(function.__code__)
        self.visit(function.__defaults__)
        self.visit(function.__kwdefaults__)
        if hasattr(function, "__wrapped__"):  # cuTile compiles that in place of the wrapper
            self.visit(function.__wrapped__)
        for cell in function.__closure__ or ():
            self.visit("an empty cell" if cell == types.CellType() else cell.cell_contents)
        for name, *attributes in sorted(set(_global_reads(function.__code__))):
            if name in function.__globals__:
                self.write("global", name)
                self._visit_read(function.__globals__[name], attributes)

    def _visit_read(self, value: object, attributes: list[str]) -> None:
        """Add a value that a function reads: an object, or an attribute of a module outside of `_BY_NAME`."""
        while attributes and isinstance(value, types.ModuleType) and hasattr(value, attributes[0]):
            if _package(value.__name__) in _BY_NAME:
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


def _version(module: str) -> str:
    """Return the version of a module's package."""
    return str(getattr(sys.modules.get(_package(module)), "__version__", ""))


def _global_reads(code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield each global name that a code object or one inside it reads, with the attributes read from it."""
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
