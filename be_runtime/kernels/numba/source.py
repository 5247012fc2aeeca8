"""Python functions and PTX as Numba's input and output: checks and hints."""

from __future__ import annotations

import dis
import importlib
import importlib.metadata
import inspect
import itertools
import re
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.jax.arrays import ArraySpec
from be_runtime.kernels.content import NUMBA, package_of_module

Function = Callable[..., Any]
_NUMPY_LACKS = re.compile(r"module 'numpy(?:\.[\w.]+)?' has no attribute '(\w+)'")
_NUMPY_TOO_NEW = re.compile(r"Numba needs NumPy (\d+)\.(\d+) or less")
_FIRST_REFUSED = (2, 5)
"""First release of NumPy with which numba-cuda fails without a message."""

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
    """Import ``numba.cuda`` of numba-cuda for a function of this package, or else the module of numba-cuda-mlir.

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
    """Return a hint if Numba can't compile because its own code does not work with the installed NumPy; else empty.

    The first compilation imports this code. If the kernel itself uses a name that NumPy lacks, the hint is empty.
    """
    lacking = _NUMPY_LACKS.search(str(error))
    named = [(package_of_module(f.f_globals.get("__name__")), f) for f, _ in traceback.walk_tb(error.__traceback__)]
    user, frame = next((each for each in reversed(named) if each[0] != "numpy"), ("", None))
    # Numba looks up a kernel's names as values, so a name in the code of its own is its own.
    is_numbas = lacking and frame and user in NUMBA and lacking[1] in frame.f_code.co_names
    return _explain(package, error) if is_numbas else ""


def _explain(package: str, error: BaseException) -> str:
    """Return the hint of `numpy_mismatch` for the installed versions."""
    return numpy_mismatch(error, f"{package} {installed_version(package)}", installed_version("numpy"))


def numpy_mismatch(error: BaseException, package: str, numpy: str) -> str:
    """Return a hint if Numba refuses the installed NumPy, or uses a name that this NumPy lacks; else empty.

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

    An array that the whole batch shares has only one slice.

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
    """Return hints for a kernel that Numba can't compile, the most likely first.

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
    """Return hints for operators: a target that is an input, or targets that may be parts of an input."""
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
