"""Calls of operations: their parameters, and the choice and the call of a kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from be_runtime import errors
from be_runtime.jax import transforms
from be_runtime.jax.transforms import Level
from be_toolchain import ToolchainError
from be_toolchain.terminal import printable_line

PLATFORMS = ("cpu", "gpu", "tpu")
_ALIASES = {"cuda": "gpu", "rocm": "gpu"}


class FallbackWarning(UserWarning):
    """A preferred kernel can't be used here, so another kernel of the operation is used."""


class KernelEntry(NamedTuple):
    """Record of a kernel that `XLACustomKernel.def_kernel` defines. A program need not create a record.

    Attributes
    ----------
    backend : str
        Name of the backend, such as ``"numba"``.
    platform : {"cpu", "gpu", "tpu"}
        Platform of the kernel.
    generator : callable
        Function that takes the keywords of a call and ``outs``, and returns a function from arrays to arrays.

    See Also
    --------
    - `XLACustomKernel.def_kernel`: define a kernel.
    - :doc:`/custom-kernels`: operations with several kernels.
    """

    backend: str
    platform: str
    generator: Callable[..., Callable[..., Any]]


class Kernels(NamedTuple):
    """The kernels of an operation.

    Parameters
    ----------
    entries : tuple of KernelEntry
        Kernels in the order of their definition, at most one for a backend on a platform.
    defaults : tuple of (str, str)
        Platforms and the backends that were set as their defaults.
    chosen : tuple of (str, str)
        Platforms and the backends that the process chose for them. A choice precedes the default.

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
        """Return the kernels with one more, which replaces an older kernel of its backend and platform."""
        entries = {(each.backend, each.platform): each for each in (*self.entries, entry)}
        return self._replace(entries=tuple(entries.values()))

    def with_default(self, platform: str, backend: str) -> Kernels:
        """Return the kernels with another default for a platform.

        Raises
        ------
        KernelNotAvailableError
            The backend has no kernel for the platform.
        """
        if backend not in self.backends(platform):
            raise errors.KernelNotAvailableError(f"no {backend!r} kernel is defined for {platform}; {self.describe()}")
        others = tuple(pair for pair in self.defaults if pair[0] != platform)
        return self._replace(defaults=(*others, (platform, backend)))

    def candidates(self, platform: str, backend: str | None = None) -> tuple[KernelEntry, ...]:
        """List the kernels for a platform, or only the kernel of one backend.

        The backend that the process prefers comes first, then the default, then the others in order of definition.
        """
        first = [dict(pairs).get(platform) for pairs in (self.chosen, self.defaults)]
        here = [each for each in self.entries if each.platform == platform and backend in (None, each.backend)]
        return tuple(sorted(here, key=lambda each: [each.backend != one for one in first]))

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
    """Return the canonical name of a platform; ``"cuda"`` and ``"rocm"`` are ``"gpu"``.

    Raises
    ------
    ArgumentError
        The platform is unknown.
    """
    name = _ALIASES.get(platform, platform) if isinstance(platform, str) else platform
    if not isinstance(name, str) or name not in PLATFORMS:
        raise errors.ArgumentError(f"platform must be one of {', '.join(PLATFORMS)}, not {platform!r}")
    return name


def check_name(name: object) -> str:
    """Check the name of an operation, a backend or a tag.

    Raises
    ------
    ArgumentError
        The name is not a str, or is empty.
    """
    if not isinstance(name, str) or not name:
        raise errors.ArgumentError(f"a name such as 'numba' is expected, not {name!r}")
    return name


class Call(NamedTuple):
    """The parameters of one call: the only parameter of the primitive.

    Parameters
    ----------
    name : str
        Name of the operation.
    outs : tuple of ShapeDtypeStruct
        Shapes and dtypes of the results, for one element of a batch.
    keywords : tuple of (str, object)
        Keywords, sorted by name.
    backend : str or None
        Requested backend.
    kernels : Kernels
        Kernels of the operation when the call was traced.
    levels : tuple of Level
        Levels of the batch, the outermost first.
    """

    name: str
    outs: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    backend: str | None
    kernels: Kernels
    levels: tuple[Level, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """Return the keywords of the operation's call, for rules: its own keywords, ``outs`` and ``backend``."""
        return {**dict(self.keywords), "outs": self.outs, "backend": self.backend}


