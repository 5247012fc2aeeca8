"""What can be said about a Numba kernel before Numba compiles it, and about the PTX afterwards. Pure."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..errors import ArgumentError

_ENTRY = re.compile(r"^\s*\.visible\s+\.entry\s+([\w$]+)", re.MULTILINE)
_EXTERN_FUNCTION = re.compile(r"\.extern\s+\.func\s+(?:\([^)]*\)\s*)?([\w$]+)")
_OF_THE_DRIVER = frozenset({"vprintf", "malloc", "free", "__assertfail"})
_AXES = "xyz"


def parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a kernel's parameters.

    Raises
    ------
    ArgumentError
        It takes any number of them, or has defaults.
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
    """The names of a kernel's parameters, which are so many inputs and outputs."""
    names = parameter_names(function)
    if len(names) != input_count + output_count:
        raise ArgumentError(
            f"the kernel {function.__name__}({', '.join(names)}) takes {len(names)} arrays, but the call has "
            f"{input_count} inputs and {output_count} outputs",
            hints=("a kernel's parameters are the inputs of the call, then the outputs",),
        )
    return names


def atomic_targets(function: Callable[..., Any]) -> frozenset[str]:
    """The local names that a function hands to an atomic operation, ``cuda.atomic.add(name, ...)``.

    Numba refuses an assignment to a read-only array, and not an atomic operation on one.
    """
    return frozenset(_atomic_targets(list(dis.get_instructions(function))))


def _atomic_targets(code: list[dis.Instruction]) -> Iterator[str]:
    for at, instruction in enumerate(code[:-2]):
        if instruction.opname == "LOAD_ATTR" and instruction.argval == "atomic":
            following = next((each for each in code[at + 2 :] if each.opname.startswith("LOAD_FAST")), None)
            if following is not None:
                value = following.argval
                yield value[0] if isinstance(value, tuple) else value


def entry_in_ptx(ptx: str) -> str:
    """The name of the kernel in PTX that holds one."""
    (name,) = _ENTRY.findall(ptx)
    return str(name)


def missing_functions(ptx: str) -> tuple[str, ...]:
    """The functions that PTX calls and does not hold, apart from those that the driver has."""
    return tuple(name for name in dict.fromkeys(_EXTERN_FUNCTION.findall(ptx)) if name not in _OF_THE_DRIVER)


def free_axis(ptx: str) -> int:
    """An axis of the grid that a kernel never asks about, 2 or 1; 0 when it asks about both.

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
    """A kernel of so many arrays that runs another one on the slice of each that the grid's axis says.

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
