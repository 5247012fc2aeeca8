"""`numba_kernel`: compile a Numba CPU kernel and make it a function of JAX arrays; the targets of host functions.

As a program, this module compiles a kernel to an object file for `be_runtime.kernels.numba.cpu_library`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import functools
import hashlib
import inspect
import json
import pickle
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from be_runtime.call.attributes import Options, check_options
from be_runtime.call.compiled_function import KernelTarget
from be_runtime.call.function import ArrayKernel, array_function
from be_runtime.call.resolve import Resolved
from be_runtime.call.signature import read_signature
from be_runtime.errors import BeRuntimeError, BuildError
from be_runtime.frames import public
from be_runtime.jax import port
from be_runtime.jax.arrays import ArraySpec, Value
from be_runtime.jax.fault_names import NAMES
from be_runtime.kernels.numba import cpu_handler
from be_runtime.kernels.numba.cpu_handler import HandlerLayout, Intrinsics, Native, Signature, intrinsics
from be_runtime.kernels.numba.source import function_content, hints, import_error
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Session, Target
from be_runtime.store.index import Carried, Carry, Demand
from be_toolchain.machine.forks import ThreadLock

_SOURCE = "host_call"
_CAPTURABLE = 1
"""XLA's trait for a handler that a command buffer may capture."""

_PLACE = re.compile(r"^During: typing of .* at (\S.*) \((\d+)\)$", re.MULTILINE)
"""The line that Numba can't type, in Numba's message."""

_EXCLUSIVE_LAYER = "workqueue"
"""Threading layer of Numba that aborts the process if two threads enter it at once."""

CALL, FAILED, ENTRY = "be_kernel_call", "be_kernel_failed", "be_kernel_entry"
"""Symbols by which the handler and the C++ beside it call each other."""

REFUSED = "be refused: "
"""Prefix of the output line in which the program reports an error of this package."""

_PREFIX = "be_runtime.numba"
"""Prefix of targets."""


class HostFunction(NamedTuple):
    """A host function that a target runs.

    Parameters
    ----------
    address : int
        Address of a C function as ``native/host_call.cc`` describes it, valid as long as `owner` lives.
    owner : object
    exclusive : bool
        True if only one call of such functions may run at a time.
    has_stream : bool
        True if the function takes the stream of the call.
    capturable : bool
        True if a command buffer may capture the function's launches.
    guarded : compiled function, optional
        Source function of the C function, see `compile_handler`.
    """

    address: int
    owner: object
    exclusive: bool = False
    has_stream: bool = False
    capturable: bool = False
    guarded: Any | None = None

    @property
    def direct(self) -> Any | None:
        """The function for direct calls of a handler; None if it needs the native side's lock or stream."""
        return None if self.exclusive or self.has_stream else self.guarded


