"""One call of an operation: its parameters, and the choice and run of a kernel for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from be_runtime.errors import (
    ArgumentError,
    BeRuntimeError,
    GeneratorError,
    KernelNotAvailableError,
    TransformError,
    call_named,
)
from be_runtime.kernels.operation.backends import FallbackWarning, KernelEntry, Kernels
from be_runtime.xla import jax_primitive
from be_runtime.xla.jax_primitive import Level
from be_toolchain import ToolchainError
from be_toolchain.terminal import printable_line


class Call(NamedTuple):
    """The parameters of one call, as the only parameter of the primitive.

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
        """Return the parameters for rules: the keywords, ``outs`` and ``backend``, as in a call of the operation."""
        return {**dict(self.keywords), "outs": self.outs, "backend": self.backend}

    def result_types(self) -> list[Any]:
        """Return the shapes and dtypes of the results, with the axes of the batch."""
        sizes = tuple(level.size for level in self.levels)
        return [jax_primitive.struct((*sizes, *out.shape), out.dtype) for out in self.outs]


def run(platform: str, call: Call, *arguments: Any) -> Sequence[Any]:
    """Compute the results of a call, by a kernel for the platform.

    Raises
    ------
    KernelNotAvailableError
        There is no kernel.
    ArgumentError
        The results are not as `outs` describes.
    """

    def one(*element: Any) -> Sequence[Any]:
        return _by_some_kernel(platform, call, element)

    if not call.levels:
        return one(*arguments)
    try:
        return jax_primitive.vmap_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]
    except TransformError:
        pass
    except RuntimeError as error:
        # The kernel of another library does not define its behaviour under vmap; JAX has no exception type for that.
        if isinstance(error, BeRuntimeError | ToolchainError):
            raise
    return jax_primitive.loop_levels(one, call.levels)(*arguments)  # type: ignore[no-any-return]


def _by_some_kernel(platform: str, call: Call, arguments: Sequence[Any]) -> Sequence[Any]:
    """Compute the results by the first kernel that can be used here."""
    candidates = call.kernels.candidates(platform, call.backend)
    if not candidates:
        asked = f"{call.backend!r} kernel" if call.backend else "kernel"
        raise KernelNotAvailableError(
            f"the operation {call.name} has no {asked} for {platform}; {call.kernels.describe()}",
            hints=("define one with def_kernel(backend, platform, generator)",),
        )
    if not call.backend and (missing := call.kernels.missing_choice(platform)):
        _say_other(f"{call.name} has no {missing} kernel for {platform}", candidates[0])
    for index, entry in enumerate(candidates):
        try:
            return _by_kernel(entry, call, arguments)
        except (ImportError, ToolchainError) as error:
            # The kernel's language isn't installed; any other failure is the kernel's own.
            if index + 1 == len(candidates):
                raise
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            _say_other(f"the kernel {entry.backend!r} of {call.name} can't be used: {reason}", candidates[index + 1])
    raise AssertionError("the last candidate returns or raises")


def _say_other(reason: str, entry: KernelEntry) -> None:
    warnings.warn(printable_line(f"{reason}; {entry.backend} is used instead"), FallbackWarning, stacklevel=3)


def _by_kernel(entry: KernelEntry, call: Call, arguments: Sequence[Any]) -> Sequence[Any]:
    what = f"the kernel {entry.backend!r} of {call.name}"
    others = [each.backend for each in call.kernels.candidates(entry.platform) if each != entry]
    switch = f"; others: {', '.join(others)} (backend=..., set_default or set_backend)" if others else ""
    where = f"this was {what} for {entry.platform}{switch}"
    try:
        kernel = _make_kernel(entry, call, what)
        results = jax_primitive.leaves(call_named(what, kernel, *arguments))
        _check_results(results, call)
    except (BeRuntimeError, ToolchainError) as error:
        error.hints += (where,)
        raise
    except Exception as error:
        error.add_note(where)
        raise
    return results


def _make_kernel(entry: KernelEntry, call: Call, what: str) -> Callable[..., Any]:
    """Call the generator; its failure is a `GeneratorError`, but for an error of ours and a missing language."""
    try:
        kernel = call_named(what, entry.generator, **dict(call.keywords), outs=call.outs)
    except (ImportError, BeRuntimeError, ToolchainError):
        raise
    except Exception as error:
        raise GeneratorError(f"{what} can't be made: {type(error).__name__}: {error}") from error
    if not callable(kernel):
        raise GeneratorError(f"{what} can't be made: the generator must return a function of arrays, not {kernel!r}")
    return kernel  # type: ignore[no-any-return]


def _check_results(results: Sequence[Any], call: Call) -> None:
    given = [(tuple(each.shape), str(each.dtype)) for each in results if hasattr(each, "shape")]
    wanted = [(tuple(out.shape), str(out.dtype)) for out in call.outs]
    if len(given) != len(results) or given != wanted:
        shown = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in given)
        expected = ", ".join(f"{dtype}{list(shape)}" for shape, dtype in wanted)
        raise ArgumentError(f"the kernel gives {shown or 'no arrays'}, but outs is {expected}")
