"""What the whole process shares: the settings, the cache folder, the registered targets. Each is made on first use."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from be_toolchain.arch import Arch
from be_toolchain.system import LocalSystem

from . import jax_port
from .cache import Store, own_folder, usable_cache_dir
from .options import LoadOptions
from .pipeline import Session
from .registry import Registry
from .settings import Settings


class Process:
    """Process-wide state; the public functions use the one in this file, tests make their own."""

    def __init__(self) -> None:
        self.registry = Registry(jax_port.register)
        self._lock = threading.Lock()
        self._archs: tuple[Arch, ...] = ()
        self._chosen_cache: Path | None = None
        self._located: tuple[Path | None, Path] | None = None

    def choose_cache(self, folder: Path) -> None:
        """Use this cache folder from now on."""
        with self._lock:
            self._chosen_cache = folder

    def choose_archs(self, archs: tuple[Arch, ...]) -> None:
        """Compile device code for these from now on; empty returns to the environment and the devices."""
        with self._lock:
            self._archs = archs

    def settings(self) -> Settings:
        """From the environment as it is now."""
        return Settings.from_environ(os.environ)

    def cache_dir(self, settings: Settings) -> Path:
        """The cache folder: the chosen one, else the configured one, else the default, looked for once."""
        with self._lock:
            if self._chosen_cache is not None:
                return self._chosen_cache
            if self._located is None or self._located[0] != settings.cache_dir:
                self._located = (settings.cache_dir, usable_cache_dir(settings))
            return self._located[1]

    def session(self, options: LoadOptions) -> Session:
        """What one load needs."""
        settings = self.settings()
        cache = self.cache_dir(settings)
        return Session(
            system=LocalSystem(),
            settings=settings,
            cache=Store(cache),
            store=Store(options.build_directory or cache),
            record_dir=Path(own_folder(str(cache)), "toolchain"),
            registry=self.registry,
            archs=self._archs,
        )


PROCESS = Process()
