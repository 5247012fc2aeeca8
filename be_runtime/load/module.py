"""A compiled module: the library in memory and its handlers."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Self

from be_runtime import checks
from be_runtime.bundle.carried import Carried, Demand, carried_library
from be_runtime.bundle.index import CodeImage, target_name
from be_runtime.checks import Active
from be_runtime.errors import LoadError, StreamWarning, warn_caller
from be_runtime.generate.contents import Handlers
from be_runtime.load.registry import Registry, Target
from be_runtime.request.options import Language
from be_runtime.xla import jax_port

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction
    from be_runtime.call.resolve import CallSignature
    from be_runtime.reports.module_report import ModuleReport


def open_library(path: Path) -> ctypes.CDLL:
    """Load a shared library privately, so that its names are not visible to other libraries.

    Raises
    ------
    LoadError
        The library can't be loaded; the error has the loader's message and hints.
    """
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise LoadError(f"{path} was built but can't be loaded: {error}", hints=_load_hints(str(error))) from error


def _load_hints(message: str) -> tuple[str, ...]:
    if "failed to map segment" in message:
        return ("the cache is on a file system mounted noexec; set BE_CACHE_DIR to a folder that allows execution",)
    if "undefined symbol" in message:
        return ("a function is declared but never defined: define it, or link its library with extra_ldflags",)
    if "cannot open shared object file" in message:
        return ("a library it was linked with is not found at run time; add '-rpath=/its/folder' to extra_ldflags",)
    if "GLIBCXX" in message or "GLIBC_" in message:
        return ("it was compiled against a newer C++ library than this Python has loaded; set BE_CXX to its compiler",)
    return ()


class BuiltLibrary(NamedTuple):
    """A module's library for exported programs, and its functions."""

    image: CodeImage
    data: bytes
    functions: Mapping[str, Handlers]


class Made(NamedTuple):
    """A module that was compiled, now or long ago.

    Parameters
    ----------
    name : str
    language : {"cuda", "cpp"}
    path : Path
        Path of the library.
    functions : dict of str to Handlers
    content : str
        Hash of everything that the library was made from; the same in every process.
    origin : str
        Hash of what each function was made from, the same in a module that has more functions of the same source.
    """

    name: str
    language: Language
    path: Path
    functions: Mapping[str, Handlers]
    content: str
    origin: str


class Remaker(NamedTuple):
    """The functions that make a module again.

    Parameters
    ----------
    build : callable
        Its library for exported programs.
    report : callable
        Its report for block sizes, and of loops or not.
    checked : callable, optional
        The module with accesses through tensors checked; None if it can't be compiled anew.
    """

    build: Callable[[Demand], BuiltLibrary]
    report: Callable[..., ModuleReport]
    checked: Callable[[], CompiledModule] | None = None


