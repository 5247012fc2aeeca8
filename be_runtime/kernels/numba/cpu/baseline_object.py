"""The object file of a Numba kernel and its handler, made by a process of its own: ``python -m`` runs this file.

Numba compiles for one CPU in a process, ``NUMBA_CPU_NAME``, and its names count what was compiled before. So an object
for a baseline CPU, the same in every build, takes a fresh process.
"""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from be_runtime.errors import BeRuntimeError
from be_runtime.kernels.numba.cpu.compiler import compile_entry, import_numba
from be_runtime.kernels.numba.cpu.intrinsics import intrinsics
from be_runtime.kernels.numba.cpu.llvm_handler import HandlerLayout, Native, compile_handler
from be_runtime.kernels.numba.cpu.needed_functions import ADDRESSES, VALUE_RAISED, check_needs
from be_runtime.kernels.numba.cpu.signature import Signature
from be_runtime.kernels.numba.cpu.text_errors import raise_texts, report_text

CALL, FAILED, ENTRY = "be_kernel_call", "be_kernel_failed", "be_kernel_entry"
"""Names of the functions that the handler and the C++ beside it have of each other."""

REFUSED = "be refused: "
"""Start of the line that tells the starting process of an error of ours."""


class Order(NamedTuple):
    """Everything that the process is asked for.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    layout : tuple of int
        `HandlerLayout`.
    symbol : str
        Name of the handler.
    """

    kernel: Any
    signature: Signature
    layout: tuple[int, ...]
    symbol: str


def write_order(order: Order) -> bytes:
    """Write an order as Numba writes functions: by value, so that one of a notebook can be read in another process."""
    from numba.core import serialize

    data: bytes = serialize.dumps(tuple(order))
    return data


def main(argv: Sequence[str]) -> int:
    """Read an order from one file, and write the object to another."""
    source, target = map(Path, argv)
    try:
        target.write_bytes(make_object(Order(*pickle.loads(source.read_bytes()))))  # noqa: S301 - `write_order` wrote it
    except BeRuntimeError as error:
        said = [error.message, list(error.hints), getattr(error, "output", "")]
        print(REFUSED + json.dumps(said))  # noqa: T201 - this is its answer
        return 1
    return 0


def make_object(order: Order) -> bytes:
    """Compile a kernel and its handler to an object for Numba's CPU of this process.

    Raises
    ------
    BuildError
        Numba refuses the kernel, or its code needs Numba or Python when it runs.
    """
    numba = import_numba()
    from llvmlite import binding
    from numba import types

    raise_texts()
    word, made = types.uint64, intrinsics(report_text)
    for symbol in (CALL, FAILED, VALUE_RAISED):
        binding.add_symbol(symbol, 1)  # Numba's own linker asks for it, and never runs the code
    function = compile_entry(order.kernel, order.signature, made)
    native = Native(
        0,
        types.ExternalFunction(CALL, word(word, word)),
        types.ExternalFunction(FAILED, word(word, word, word)),
        HandlerLayout(*order.layout),
    )
    handler = compile_handler(native, order.signature, function.guarded, made)
    module = _module(handler, order.symbol)
    module.link_in(_module(function.owner, ENTRY))
    module.get_function(ENTRY).visibility = "hidden"
    check_needs(order.kernel.py_func.__name__, _needed(module))
    return _machine_code(module, numba.config)


def _module(compiled: Any, name: str) -> Any:
    """Return the optimised code of a C function under a name; the rest of it is private."""
    from llvmlite import binding

    module = binding.parse_assembly(str(compiled._library._final_module))  # noqa: SLF001 - no public name
    own = compiled._wrapper_name  # noqa: SLF001
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != own:
            each.linkage = "internal"
    module.get_function(own).name = name
    return module


def _needed(module: Any) -> list[str]:
    """List the names that code uses from elsewhere, and those by which Numba refers to addresses of this process."""
    names = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    addresses = [ADDRESSES for each in module.global_variables if each.name.startswith(ADDRESSES)]
    return addresses + [each for each in names if not each.startswith("llvm.") and each not in (CALL, FAILED)]


def _machine_code(module: Any, config: Any) -> bytes:
    """Return position-independent machine code for the CPU that the module was optimised for."""
    from llvmlite import binding

    target = binding.Target.from_default_triple()
    options = {"cpu": config.CPU_NAME, "features": config.CPU_FEATURES, "opt": 3}
    machine = target.create_target_machine(reloc="pic", codemodel="default", **options)
    code: bytes = machine.emit_object(module)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
