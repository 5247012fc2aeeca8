"""The FFI targets of this process (`Registry`), and the state that a load gets as a value (`Session`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from be_runtime.errors import RegistrationError
from be_runtime.jax import port
from be_runtime.settings import Settings
from be_runtime.store.cache import Cache
from be_runtime.store.index import Carry
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock
from be_toolchain.machine.system import System
from be_toolchain.named import NamedTuple


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
        # XLA holds their addresses, so they live as long as the process
        self._handlers: dict[tuple[str, str], object] = {}
        self._lock = ThreadLock()
        self._waiting: list[Callable[[], None]] = []
        self.keep_first: Callable[[Sequence[str]], None] | None = None  # set by `be_runtime.watch`

    def add(
        self, targets: Sequence[Target], handlers: Mapping[str, Callable[[], object]], *, by_name: bool = False
    ) -> None:
        """Register all of a module's targets, or none.

        Parameters
        ----------
        targets : sequence of Target
            Targets. One that is live with the same content is left as it is.
        handlers : mapping of str to callable
            Functions that make the handler of each target, by its name; called only for new targets, without the lock.
        by_name : bool
            True for names that an author chose. While `be_runtime.watch` is on, they may come with other content: XLA
            keeps the first, and `keep_first` is called with the names.

        Raises
        ------
        RegistrationError
            A live target has other content, or JAX refuses one.
        """
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each()
        # Makers may take locks whose holders add targets, as checked mode does.
        made = {each.name: handlers[each.name]() for each in targets if (each.name, each.platform) not in self._targets}
        with self._lock:
            keep_first = self.keep_first if by_name else None
            live = [(target, self._targets.get((target.name, target.platform))) for target in targets]
            changed = [target for target, found in live if found is not None and found.content != target.content]
            if changed and keep_first is None:
                raise _other_content(changed[0])
            for target in [target for target, found in live if found is None]:
                self._hand_over(target, made[target.name])
                self._targets[target.name, target.platform] = target
                self._handlers[target.name, target.platform] = made[target.name]
        if changed and keep_first is not None:
            keep_first([target.name for target in changed])

    def add_later(self, add: Callable[[], None]) -> None:
        """Let `add` register targets before the next ones, so that a program without JAX imports no JAX for a name."""
        self._waiting.append(add)

    def _hand_over(self, target: Target, handler: object) -> None:
        try:
            self._register(target.name, handler, target.platform)
        except (RuntimeError, TypeError, ValueError) as error:
            raise RegistrationError(
                f"JAX refuses the FFI target {target.name!r} for {target.platform}: {error}",
                hints=("if the name was registered by other means, pass target_prefix='...' or another name",),
            ) from error

    def stages(self, name: str, platform: str) -> dict[str, int]:
        """Return the addresses of a target's handlers by their stages; empty if this process has not registered it."""
        return port.addresses(self._handlers.get((name, platform), {}))

    def get(self, name: str) -> tuple[Target, ...]:
        """Return the targets of a name, one for each platform that it is registered for."""
        return tuple(target for target in list(self._targets.values()) if target.name == name)

    def names(self, platform: str | None = None) -> tuple[str, ...]:
        """List the names of registered targets, of one platform or all, sorted and without repetition."""
        return tuple(sorted({name for name, its_platform in list(self._targets) if platform in (None, its_platform)}))


def _other_content(target: Target) -> RegistrationError:
    return RegistrationError(
        f"the FFI target {target.name!r} is already registered for {target.platform} with other content; "
        "XLA keeps the first for the life of the process",
        hints=(
            "load the changed source under another name, or pass target_prefix='...'",
            "while you edit, call be_runtime.watch() and use module.f(...), which calls the new code",
            "or pass auto_register=False and call module.f(...), which needs no name",
        ),
    )


class Session(NamedTuple):
    """The process state for a load, passed in rather than looked up.

    Parameters
    ----------
    system : System
        The machine.
    settings : Settings
        Settings from the environment.
    cache : Cache
    module_store : Cache
        The cache of modules, which may be in a folder that the caller named.
    record_dir : Path
        Folder of the toolchain's record and of its store.
    registry : Registry
        Targets of the process.
    archs : tuple of Arch
        Architectures from ``set_compute_capabilities``; empty if it was not called.
    """

    system: System
    settings: Settings
    cache: Cache
    module_store: Cache
    record_dir: Path
    registry: Registry
    archs: tuple[Arch, ...] = ()

    @property
    def toolchain_store(self) -> Cache:
        """The store of entries that belong to the toolchain, such as the compiled handler."""
        return Cache(self.record_dir)
