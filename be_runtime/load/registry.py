"""The FFI targets that this process has registered, and their contents.

XLA keeps a handler for the life of the process: registering other code for a live target has no effect on programs that
were compiled before. So a target's content is fixed when it is first registered.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from be_runtime.bundle.carried import Carry
from be_runtime.errors import RegistrationError
from be_toolchain.machine.forks import ThreadLock


class Target(NamedTuple):
    """One FFI target on one platform.

    Parameters
    ----------
    name : str
        ``<prefix>.<function>``, as ``jax.ffi.ffi_call`` takes it.
    platform : str
        JAX's name of the platform: ``"cpu"`` or ``"CUDA"``.
    content : str
        Identity of the code and its traits.
    carry : callable, optional
        Function that makes the code for an exported program; None if it works in this process alone.
    """

    name: str
    platform: str
    content: str
    carry: Carry | None = None


class Registry:
    """The targets of a process.

    Parameters
    ----------
    register : callable
        Function that registers (name, handler, platform) with JAX.
    """

    def __init__(self, register: Callable[[str, object, str], None]) -> None:
        self._register = register
        self._targets: dict[tuple[str, str], Target] = {}
        self._handlers: dict[
            tuple[str, str], object
        ] = {}  # XLA holds their addresses, so they live as long as the process
        self._lock = ThreadLock()

    def add(self, targets: Sequence[Target], handlers: Mapping[str, Callable[[], object]]) -> None:
        """Register all of a module's targets, or none.

        Parameters
        ----------
        targets : sequence of Target
            Targets. One that is live with the same content is left as it is.
        handlers : mapping of str to callable
            Functions that make the handler of each target, by its name; called only for new targets.

        Raises
        ------
        RegistrationError
            A live target has other content, or JAX refuses one.
        """
        with self._lock:
            new = [target for target in targets if not self._is_live(target)]
            made = [(target, handlers[target.name]()) for target in new]
            for target, handler in made:
                self._hand_over(target, handler)
                self._targets[target.name, target.platform] = target
                self._handlers[target.name, target.platform] = handler

    def _hand_over(self, target: Target, handler: object) -> None:
        try:
            self._register(target.name, handler, target.platform)
        except (RuntimeError, TypeError, ValueError) as error:
            raise RegistrationError(
                f"JAX refuses the FFI target {target.name!r} for {target.platform}: {error}",
                hints=("if the name was registered by other means, pass target_prefix='...' or another name",),
            ) from error

    def _is_live(self, target: Target) -> bool:
        live = self._targets.get((target.name, target.platform))
        if live is None:
            return False
        if live.content != target.content:
            raise RegistrationError(
                f"the FFI target {target.name!r} is already registered for {target.platform} with other content; "
                "XLA keeps the first for the life of the process",
                hints=(
                    "load the changed source under another name, or pass target_prefix='...'",
                    "in a notebook, pass auto_register=False and call module.f(...), which needs no name",
                ),
            )
        return True

    def stages(self, name: str, platform: str) -> dict[str, int]:
        """Return the addresses of a target's handlers by their stages; empty if this process has not registered it."""
        handler = self._handlers.get((name, platform), {})
        capsules = handler if isinstance(handler, dict) else {"execute": handler}
        read = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        return {stage: read(capsule, None) for stage, capsule in capsules.items()}

    def get(self, name: str) -> tuple[Target, ...]:
        """Return the targets of a name, one for each platform that it is registered for."""
        return tuple(target for target in self._targets.values() if target.name == name)

    def names(self, platform: str | None = None) -> tuple[str, ...]:
        """List the names of registered targets, of one platform or all, sorted and without repetition."""
        return tuple(sorted({name for name, its_platform in self._targets if platform in (None, its_platform)}))