def run(platform: str, *arguments: Any, call: Call) -> Sequence[Any]:
    """Compute the results of a call by a kernel for the platform.

    Raises
    ------
    KernelNotAvailableError
        There is no kernel for the platform.
    ArgumentError
        The results differ from `outs`.
    """
    one = partial(_by_some_kernel, platform, call)
    if not call.levels:
        return one(*arguments)
    try:
        return transforms.vmap_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]
    except errors.TransformError:
        pass
    except RuntimeError as error:
        # The kernel of another library does not define its behavior under vmap; JAX has no exception type for this.
        if isinstance(error, errors.BeRuntimeError | ToolchainError):
            raise
    return transforms.loop_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]


def _by_some_kernel(platform: str, call: Call, *arguments: Any) -> Sequence[Any]:
    """Compute the results by the first kernel whose language is installed."""
    candidates = call.kernels.candidates(platform, call.backend)
    if not candidates:
        asked = f"{call.backend!r} kernel" if call.backend else "kernel"
        raise errors.KernelNotAvailableError(
            f"the operation {call.name} has no {asked} for {platform}; {call.kernels.describe()}",
            hints=("define one with def_kernel(backend, platform, generator)",),
        )
    chosen = dict(call.kernels.chosen).get(platform)
    if not call.backend and chosen and chosen not in call.kernels.backends(platform):
        _warn_of_fallback(f"{call.name} has no {chosen} kernel for {platform}", candidates[0])
    for index, entry in enumerate(candidates):
        try:
            return _by_kernel(entry, call, arguments)
        except (ImportError, ToolchainError) as error:
            # The kernel's language isn't installed; any other failure is the kernel's own.
            if index + 1 == len(candidates):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            _warn_of_fallback(
                f"the kernel {entry.backend!r} of {call.name} can't be used: {reason}", candidates[index + 1]
            )
    raise AssertionError("the last candidate returns or raises")


def _warn_of_fallback(reason: str, entry: KernelEntry) -> None:
    warnings.warn(printable_line(f"{reason}; {entry.backend} is used instead"), FallbackWarning, stacklevel=3)


def _by_kernel(entry: KernelEntry, call: Call, arguments: Sequence[Any]) -> Sequence[Any]:
    what = f"the kernel {entry.backend!r} of {call.name}"
    others = [each.backend for each in call.kernels.candidates(entry.platform) if each != entry]
    switch = f"; others: {', '.join(others)} (backend=..., set_default or set_backend)" if others else ""
    where = f"this was {what} for {entry.platform}{switch}"
    try:
        kernel = _make_kernel(entry, call, what)
        results = transforms.leaves(errors.call_named(what, kernel, *arguments))
        _check_results(results, call)
    except (errors.BeRuntimeError, ToolchainError) as error:
        error.hints += (where,)
        raise
    except Exception as error:
        error.add_note(where)
        raise
    return results


def _make_kernel(entry: KernelEntry, call: Call, what: str) -> Callable[..., Any]:
    """Call the generator. A failure raises `GeneratorError`, except for our own errors and missing languages."""
    try:
        kernel = errors.call_named(what, entry.generator, **dict(call.keywords), outs=call.outs)
    except (ImportError, errors.BeRuntimeError, ToolchainError):
        raise
    except Exception as error:
        raise errors.GeneratorError(f"{what} can't be made: {type(error).__name__}: {error}") from error
    if not callable(kernel):
        raise errors.GeneratorError(
            f"{what} can't be made: the generator must return a function of arrays, not {kernel!r}"
        )
    return kernel  # type: ignore[no-any-return]


def _check_results(results: Sequence[Any], call: Call) -> None:
    given = [f"{each.dtype}{[*each.shape]}" for each in results if hasattr(each, "shape")]
    wanted = [f"{out.dtype}{[*out.shape]}" for out in call.outs]
    if len(given) != len(results) or given != wanted:
        raise errors.ArgumentError(
            f"the kernel gives {', '.join(given) or 'no arrays'}, but outs is {', '.join(wanted)}"
        )
