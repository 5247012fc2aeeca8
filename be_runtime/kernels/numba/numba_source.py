"""Inspection of a Numba kernel before Numba compiles it, and of the PTX afterwards. Pure."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any

from be_runtime.dtypes import BY_NAME
from be_runtime.errors import ArgumentError
from be_runtime.xla.arrays import ArraySpec

_ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$]+)", re.MULTILINE)
_COUNT = re.compile(r"B\d+v\d+")
"""Numba's mark in a mangled name, such as ``B2v1``."""

_EXTERN_FUNCTION = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_OF_THE_DRIVER = frozenset({"vprintf", "malloc", "free", "__assertfail"})
_LOOKS_UP = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL"})
_STORES = frozenset({"stcg", "stcs", "stwb", "stwt"})
_AXES = "xyz"


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a kernel's parameters.

    Raises
    ------
    ArgumentError
        It has a default, or a parameter that is variadic, positional-only or keyword-only.
    """
    found = inspect.signature(function).parameters.values()
    for parameter in found:
        if parameter.kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            raise ArgumentError(
                f"the kernel {function.__name__} has the parameter '{parameter}', but its parameters "
                "are the arrays of a call, each named"
            )
    return tuple(parameter.name for parameter in found)


def check_count(function: Callable[..., Any], input_count: int, output_count: int) -> tuple[str, ...]:
    """Check the number of a kernel's parameters, the inputs and the outputs, and return their names."""
    names = parameter_names(function)
    if len(names) != input_count + output_count:
        raise ArgumentError(
            f"the kernel {function.__name__}({', '.join(names)}) takes {len(names)} arrays, but the call has "
            f"{input_count} inputs and {output_count} outputs",
            hints=("a kernel's parameters are the inputs of the call, then the outputs",),
        )
    return names


def check_dtypes(inputs: Sequence[ArraySpec], outputs: Sequence[ArraySpec], lacking: Sequence[str]) -> None:
    """Refuse arrays of the dtypes in `lacking`, by name."""
    for what, side in (("input", inputs), ("output", outputs)):
        for index, spec in enumerate(side):
            if spec.dtype.name in lacking:
                usable = ", ".join(name for name in BY_NAME if name not in lacking)
                raise ArgumentError(
                    f"{what} {index} is {spec}: Numba has no arrays of {spec.dtype.name} here",
                    hints=(f"cast it to one of {usable}",),
                )


def direct_writes(function: Callable[..., Any]) -> dict[str, str]:
    """Map the local names that a function passes to an atomic operation or a store with a cache hint to the operation.

    Numba refuses an assignment to a read-only array, but not ``cuda.atomic.add(array, ...)`` or
    ``cuda.stcs(array, ...)``.
    """
    found: dict[str, str] = {}
    code = list(dis.get_instructions(function))
    for at, instruction in enumerate(code):
        operation = _writing_operation(instruction)
        name = _first_local(code[at + 1 :]) if operation else None
        if name is not None:
            found.setdefault(name, operation)
    return found


def _writing_operation(instruction: dis.Instruction) -> str:
    """Return the operation that an instruction looks up if it writes to an array; else empty."""
    name = instruction.argval
    if instruction.opname == "LOAD_ATTR" and name == "atomic":
        return "an atomic operation"
    return f"a cuda.{name}" if instruction.opname in _LOOKS_UP and name in _STORES else ""


def _first_local(code: Sequence[dis.Instruction]) -> str | None:
    """Return the next local name that is loaded: a call's first argument, if that is a named array or a part of one."""
    following = next((each for each in code if each.opname.startswith("LOAD_FAST")), None)
    return None if following is None else first_name(following)


def first_name(instruction: dis.Instruction) -> str:
    """Return the local name that an instruction loads or stores; the first, if there are two."""
    value = instruction.argval
    return str(value[0] if isinstance(value, tuple) else value)


def entry_in_ptx(ptx: str) -> str:
    """Return the name of the only kernel in PTX."""
    (name,) = _ENTRY.findall(ptx)
    return str(name)


def without_counts(codes: Sequence[str]) -> list[str]:
    """Number the functions in Numba's PTX anew: their names count what the process compiled before.

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
    """List the functions that PTX calls and does not contain, except those that the driver provides."""
    return tuple(name for name in dict.fromkeys(_EXTERN_FUNCTION.findall(ptx)) if name not in _OF_THE_DRIVER)


def free_axis(ptx: str) -> int:
    """Return an axis of the grid that a kernel never reads, 2 or 1; 0 if it reads both.

    Examples
    --------
    >>> free_axis("mov.u32 %r1, %ctaid.x; mov.u32 %r2, %nctaid.z;")
    1
    """
    for axis in (2, 1):
        if not re.search(rf"%n?ctaid\.{_AXES[axis]}\b", ptx):
            return axis
    return 0


def batched_source(name: str, count: int, axis: int) -> str:
    """Write a kernel of `count` arrays that runs another one on the slices selected by an axis of the grid.

    An array that is the same for the whole batch has one slice.

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
