"""The host functions of a process: each is made once, by identity, with a handler and a target of its own."""

from __future__ import annotations

import ctypes
import faulthandler
from collections.abc import Callable
from typing import Any, NamedTuple

from be_runtime.bundle.carried import Carry
from be_runtime.kernels.numba.cpu.intrinsics import intrinsics
from be_runtime.kernels.numba.cpu.llvm_handler import HandlerLayout, at_addresses, compile_handler
from be_runtime.kernels.numba.cpu.signature import Signature
from be_runtime.load.native_library import native_library
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Registry, Target
from be_runtime.load.session import Session
from be_runtime.xla import jax_port
from be_runtime.xla.fault_names import NAMES
from be_toolchain.machine.forks import ThreadLock

_SOURCE = "host_call"
_CAPTURABLE = 1
"""XLA's trait for a handler that a command buffer may capture."""


class HostFunction(NamedTuple):
    """A host function, which a target runs.

    Parameters
    ----------
    address : int
        Address of a C function as ``native/host_call.cc`` describes it, valid as long as `owner` lives.
    owner : object
    exclusive : bool
        True if only one call of such functions may run at a time.
    has_stream : bool
        True if it takes the stream of the call.
    capturable : bool
        True if a command buffer may capture its launches.
    guarded : compiled function, optional
        Function from which Numba compiled the C function, see `compile_handler`.
    """

    address: int
    owner: object
    exclusive: bool = False
    has_stream: bool = False
    capturable: bool = False
    guarded: Any | None = None

    @property
    def direct(self) -> Any | None:
        """The function that a handler may call directly, if it needs neither the native side's lock nor its stream."""
        return None if self.exclusive or self.has_stream else self.guarded


class _Parameter(ctypes.Structure):
    """``Parameter`` of ``native/host_call.cc``."""

    _fields_ = (("dtype", ctypes.c_int32), ("rank", ctypes.c_int32), ("item_size", ctypes.c_int64))


class HostFunctions:
    """The registered functions. Creating the object compiles nothing.

    Parameters
    ----------
    session : callable
        Function that returns the session for compiling the native part, called at the first function.
    registry : Registry
    """

    def __init__(self, session: Callable[[], Session], registry: Registry) -> None:
        self._session = session
        self._registry = registry
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
        platform: str = jax_port.PLATFORMS["cpp"],
        carry: Carry | None = None,
    ) -> None:
        """Register a target, and make its function unless the target is known.

        Parameters
        ----------
        target : str
            Name of the target, which contains the function's identity.
        name : str
            Name of the function, for errors.
        signature : Signature
        make : callable
        alive : object
            Objects that must live as long as the target.
        platform : str
            Platform's name in JAX.
        carry : callable, optional
            Function that makes its code for exported programs.
        """
        with self._lock:
            if target in self._alive:
                return
            library = self._native()
            function = make()
            native = at_addresses(
                kernel=_describe(library, name, signature, function),
                call=_address(library.be_host_call),
                failed=_address(library.be_host_failed),
                layout=HandlerLayout.in_dll(library, "be_host_layout"),
            )
            handler = compile_handler(native, signature, function.direct, intrinsics())
            made = {target: lambda: jax_port.capsule(handler.address)}
            self._registry.add([Target(target, platform, target, carry)], made)
            if faulthandler.is_enabled():
                NAMES.add_code(name, handler.address, library)
            self._alive[target] = (function, handler, *alive)

    def _native(self) -> ctypes.CDLL:
        if self._library is None:
            self._library = native_library(_SOURCE, self._session())
            self._library.be_host_kernel.restype = ctypes.c_void_p
        return self._library


def host_functions() -> HostFunctions:
    """Return the host functions of this process."""
    return PROCESS.only(HostFunctions, lambda: HostFunctions(PROCESS.session, PROCESS.registry))


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
    assert address is not None, "a function that was found has an address"
    return address