class _Parameter(ctypes.Structure):
    """``Parameter`` of ``native/host_call.cc``."""

    _fields_ = (("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("item_size", ctypes.c_int64))


class HostFunctions:
    """The registered functions of a process. A new object compiles nothing."""

    def __init__(self) -> None:
        self._library: ctypes.CDLL | None = None
        self._alive: dict[str, tuple[object, ...]] = {}
        self._lock = ThreadLock()

    def add(
        self,
        target: str,
        name: str,
        signature: Signature,
        make: Callable[[], HostFunction],
        *alive: object,
        platform: str = port.PLATFORMS["cpp"],
        carry: Carry | None = None,
    ) -> None:
        """Make a function and register its target, unless the target is known.

        Parameters
        ----------
        target : str
            Name of the target, which contains the function's identity.
        name : str
            Name of the function, for errors.
        signature : Signature
        make : callable
        alive : object
            Objects to keep alive with the target.
        platform : str
            JAX's name of the platform.
        carry : callable, optional
            Function that makes the target's code for exported programs.
        """
        with self._lock:
            if target in self._alive:
                return
            library = self._native()
            function = make()
            native = cpu_handler.at_addresses(
                kernel=_describe(library, name, signature, function),
                call=_address(library.be_host_call),
                failed=_address(library.be_host_failed),
                layout=HandlerLayout.in_dll(library, "be_host_layout"),
            )
            handler = cpu_handler.compile_handler(native, signature, function.direct, intrinsics())
            made = {target: lambda: port.capsule(handler.address)}
            PROCESS.registry.add([Target(target, platform, target, carry)], made)
            if faulthandler.is_enabled():
                NAMES.add_code(name, handler.address, library)
            self._alive[target] = (function, handler, *alive)

    def _native(self) -> ctypes.CDLL:
        if self._library is None:
            self._library = native_library(_SOURCE, PROCESS.session())
            self._library.be_host_kernel.restype = ctypes.c_void_p
        return self._library


def host_functions() -> HostFunctions:
    """Return the host functions of this process."""
    return PROCESS.only(HostFunctions, HostFunctions)


def host_layout(session: Session) -> tuple[int, ...]:
    """Return the numbers of `HandlerLayout`."""
    layout = HandlerLayout.in_dll(native_library(_SOURCE, session), "be_host_layout")
    return tuple(getattr(layout, name) for name, *_ in HandlerLayout._fields_)


def _describe(library: ctypes.CDLL, name: str, signature: Signature, function: HostFunction) -> int:
    """Return the address of the native side's description of a function."""
    rows = [
        _Parameter(parameter.dtype.xla_code, parameter.rank, parameter.dtype.size_bytes)
        for parameter in (*signature.inputs, *signature.outputs)
    ]
    address: int = library.be_host_kernel(
        name.encode(),
        ctypes.c_void_p(function.address),
        ctypes.c_bool(function.exclusive),
        ctypes.c_bool(function.has_stream),
        ctypes.c_uint32(_CAPTURABLE if function.capturable else 0),
        ctypes.c_int64(len(signature.inputs)),
        ctypes.c_int64(len(rows)),
        (_Parameter * len(rows))(*rows),
    )
    return address


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "a function has an address"
    return address


def import_numba() -> Any:
    """Import Numba.

    Raises
    ------
    ImportError
        Numba is not installed, or doesn't work with other installed packages.
    """
    try:
        import numba
    except (ImportError, AttributeError) as error:
        raise import_error("numba_kernel", "numba", error) from error
    return numba


def check_kernel(kernel: object) -> Any:
    """Check that the argument is a CPU dispatcher of Numba.

    Raises
    ------
    ImportError
        Numba can't be imported.
    TypeError
        The argument is something else.
    """
    import_numba()
    from numba.core.registry import CPUDispatcher

    if not isinstance(kernel, CPUDispatcher):
        kind = type(kernel)
        raise TypeError(
            f"kernel must be a function decorated with @numba.njit, not {kernel!r}, which is a {kind.__qualname__}"
        )
    if kernel.targetoptions.get("forceobj"):
        raise TypeError(f"kernel {kernel.py_func.__name__} is compiled in object mode, which needs the interpreter")
    return kernel


def versions() -> tuple[str, ...]:
    """Return the versions that affect the compiled code."""
    import llvmlite

    return (import_numba().__version__, llvmlite.__version__)


def compile_entry(kernel: Any, signature: Signature, made: Intrinsics | None = None) -> HostFunction:
    """Compile a kernel for a signature.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    made : Intrinsics, optional
        Functions for the C function; by default functions that report exceptions by Python.

    Raises
    ------
    BuildError
        Numba refuses the kernel; ``output`` is its whole message.
    """
    types = import_numba().types
    name = kernel.py_func.__name__
    usable = _open(kernel)
    try:
        # The kernel is compiled by itself first, so that Numba's messages are only about the kernel.
        usable.compile(arrays := _array_types(signature))
        returned = usable.overloads[arrays].signature.return_type
        if returned == types.none:
            entry, guarded = _compile_c_function(usable, signature, made or intrinsics())
    except Exception as error:
        # Numba's own errors, and any others that its passes raise because of the author's code.
        text = str(error)
        inputs, outputs = ([parameter.rank for parameter in side] for side in (signature.inputs, signature.outputs))
        raise BuildError(
            f"Numba can't compile the kernel {name} for {signature}: {_gist(text)}",
            output=text,
            hints=tuple(hints(kernel.py_func, inputs, outputs, text)[:1]),
        ) from error
    if returned != types.none:
        raise BuildError(
            f"the kernel {name} returns {returned}: a kernel writes its results to its outputs and returns nothing"
        )
    return HostFunction(entry.address, entry, exclusive=_is_exclusive(usable), guarded=guarded)


def _array_types(signature: Signature) -> tuple[Any, ...]:
    """Return Numba's types of the kernel's arrays, read-only for inputs."""
    from numba import types
    from numba.np.numpy_support import from_dtype

    return tuple(
        types.Array(from_dtype(np.dtype(parameter.dtype.name)), parameter.rank, "C", readonly=readonly)
        for side, readonly in ((signature.inputs, True), (signature.outputs, False))
        for parameter in side
    )


def _gist(text: str) -> str:
    """Extract the reason and the kernel's line from Numba's message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if "Error:" in line or line.startswith(("Unknown", "No conversion", "Cannot"))]
    reasons = marked[-1:] or [line for line in lines if not line.startswith("Failed in ")] or ["no reason given"]
    place = _PLACE.search(text)
    return reasons[0] + (f" ({place[1]}:{place[2]})" if place else "")


def _open(kernel: Any) -> Any:
    """Return the kernel without the author's list of signatures: our signature has read-only arrays."""
    if getattr(kernel, "_can_compile", True):
        return kernel
    import numba

    options = {name: value for name, value in kernel.targetoptions.items() if name != "nopython"}
    return numba.njit(**options)(kernel.py_func)


def _compile_c_function(kernel: Any, signature: Signature, made: Intrinsics) -> tuple[Any, Any]:
    """Compile the C function, which catches all exceptions, and the function that makes the arrays for it."""
    import numba
    from numba import types

    views, dtypes, at = [], {}, 0
    for index, parameter in enumerate((*signature.inputs, *signature.outputs)):
        extents = "".join(f"extents[{at + axis}], " for axis in range(parameter.rank))
        view = f"carray(memory(data[{index}]), ({extents}), dtype{index})"
        views.append(f"constant({view})" if index < len(signature.inputs) else view)
        dtypes[f"dtype{index}"] = np.dtype(parameter.dtype.name).type
        at += parameter.rank
    source = (
        f"def call(data, extents):\n    return kernel({', '.join(views)})\n"
        "def entry(data, extents, message):\n    return catching(guarded, data, extents, message)\n"
    )
    namespace: dict[str, Any] = {"kernel": kernel, "carray": numba.carray, **made._asdict(), **dtypes}
    exec(source, namespace)  # noqa: S102 - the text has only numbers and our names
    guarded = namespace["guarded"] = numba.njit(namespace["call"])
    pointer = types.CPointer(types.int64)
    c_type = types.int32(pointer, pointer, pointer)
    return numba.cfunc(c_type)(namespace["entry"]), guarded


def _is_exclusive(kernel: Any) -> bool:
    """Return whether calls of a compiled kernel must wait for each other."""
    if not kernel.targetoptions.get("parallel"):
        return False
    import numba

    try:
        layer: str = numba.threading_layer()
    except ValueError:
        return False  # nothing in the kernel runs in parallel
    return layer == _EXCLUSIVE_LAYER


def write_order(*order: Any) -> bytes:
    """Serialize the arguments of `make_object` by value, so that another process can read a notebook's kernel."""
    from numba.core import serialize

    return bytes(serialize.dumps(order))


def main(argv: Sequence[str]) -> int:
    """Read the arguments of `make_object` from one file, and write the object to another."""
    source, target = map(Path, argv)
    try:
        target.write_bytes(make_object(*pickle.loads(source.read_bytes())))  # noqa: S301 - `write_order` wrote it
    except BeRuntimeError as error:
        said = [error.message, list(error.hints), getattr(error, "output", "")]
        print(REFUSED + json.dumps(said))  # noqa: T201 - the parent process reads it
        return 1
    return 0


def make_object(kernel: Any, signature: Signature, layout: Sequence[int], symbol: str) -> bytes:
    """Compile a kernel and its handler to an object for Numba's CPU of this process.

    Parameters
    ----------
    kernel : CPUDispatcher
    signature : Signature
    layout : sequence of int
        Numbers of `HandlerLayout`.
    symbol : str
        Name of the handler.

    Raises
    ------
    BuildError
        Numba refuses the kernel, or its code needs Numba or Python when it runs.
    """
    numba = import_numba()
    from llvmlite import binding
    from numba import types

    cpu_handler.raise_texts()
    word, made = types.uint64, intrinsics(cpu_handler.report_text)
    for needed in (CALL, FAILED, cpu_handler.VALUE_RAISED):
        binding.add_symbol(needed, 1)  # Numba's linker requires it, and never runs the code
    function = compile_entry(kernel, signature, made)
    native = Native(
        0,
        types.ExternalFunction(CALL, word(word, word)),
        types.ExternalFunction(FAILED, word(word, word, word)),
        HandlerLayout(*layout),
    )
    handler = cpu_handler.compile_handler(native, signature, function.guarded, made)
    module = _module(handler, symbol)
    module.link_in(_module(function.owner, ENTRY))
    module.get_function(ENTRY).visibility = "hidden"
    cpu_handler.check_needs(kernel.py_func.__name__, _needed(module))
    target = binding.Target.from_default_triple()  # the module was optimized for Numba's CPU; a library needs PIC
    options = {"cpu": numba.config.CPU_NAME, "features": numba.config.CPU_FEATURES, "opt": 3}
    machine = target.create_target_machine(reloc="pic", codemodel="default", **options)
    return bytes(machine.emit_object(module))


def _module(compiled: Any, name: str) -> Any:
    """Return the optimized code of a C function under a name; all other symbols are private."""
    from llvmlite import binding

    module = binding.parse_assembly(str(compiled._library._final_module))  # noqa: SLF001 - no public name
    own = compiled._wrapper_name  # noqa: SLF001
    for each in (*module.functions, *module.global_variables):
        if not each.is_declaration and each.name != own:
            each.linkage = "internal"
    module.get_function(own).name = name
    return module


def _needed(module: Any) -> list[str]:
    """List the names that a module requires from elsewhere, and Numba's names of addresses of this process."""
    names = [each.name for each in (*module.functions, *module.global_variables) if each.is_declaration]
    addresses = [
        cpu_handler.ADDRESSES for each in module.global_variables if each.name.startswith(cpu_handler.ADDRESSES)
    ]
    return addresses + [each for each in names if not each.startswith("llvm.") and each not in (CALL, FAILED)]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


class Called(NamedTuple):
    """An author's function and its targets.

    Parameters
    ----------
    name : str
        Name of the function, for errors and targets.
    parameters : tuple of str
        Names of the parameters: the inputs, the outputs, scratch memory.
    doc : str or None
    target_for : callable
        Function that registers and returns the target for a signature; called once for each signature.
    platform : str
        JAX's name of the platform.
    lacking : tuple of str
        Names of unsupported dtypes.
    prepare : callable, optional
        Function called with the name, the inputs and the outputs before the first call with arrays of these shapes.
    """

    name: str
    parameters: tuple[str, ...]
    doc: str | None
    target_for: Callable[[Signature], str]
    platform: str = "cpu"
    lacking: tuple[str, ...] = ()
    prepare: Callable[[str, Sequence[ArraySpec], Sequence[ArraySpec]], None] | None = None


def called_function(
    function: Callable[..., Any], target_for: Callable[[str, Signature], str], more: Sequence[str] = (), **rest: Any
) -> Called:
    """Describe a function in this process.

    Parameters
    ----------
    function : callable
        Author's function of the arrays and of the parameters in `more`.
    target_for : callable
        Function of the name and a signature that compiles and registers the target.
    more : sequence of str
    **rest
        Other fields of `Called`.
    """
    name = str(getattr(function, "__name__", type(function).__name__))

    def checked(signature: Signature) -> str:
        cpu_handler.check_count(function, name, signature, more)
        return target_for(name, signature)

    return Called(name, tuple(inspect.signature(function).parameters), function.__doc__, checked, **rest)


def host_array_function(called: Called, signature: object, options: Options) -> Callable[..., Any]:
    """Make the function of JAX arrays, see `array_function`.

    Raises
    ------
    ArgumentError
        `outs` or the signature are not allowed. When the function is called or traced: an input is not an array or has
        an unsupported dtype, or the number of inputs is wrong.
    """
    target_for = functools.cache(called.target_for)

    @functools.cache
    def prepare(inputs: tuple[ArraySpec, ...], outputs: tuple[ArraySpec, ...]) -> None:
        if called.prepare is not None:
            called.prepare(called.name, inputs, outputs)

    def make_target(call: Resolved, _scalars: Mapping[str, Value]) -> KernelTarget:
        target = target_for(cpu_handler.signature_of(call.inputs, call.results, called.lacking))
        prepare(call.inputs, call.results)
        return KernelTarget(((called.platform, target),), ())

    declared = read_signature(called.name, signature, called.parameters)
    kernel = ArrayKernel(called.name, called.name, called.doc, declared, make_target)
    return array_function(kernel, options)


@public
def numba_kernel(
    kernel: Any,
    outs: Any = None,
    *,
    signature: str | Sequence[str] | None = None,
    vmap_method: str | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    has_side_effect: bool = False,
    ordered: bool = False,
    input_layouts: Sequence[Sequence[int] | None] | None = None,
    output_layouts: Sequence[Sequence[int] | None] | None = None,
    random: bool = False,
) -> Callable[..., Any]:
    """Make a function of JAX arrays from a Numba CPU kernel.

    The kernel is compiled to a C function when JAX traces the result, once for each combination of dtypes and numbers
    of dimensions. A call runs it without Python and without the GIL.

    Parameters
    ----------
    kernel : function decorated with ``@numba.njit``
        Kernel, called with the inputs, then the outputs, as C-contiguous arrays. It can't write to its inputs, and must
        write all of its outputs, which are uninitialized. It returns nothing.
    outs : ShapeDtypeStruct, pytree of them, or callable, optional
        Shape and dtype of each result. A callable is given the inputs' shapes and dtypes. With a `signature`, results
        follow from it.
    signature : str or sequence of str, optional
        Arrays of the kernel as an arg_spec: ``"arg[n k] arg[k] ret[n]"``. A token ``scratch[4*n]`` is an array of uint8
        after the outputs.
    vmap_method : str, optional
        As for ``jax.ffi.ffi_call``. Whatever the method, the kernel sees the arrays of one element of the batch:
        ``"broadcast_all"`` and ``"expand_dims"`` run it for all elements in one call, ``"sequential"`` in a loop of
        XLA. By default ``"broadcast_all"`` if all arrays of the signature have leading axes, ``[... n]``, else none.
    input_output_aliases : dict of int to int, optional
        Maps the index of an input to the index of the output that starts with the input's content.
    has_side_effect : bool
        True to run the kernel even if its results are not used. The order of such calls is XLA's choice.
    ordered : bool
        True to run all such calls in the order of the program; it implies `has_side_effect`.
    input_layouts, output_layouts : sequence of (sequence of int or None), optional
        Axes of each array from major to minor in memory, as for ``jax.ffi.ffi_call``. The kernel indexes that memory as
        if it were row by row.
    random : bool
        True for a kernel whose results differ from call to call; else checked mode reports that.

    Returns
    -------
    callable
        Function that takes the inputs and returns arrays in the structure of `outs`.

    Raises
    ------
    TypeError
        The kernel is not a CPU function of ``@numba.njit``.
    ImportError
        Numba is not installed.
    ArgumentError
        An argument is not allowed. At a call: the arrays are not as declared, or Numba lacks the dtype of an input.
    SpecError
        The signature can't be understood.
    BuildError
        At a call: Numba can't compile the kernel, for example because it writes to an input.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import numba
    >>> @numba.njit
    ... def add(x, y, out):
    ...     for i in range(out.size):
    ...         out[i] = x[i] + y[i]
    >>> x = jnp.arange(3, dtype=jnp.float32)
    >>> jax.jit(numba_kernel(add, jax.ShapeDtypeStruct(x.shape, x.dtype)))(x, x).tolist()
    [0.0, 2.0, 4.0]
    """
    dispatcher = check_kernel(kernel)
    content = functools.cache(partial(function_content, dispatcher))

    def target_for(name: str, signature: Signature) -> str:
        digest = hashlib.sha256("\0".join((content().digest, str(signature), *versions())).encode()).hexdigest()
        target = f"{_PREFIX}.{name}:{digest}"
        make = partial(compile_entry, dispatcher, signature)
        carry = partial(_carry, dispatcher, signature)
        host_functions().add(target, name, signature, make, *content().anchors, carry=carry)
        return target

    options = check_options(
        outs, vmap_method, input_output_aliases, has_side_effect, ordered, input_layouts, output_layouts, random=random
    )
    called = called_function(dispatcher.py_func, target_for, lacking=cpu_handler.LACKING)
    return host_array_function(called, signature, options)


def _carry(dispatcher: Any, signature: Signature, wanted: Demand) -> Carried:
    """Return the library of a kernel for a signature, for an exported program."""
    from be_runtime.kernels.numba.cpu_library import build_host_kernel  # few kernels are exported

    return build_host_kernel(dispatcher, signature, PROCESS.session(), wanted.baseline)
