"""One operation for CPU and GPU: modules of two languages whose functions of one name are one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from be_runtime.call.function import KernelFunction
from be_runtime.call.resolve import CallSignature, signature_of_entry
from be_runtime.call.signature import require_same
from be_runtime.frames import public
from be_runtime.load.code import EntryCode
from be_runtime.load.module import CompiledModule, ModuleInfo
from be_runtime.load.registry import Session
from be_runtime.request.build_tools import wanted_archs
from be_runtime.request.options import BuildRequest, Unit, arch_flags
from be_toolchain.find.record import device_archs


class LoadedPlatformModule:
    """Base class of modules for CPU and GPU, for type annotations.

    For a type checker, this class declares the attributes of a `PlatformModule`, but no functions. ``python -m
    be_runtime stubs`` writes a subclass with the functions of one module.

    See Also
    --------
    - :doc:`/calling`: stubs for type checkers.

    Examples
    --------
    >>> import be_runtime
    >>> def apply(ops: be_runtime.LoadedPlatformModule, x):
    ...     return ops["scale"](x)
    """

    def __init__(
        self, name: str, parts: Mapping[str, CompiledModule], declared: Mapping[str, CallSignature] | None = None
    ) -> None:
        self.__name__ = name
        self.parts = dict(parts)
        self._declared = dict(declared or {})
        self._functions: dict[str, KernelFunction[..., Any]] = {}
        infos = [ModuleInfo.of(part) for part in parts.values()]
        for function in dict.fromkeys(each for info in infos for each in info.function_names):
            having = [info for info in infos if function in info.handlers]
            signature, *others = [info.entry_point(function)[0] for info in having]
            for other in (*others, (declared or {}).get(function, signature)):
                require_same(signature, other)
            mode = next(iter(infos)).mode
            self._functions[function] = KernelFunction[..., Any](
                signature, EntryCode(having, function), self.__getitem__
            ).checked_by(mode)

    @public
    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function.

        Parameters
        ----------
        name : str
            Name of the function.

        Returns
        -------
        KernelFunction
            Function of JAX arrays.

        Raises
        ------
        KeyError
            No source defines a function of this name, or only the CUDA source defines the function, and the CUDA source
            is not compiled.
        """
        if name not in self._functions:
            raise KeyError(self._lacks(name))
        return self._functions[name]

    @property
    def function_names(self) -> list[str]:
        """The names of the compiled functions."""
        return [*self._functions]

    def declarations(self) -> dict[str, CallSignature]:
        """Return the signatures of all functions, even of functions whose CUDA source is not compiled.

        Returns
        -------
        dict of str to signature
            Dictionary from function name to signature.
        """
        return self._declared | {name: function.signature for name, function in self._functions.items()}

    def _lacks(self, name: str) -> str:
        """Return the message about a missing function."""
        message = f"module {self.__name__!r} has no function {name!r}; it has {', '.join(self._functions)}"
        if name in self._declared:
            message += (
                "; the CUDA source has it: name an architecture by compute_capability to compile it without a GPU"
            )
        return message

    def __dir__(self) -> list[str]:
        """List the functions and the attributes."""
        return sorted({*super().__dir__(), *self._functions})

    def __repr__(self) -> str:
        return f"PlatformModule(name={self.__name__!r}, functions={[*self._functions]}, parts={[*self.parts]})"


class PlatformModule(LoadedPlatformModule):
    """A module for CPU and GPU; `load_inline`, `load_file` and `load_dir` return it.

    Each function of the module is a method of type `KernelFunction`. A program for the CPU calls the C++ function, and
    a program for the GPU calls the CUDA function. ``ops["name"]`` returns the same function as ``ops.name``.

    Attributes
    ----------
    parts : dict of str to CompiledModule
        Modules of the two languages, by the keys ``"cpp"`` and ``"cuda"``. If the CUDA source is not compiled, the key
        ``"cuda"`` is absent.

    See Also
    --------
    - `load_inline`: load such a module; the example there is a complete program.
    - :doc:`/calling`: attributes, result shapes and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> ops = be_runtime.load_file("ops", cpp="scale.cc", cuda="scale.cu")  # doctest: +SKIP
    >>> [*ops.parts]  # doctest: +SKIP
    ['cpp', 'cuda']
    >>> ops.function_names  # doctest: +SKIP
    ['scale']
    """

    @public
    def __getattr__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function."""
        if "_functions" not in self.__dict__:  # while it is copied
            raise AttributeError(name)
        if name not in self._functions:
            raise AttributeError(self._lacks(name), name=name, obj=self)
        return self._functions[name]


def has_archs(request: BuildRequest, session: Session) -> bool:
    """Return whether a CUDA module is compiled here: there is a GPU, or an architecture is named."""
    archs = wanted_archs(
        request.compute_capability,
        session.archs,
        session.settings,
        lambda: device_archs(session.system, session.record_dir),
    )
    return bool(archs or arch_flags(request.compile.cflags))


_OF_CUDA = ("__global__", "<<<", "cudaStream_t", "<cuda_runtime.h>")


def are_swapped(cpp: Sequence[Unit], cuda: Sequence[Unit]) -> bool:
    """Return whether the sources that were passed as C++ are CUDA, and the others are not."""
    has_cuda = [
        any(word in each.text for unit in units for each in unit.sources for word in _OF_CUDA) for units in (cpp, cuda)
    ]
    return has_cuda == [True, False]


def declared_functions(request: BuildRequest) -> dict[str, CallSignature]:
    """Read the functions of a request, which is not compiled.

    Raises
    ------
    SpecError
        The declaration of an entry point is invalid.
    """
    from be_runtime.compile.codegen import bind

    bindings = (each for found in bind(request).values() for each in found)
    return {each.export: signature_of_entry(f"{request.name}.{each.export}", each.entry) for each in bindings}
