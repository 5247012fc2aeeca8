"""The state that one load works with, handed to it as a value."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from be_runtime.cache import Store
from be_runtime.load.registry import Registry
from be_runtime.settings import Settings
from be_toolchain.arch import Arch
from be_toolchain.machine.system import System


class Session(NamedTuple):
    """The process state for a load, passed in rather than looked up.

    Parameters
    ----------
    system : System
        The machine.
    settings : Settings
        Settings from the environment.
    cache : Store
        Cache.
    module_store : Store
        Store of modules: the cache, or the folder that the caller named.
    record_dir : Path
        Folder of the toolchain's record and of its store.
    registry : Registry
        Targets of the process.
    archs : tuple of Arch
        Architectures from ``set_compute_capabilities``; empty if it was not called.
    """

    system: System
    settings: Settings
    cache: Store
    module_store: Store
    record_dir: Path
    registry: Registry
    archs: tuple[Arch, ...] = ()

    @property
    def toolchain_store(self) -> Store:
        """The store of entries that belong to the toolchain, such as the compiled handler."""
        return Store(self.record_dir)
