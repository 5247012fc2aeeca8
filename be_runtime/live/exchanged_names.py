"""Names for ``jax.ffi.ffi_call`` whose code can be exchanged, as long as no program calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from be_runtime.errors import RegistrationError, warn_caller
from be_runtime.load.registry import Target, capsule_address
from be_runtime.xla import jax_port

_LIBRARY = "exchanged"


class ExchangedNames:
    """Names that are registered with handlers of ours, which lead to the code.

    They are the `be_runtime.load.registry.NameExchange` of the process.

    The code of a function with state is never exchanged, since XLA knows the state's type by the first code; nor that
    of a name that was registered before `be_runtime.watch`, or for code with other traits.

    Parameters
    ----------
    library : callable
        Function that loads our library of such handlers; it is called once, when there is a name.
    """

    def __init__(self, library: Callable[[str], ctypes.CDLL]) -> None:
        self._library = library
        self._opened: ctypes.CDLL | None = None
        self._handlers: dict[tuple[str, str], int] = {}

    def wrap(self, target: Target, handler: object) -> object:
        """Return the handler to register; the given one, if its code can't be exchanged."""
        if isinstance(handler, dict) or len(self._handlers) == self._open().be_exchanged_count():
            return handler
        index = self._handlers[target.name, target.platform] = len(self._handlers)
        return jax_port.capsule(self._lead(index, handler))

    def refusal(self, target: Target) -> RegistrationError | None:
        """Return the error of a program that calls a target by its name, if there is one."""
        if not jax_port.is_called(target.name):
            return None
        prefix, _, function = target.name.rpartition(".")
        return RegistrationError(
            f"the FFI target {target.name!r} was given to jax.ffi.ffi_call, and a program that XLA compiled calls it; "
            "XLA can't lead it to other code",
            hints=(
                f"call module.{function}(...), which follows the source, instead of jax.ffi.ffi_call",
                "drop the programs that call it by name, with jax.clear_caches()",
                f"or load the changed source with target_prefix='{prefix}_2'",
            ),
        )

    def point(self, target: Target, handler: object) -> bool:
        """Lead a live target to other code; False, with a warning, if its first code stays."""
        index = self._handlers.get((target.name, target.platform))
        if index is not None and not isinstance(handler, dict) and self._lead(index, handler):
            return True
        warn_caller(
            f"{target.name} has changed: module.{target.name.rpartition('.')[2]}(...) calls the new code, "
            "jax.ffi.ffi_call by this name the first"
        )
        return False

    def _lead(self, index: int, handler: object) -> int | None:
        """Lead a handler of ours to some code, and return its address; None if its traits are others."""
        address: int | None = self._open().be_exchange(index, capsule_address(handler))
        return address

    def _open(self) -> ctypes.CDLL:
        if self._opened is None:
            self._opened = self._library(_LIBRARY)
            self._opened.be_exchange.argtypes = [ctypes.c_int, ctypes.c_void_p]
            self._opened.be_exchange.restype = ctypes.c_void_p
        return self._opened
