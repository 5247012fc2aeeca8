"""The settings of be_runtime, read from the variables that `be_toolchain.settings` names. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from be_runtime.errors import ArgumentError, LoadError
from be_toolchain.errors import PreferenceError
from be_toolchain.named import NamedTuple
from be_toolchain.settings import CACHE_LIMIT_MIB, RUNTIME, read_setting


class Settings(NamedTuple):
    """The settings from the environment; the page docs/settings.md describes each field.

    Examples
    --------
    >>> Settings.from_environ({"BE_MAX_JOBS": "4"}).max_jobs
    4
    """

    cache_dir: Path | None = None
    cache_max_size_mib: int = CACHE_LIMIT_MIB
    cache_max_age_days: int = 90
    prebuilt_dir: Path | None = None
    jit: str = "missing"
    compute_capabilities: str | None = None
    compile_timeout_s: float = 1800.0
    lock_timeout_s: float | None = None
    max_jobs: int | None = None
    compiler_launcher: tuple[str, ...] = ()
    cluster: bool = False
    remote_cache: str = ""
    remote_cache_write: bool = False
    remote_cache_timeout_s: float = 10.0
    remote_cache_public_key: str = ""
    remote_cache_private_key: Path | None = None
    active: str = "nonzero"
    debug: str = ""
    autotune: str = "on"
    sanitize: tuple[str, ...] = ()
    verbose: bool = False
    trace: Path | None = None

    @property
    def shares(self) -> bool:
        """True if other processes or machines get the modules that this process compiles."""
        return self.cluster or self.remote_cache_write

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Settings:
        """Read the settings; an empty variable counts as unset, and a variable wins over its aliases. Pure.

        Raises
        ------
        ArgumentError
            A value is malformed. The message names the variable, the value and the accepted values.
        """
        try:
            values = {name: read_setting(row, environ) for name, row in RUNTIME.items()}
        except PreferenceError as error:
            raise ArgumentError(error.message, hints=error.hints) from None
        return cls(**{name: value for name, value in values.items() if value is not None})


def require_jit(settings: Settings, name: str) -> None:
    """Check that kernels may be compiled.

    Raises
    ------
    LoadError
        ``BE_JIT`` is ``never``.
    """
    if settings.jit == "never":
        raise LoadError(
            f"{name} was not built ahead of time, and BE_JIT=never forbids compiling it",
            hints=("unset BE_JIT to compile it here",),
        )
