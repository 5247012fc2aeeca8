"""One call of an operation: what it was called with besides arrays, and how a kernel is found and run for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.errors import ArgumentError, BeRuntimeError, call_named
from be_runtime.kernels.operation.backends import FallbackWarning, KernelEntry, Kernels
from be_runtime.xla import jax_primitive
from be_runtime.xla.jax_primitive import Level
from be_toolchain import ToolchainError
from be_toolchain.terminal import printable_line


class Call(NamedTuple):
    """The parameter of the primitive.

    Parameters
    ----------
    name : str
        The operation's.
    outs : tuple of ShapeDtypeStruct
        The results of one element of a batch.
    keywords : tuple of (str, object)
        By name, sorted.
    backend : str or None
        The one that was asked for.
    kernels : Kernels
        Those that there were when the call was traced.
    levels : tuple of Level
        The batch, the outermost level first.
    """

    name: str
    outs: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    backend: str | None
    kernels: Kernels
    levels: tuple[Level, ...] = ()

    def parameters(self) -> dict[str, Any]:
        """What rules are called with: the keywords, ``outs`` and ``backend``, as a call of the operation takes them."""
        return {**dict(self.keywords), "outs": self.outs, "backend": self.backend}

    def result_types(self) -> list[Any]:
        """The results, with the axes of the batch."""
        sizes = tuple(level.size for level in self.levels)
        return [jax_primitive.struct((*sizes, *out.shape), out.dtype) for out in self.outs]


def run(platform: str, call: Call, *arguments: Any) -> Sequence[Any]:
    """The results of a call, by a kernel for the platform.

    Raises
    ------
    ArgumentError
        There is no kernel, or it does not give what the call asks for.
    """

    def one(*element: Any) -> Sequence[Any]:
        return _by_some_kernel(platform, call, element)

    if not call.levels:
        return one(*arguments)
    try:
        return jax_primitive.vmap_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]
    except RuntimeError as error:
        # A kernel that does not say how it behaves under vmap: JAX has no type of its own for that.
        if isinstance(error, BeRuntimeError | ToolchainError):
            raise
        return jax_primitive.loop_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]


def _by_some_kernel(platform: str, call: Call, arguments: Sequence[Any]) -> Sequence[Any]:
    """By the first kernel that can be used here."""
    candidates = call.kernels.candidates(platform, call.backend)
    if not candidates:
        asked = f"{call.backend!r} kernel" if call.backend else "kernel"
        raise ArgumentError(
            f"the operation {call.name} has no {asked} for {platform}; {call.kernels.describe()}",
            hints=("define one with def_kernel(backend, platform, generator)",),
        )
    for index, entry in enumerate(candidates):
        try:
            return _by_kernel(entry, call, arguments)
        except (ImportError, ToolchainError) as error:
            # What it is written with isn't here; any other failure is the kernel's own.
            if index + 1 == len(candidates):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            message = (
                f"the {entry.backend} kernel of {call.name} can't be used: {reason}; "
                f"{candidates[index + 1].backend} is used instead"
            )
            warnings.warn(printable_line(message), FallbackWarning, stacklevel=2)
    raise AssertionError("the last candidate returns or raises")


def _by_kernel(entry: KernelEntry, call: Call, arguments: Sequence[Any]) -> Sequence[Any]:
    what = f"the {entry.backend} kernel of {call.name}"
    try:
        parameters = {**dict(call.keywords), "outs": call.outs}
        kernel = _check_kernel(call_named(what, entry.generator, **parameters))
        results = jax_primitive.leaves(call_named(what, kernel, *arguments))
        _check_results(results, call)
    except Exception as error:
        others = [each.backend for each in call.kernels.candidates(entry.platform) if each != entry]
        switch = f"; others for {entry.platform}: {', '.join(others)} (backend=..., or set_default)" if others else ""
        error.add_note(f"in {what} for {entry.platform}{switch}")
        raise
    return results


def _check_kernel(kernel: object) -> Callable[..., Any]:
    if not callable(kernel):
        raise TypeError(f"the generator must return a function of arrays, not {kernel!r}")
    return kernel


def _check_results(results: Sequence[Any], call: Call) -> None:
    given = [(tuple(each.shape), str(each.dtype)) for each in results if hasattr(each, "shape")]
    wanted = [(tuple(out.shape), str(out.dtype)) for out in call.outs]
    if len(given) != len(results) or given != wanted:
        shown = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in given)
        expected = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in wanted)
        raise ArgumentError(f"the kernel gives {shown or 'no arrays'}, but outs is {expected}")