class LoadedModule:
    """A loaded module as far as all are the same; stubs add the functions of one.

    Parameters
    ----------
    made : Made
    library : ctypes.CDLL
    registry : Registry
        Targets of the process.
    maker : Remaker
    captures_graphs : bool
        True to use the handlers that a CUDA graph may record, if the module has some.
    mode : Active, optional
        Checked mode of its functions' calls, always.
    label : str
        The module's name in errors; ``package.name`` where it is a package's.
    """

    def __init__(
        self,
        made: Made,
        library: ctypes.CDLL,
        registry: Registry,
        maker: Remaker,
        *,
        captures_graphs: bool,
        mode: Active | None = None,
        label: str = "",
    ) -> None:
        self._label = label or made.name
        _warn(self._label, made.functions)
        self.name = made.name
        self.mode = mode
        self.path = made.path
        self.content_hash = made.content
        self.platform = jax_port.PLATFORMS[made.language]
        self._captures_graphs = captures_graphs and made.language == "cuda"
        self._handlers = made.functions
        self._symbols = {
            name: each.graph if self._captures_graphs else each.plain for name, each in made.functions.items()
        }
        self._origin = made.origin
        self._library = library
        self._registry = registry
        self._maker = maker
        self._functions: dict[str, KernelFunction[..., Any]] = {}

    @property
    def function_names(self) -> list[str]:
        """The names of the module's functions, in the order of the source."""
        return list(self._symbols)

    def identity(self, name: str) -> str:
        """Return what a function's handler is, the same in a module that has more functions of the same source."""
        handlers = self._handlers[name]
        return " ".join((self._origin, handlers.call_name, *handlers.spec, self._symbols[name]))

    def get_handler(self, name: str) -> object:
        """Return the FFI handler of a function, as a capsule for ``jax.ffi.register_ffi_target``.

        A function with state has two, in a dict by their stage.

        Raises
        ------
        KeyError
            The module has no such function.
        """
        handlers = self._handlers.get(name)
        if handlers is None:
            raise self._lacks(name)
        symbols = handlers.stages(captures_graphs=self._captures_graphs)
        return jax_port.stage_capsules({stage: getattr(self._library, symbol) for stage, symbol in symbols.items()})

    def carry(self, name: str, wanted: Demand) -> Carried:
        """Return what an exported program carries of a function.

        Raises
        ------
        BeRuntimeError, ToolchainError
            The library can't be made as it is wanted.
        """
        made = self._maker.build(wanted)
        return carried_library(
            made.image, made.data, made.functions[name].stages(captures_graphs=self._captures_graphs)
        )

    def report(self, *, block_sizes: Sequence[int] | None = None, loops: bool = False) -> ModuleReport:
        """Describe what the compilers made of the module's kernels, and the seconds of each phase of its build.

        The sources are compiled once more, with ptxas's own report, and the outcome is kept in the cache. Of a module
        that was built ahead of time, cuobjdump reads the library. What no tool here tells is None.

        Parameters
        ----------
        block_sizes : sequence of int, optional
            Threads of a block for which occupancy is told; by default 64, 128, 256, 512 and 1024.
        loops : bool
            Compile a C++ module once more, and list the loops that the host compiler vectorized, or could not.

        Returns
        -------
        ModuleReport
            For each kernel registers, shared memory, spills, size, occupancy and the hottest loop; of a C++ module, the
            size of each entry point; and warnings of the compilers. ``print`` shows tables, and ``to_json()`` returns
            the same for programs.

        Raises
        ------
        ArgumentError
            A block size is not a number of threads.
        BuildError, ToolchainError
            The module can't be compiled here any more.

        Examples
        --------
        >>> print(module.report())  # doctest: +SKIP
        """
        from be_runtime.reports.module_report import check_blocks

        return self._maker.report(check_blocks(block_sizes), loops=loops)

    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function of the module, which is called with arrays and attributes.

        Raises
        ------
        KeyError
            The module has no such function.
        """
        if name not in self._functions:
            self._functions[name] = self._make_function(name)
        return self._functions[name]

    def __dir__(self) -> list[str]:
        """The names of the functions, and what every module has."""
        return sorted({*super().__dir__(), *self._handlers})

    def _make_function(self, name: str) -> KernelFunction[..., Any]:
        from be_runtime.call.function import KernelFunction

        return KernelFunction(*self.entry_point(name), self.__getitem__).checked_by(self.mode)

    def entry_point(self, name: str) -> tuple[CallSignature, Callable[[], tuple[tuple[str, str], ...]]]:
        """Return the signature of a function, and the function that registers its target, see `KernelFunction`.

        Raises
        ------
        KeyError
            The module has no such function.
        """
        handlers = self._handlers.get(name)
        if handlers is None:
            raise self._lacks(name)
        from be_runtime.call.resolve import CallSignature
        from be_runtime.spec.grammar import parse_spec

        label = f"{self._label}.{name}"
        params = parse_spec(handlers.spec, function=label)
        named = zip(params, handlers.names, strict=True)
        signature = CallSignature(label, tuple(param._replace(name=known) for param, known in named), handlers.doc)
        return signature, partial(self._targets, name)

    def _targets(self, name: str) -> tuple[tuple[str, str], ...]:
        """Register a function's target under a name that its content determines; the checked one in checked mode."""
        mode = self.mode or checks.active()
        if mode is None or "bounds" not in mode.checks.names:
            return self._own_targets(name)
        if self._maker.checked is not None:
            return self._maker.checked()._own_targets(name)  # noqa: SLF001 - of the same class
        mode.note(f"{self._label}: its accesses through tensors were not checked, since it was built ahead of time")
        return self._own_targets(name)

    def _own_targets(self, name: str) -> tuple[tuple[str, str], ...]:
        content = f"{self.content_hash}:{self._symbols[name]}"
        target = target_name(self.content_hash, self._symbols[name])
        registered = Target(target, self.platform, content, partial(self.carry, name))
        self._registry.add([registered], {target: partial(self.get_handler, name)})
        if faulthandler.is_enabled():
            self.name_code(name)
        return ((self.platform.lower(), target),)

    def name_code(self, name: str) -> None:
        """Let a fault in a function tell its name; a module that was built by an older release can't."""
        from be_runtime.xla.fault_names import NAMES

        symbol = self._symbols[name].partition("_")[2].partition("_")[2]
        with contextlib.suppress(ValueError, AttributeError):
            code = ctypes.c_void_p.in_dll(self._library, f"be_code_{symbol}").value or 0
            NAMES.add_code(f"{self._label}.{name}", code, self._library)

    def _lacks(self, name: str) -> KeyError:
        return KeyError(f"module {self._label!r} has no function {name!r}; it has {', '.join(self._symbols)}")

    def __copy__(self) -> Self:
        """Return the module itself, since it is immutable."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the module itself."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle: the library is loaded in this process."""
        raise TypeError(
            f"module {self.name!r} can't be pickled, since its code is loaded in this process alone: call the load "
            "function in the other process, which finds it in the cache"
        )

    def __repr__(self) -> str:
        return f"CompiledModule(name={self.name!r}, functions={list(self._symbols)}, path={str(self.path)!r})"


class CompiledModule(LoadedModule):
    """A loaded module, as the load functions return it.

    Each function is a method, see `be_runtime.call.function.KernelFunction`; ``module["name"]`` is the same, also for a
    name that is no identifier, or that the module has itself.

    Examples
    --------
    >>> import be_runtime
    >>> module = be_runtime.load_cpp_inline(
    ...     "doc_negate",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE negate arg ret
    ... void negate(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = -x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> module.function_names
    ['negate']
    >>> import jax, jax.numpy as jnp
    >>> module.negate(jnp.arange(3.0), outs=jax.ShapeDtypeStruct((3,), jnp.float32)).tolist()
    [-0.0, -1.0, -2.0]
    """

    def __getattr__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function of the module, as ``module[name]`` does."""
        if name.startswith("__") or name not in self.__dict__.get("_handlers", ()):
            has = ", ".join(self.__dict__.get("_handlers", ()))
            message = f"module {self.__dict__.get('_label')!r} has no function {name!r}; it has {has}"
            raise AttributeError(message, name=name, obj=self)  # with which Python adds "Did you mean"
        function = self.__dict__[name] = self[name]
        return function


def _warn(module: str, functions: Mapping[str, Handlers]) -> None:
    """Show the functions' warnings at the line that calls this package; Python shows each of them once."""
    for name, handlers in functions.items():
        if handlers.warning:
            warn_caller(f"{module}.{name} {handlers.warning}", StreamWarning)
