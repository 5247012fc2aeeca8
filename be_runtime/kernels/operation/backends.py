"""The kernels of an operation, and the order in which they are tried. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, KernelNotAvailableError

PLATFORMS = ("cpu", "gpu", "tpu")
_ALIASES = {"cuda": "gpu", "rocm": "gpu"}


class FallbackWarning(UserWarning):
    """A kernel can't be used here, and another one of the operation is used instead."""


class KernelEntry(NamedTuple):
    """One kernel.

    Parameters
    ----------
    backend : str
        Language or library of the kernel, such as ``"numba"``.
    platform : {"cpu", "gpu", "tpu"}
        Platform that it runs on.
    generator : callable
        Function that takes the parameters of a call and returns a function from arrays to arrays.
    """

    backend: str
    platform: str
    generator: Callable[..., Callable[..., Any]]


class Kernels(NamedTuple):
    """All kernels of an operation.

    Parameters
    ----------
    entries : tuple of KernelEntry
        Kernels in the order of their definition, at most one for a backend on a platform.
    defaults : tuple of (str, str)
        Platforms whose default was set, each with the backend.
    chosen : tuple of (str, str)
        Platforms for which the process chose a backend, each with it. They come before the defaults.

    Examples
    --------
    >>> kernels = Kernels().with_entry(KernelEntry("numba", "cpu", print)).with_entry(KernelEntry("cpp", "cpu", print))
    >>> kernels.backends("cpu")
    ('numba', 'cpp')
    >>> kernels.with_default("cpu", "cpp").backends("cpu")
    ('cpp', 'numba')
    """

    entries: tuple[KernelEntry, ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    chosen: tuple[tuple[str, str], ...] = ()

    def with_entry(self, entry: KernelEntry) -> Kernels:
        """Return the kernels with one more, which replaces an older one of its backend and platform."""
        at = [(each.backend, each.platform) for each in self.entries]
        if (entry.backend, entry.platform) not in at:
            return self._replace(entries=(*self.entries, entry))
        index = at.index((entry.backend, entry.platform))
        return self._replace(entries=(*self.entries[:index], entry, *self.entries[index + 1 :]))

    def with_default(self, platform: str, backend: str) -> Kernels:
        """Return the kernels with another default for a platform.

        Raises
        ------
        KernelNotAvailableError
            There is no such kernel.
        """
        if backend not in self.backends(platform):
            raise KernelNotAvailableError(f"there is no {backend!r} kernel for {platform}; {self.describe()}")
        others = tuple(pair for pair in self.defaults if pair[0] != platform)
        return self._replace(defaults=(*others, (platform, backend)))

    def candidates(self, platform: str, backend: str | None = None) -> tuple[KernelEntry, ...]:
        """List the kernels for a platform, or only one backend's.

        The process's choice comes first, then the default, then the others in order of definition.
        """
        first = [dict(pairs).get(platform) for pairs in (self.chosen, self.defaults)]
        here = [each for each in self.entries if each.platform == platform and backend in (None, each.backend)]
        return tuple(sorted(here, key=lambda each: [each.backend != one for one in first]))

    def missing_choice(self, platform: str) -> str | None:
        """Return the backend that the process chose for a platform if there is no such kernel."""
        choice = dict(self.chosen).get(platform)
        return None if choice in self.backends(platform) else choice

    def backends(self, platform: str) -> tuple[str, ...]:
        """List the backends that have a kernel for a platform, in the order in which they are tried."""
        return tuple(each.backend for each in self.candidates(platform))

    def describe(self) -> str:
        """List the kernels, for an error message."""
        found = [f"{each}: {', '.join(self.backends(each))}" for each in PLATFORMS if self.backends(each)]
        return f"it has kernels for {'; '.join(found)}" if found else "it has no kernels yet"

    def __repr__(self) -> str:
        return f"<{self.describe()}>"


def check_platform(platform: object) -> str:
    """Return a platform's usual name; ``"cuda"`` and ``"rocm"`` are ``"gpu"``.

    Raises
    ------
    ArgumentError
        There is no such platform.
    """
    name = _ALIASES.get(platform, platform) if isinstance(platform, str) else platform
    if not isinstance(name, str) or name not in PLATFORMS:
        raise ArgumentError(f"platform must be one of {', '.join(PLATFORMS)}, not {platform!r}")
    return name


def check_name(name: object) -> str:
    """Check the name of an operation, a backend or a tag.

    Raises
    ------
    ArgumentError
        It is not a str, or empty.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"a name such as 'numba' is expected, not {name!r}")
    return name
