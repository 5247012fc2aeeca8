"""A compiled module: the library in memory and its handlers."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, Self, cast

from be_runtime import checks
from be_runtime.checks import CheckedMode
from be_runtime.errors import DeviceCodeWarning, ExitWarning, GeneratorError, LoadError, StreamWarning, warn_caller
from be_runtime.frames import public
from be_runtime.jax import port
from be_runtime.load.registry import Registry, Target
from be_runtime.request.options import Language
from be_runtime.store.index import ENDS, Carried, CodeImage, Demand, Handlers, carried_library, target_name
from be_toolchain.arch import Arch
from be_toolchain.named import NamedTuple

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction
    from be_runtime.call.resolve import CallSignature, Export
    from be_runtime.load.code import EntryCode
    from be_runtime.report import ModuleReport


def open_library(path: Path) -> ctypes.CDLL:
    """Load a shared library privately, so that its symbols are not visible to other libraries.

    Raises
    ------
    LoadError
        The library can't be loaded. The error has the loader's message and hints.
    """
    try:
        return ctypes.CDLL(str(path), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except OSError as error:
        raise LoadError(f"{path} was built but can't be loaded: {error}", hints=_load_hints(str(error))) from error


def require_handlers(library: ctypes.CDLL, functions: Mapping[str, Handlers]) -> None:
    """Check that a library has the handlers of its functions, since it may come from another machine.

    Raises
    ------
    LoadError
        A handler is missing.
    """
    for name, each in functions.items():
        for symbol in filter(None, (each.plain, each.graph, each.instantiate)):
            if not hasattr(library, symbol):
                raise LoadError(f"the library has no {symbol}, the handler of {name}")


def _load_hints(message: str) -> tuple[str, ...]:
    if "failed to map segment" in message:
        return ("the cache is on a file system mounted noexec; set BE_CACHE_DIR to a folder that allows execution",)
    if "undefined symbol" in message:
        return ("a function is declared but never defined: define it, or link its library with extra_ldflags",)
    if "cannot open shared object file" in message:
        return (
            "a library it was linked with is not found at run time; add '-rpath=/its/folder' to extra_ldflags",
            "the folder needs a file of exactly this name: the library's own name, which readelf -d shows as SONAME",
        )
    if "GLIBCXX" in message or "GLIBC_" in message:
        return ("it was compiled against a newer C++ library than this Python has loaded; set BE_CXX to its compiler",)
    return ()


class BuiltLibrary(NamedTuple):
    """The library of a module for an exported program, and its functions."""

    image: CodeImage
    data: bytes
    functions: Mapping[str, Handlers]


class ModuleDescription(NamedTuple):
    """A compiled module: its name, library and functions.

    Parameters
    ----------
    name : str
    language : {"cuda", "cpp"}
    path : Path
        Path of the library.
    functions : dict of str to Handlers
    content : str
        Hash of all inputs of the library; equal in every process.
    origin : str
        Hash of the inputs without the list of functions; equal in modules with other functions of the same source.
    """

    name: str
    language: Language
    path: Path
    functions: Mapping[str, Handlers]
    content: str
    origin: str


class Rebuilder(Protocol):
    """Builds, reports or checks a loaded module anew."""

    def build(self, wanted: Demand) -> BuiltLibrary:
        """Return the library for an exported program."""

    def report(self, blocks: Sequence[int], *, loops: bool) -> ModuleReport:
        """Return the compilers' report, with the occupancy for the block sizes."""

    def checked(self) -> CompiledModule | None:
        """Return the module compiled with checks of accesses through tensors; None without sources."""


class ModuleInfo:
    """The description of a loaded module: ``ops.info``, or ``ModuleInfo.of(ops)``.

    Attributes
    ----------
    name : str
        Name of the module.
    path : Path
        Path of the compiled library.
    content_hash : str
        Hash of all inputs of the build. In all processes, equal inputs have equal hashes.
    platform : {"cpu", "CUDA"}
        JAX's name of the platform.

    See Also
    --------
    - :doc:`/calling`: attributes, result shapes and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> ops = be_runtime.load_cpp_inline(
    ...     "doc_info",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE half arg[... n]:float32 ret[... n]:float32
    ... void half(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 0.5f * x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> info = be_runtime.ModuleInfo.of(ops)
    >>> info.name, info.platform, info.function_names
    ('doc_info', 'cpu', ['half'])
    """

    def __init__(
        self,
        made: ModuleDescription,
        library: ctypes.CDLL,
        registry: Registry,
        maker: Rebuilder,
        *,
        captures_graphs: bool,
        mode: CheckedMode | None = None,
    ) -> None:
        self.name = made.name
        self.mode = mode
        self.path = made.path
        self.content_hash = made.content
        self.platform = port.PLATFORMS[made.language]
        self._captures_graphs = captures_graphs and made.language == "cuda"
        self.handlers = made.functions
        self._symbols = {
            name: each.graph if self._captures_graphs else each.plain for name, each in made.functions.items()
        }
        self._origin = made.origin
        self._library = library
        self._registry = registry
        self._maker = maker
        self.can_move = True
        """False if the functions need an object of this process, so that no exported program can have them."""
        self.only_arch: Arch | None = None
        """Architecture of the library that the module contains; None if the whole module can be compiled for others."""
        self._functions: dict[str, KernelFunction[..., Any]] = {}

    @staticmethod
    def of(module: LoadedModule) -> ModuleInfo:
        """Return the description of a module, even if the module has a function ``info``.

        Parameters
        ----------
        module : CompiledModule or LoadedModule
            Loaded module.

        Returns
        -------
        ModuleInfo
            Description of the module.
        """
        return module.__info__

    @property
    def function_names(self) -> list[str]:
        """The names of the module's functions."""
        return list(self._symbols)

    def identity(self, name: str) -> str:
        """Return the identity of a function's handler, equal in modules with other functions of the same source."""
        handlers = self.handlers[name]
        return " ".join((self._origin, handlers.call_name, *handlers.spec, self._symbols[name]))

    @public
    def get_handler(self, name: str) -> object:
        """Return the FFI handler of a function, for ``jax.ffi.register_ffi_target``.

        Parameters
        ----------
        name : str
            Name of the function.

        Returns
        -------
        capsule, or dict of str to capsule
            Handler. If the function has state, a dict with the handlers of the stages ``"instantiate"`` and
            ``"execute"``.

        Raises
        ------
        KeyError
            The module has no such function.

        Examples
        --------
        >>> import be_runtime
        >>> import jax
        >>> ops = be_runtime.load_cpp_file("scale.cc", auto_register=False)  # doctest: +SKIP
        >>> handler = ops.info.get_handler("scale")  # doctest: +SKIP
        >>> jax.ffi.register_ffi_target("mine.scale", handler, platform="cpu")  # doctest: +SKIP
        """
        handlers = self.handlers.get(name)
        if handlers is None:
            raise self._lacks(name)
        symbols = handlers.stages(captures_graphs=self._captures_graphs)
        return port.stage_capsules({stage: getattr(self._library, symbol) for stage, symbol in symbols.items()})

    def carry(self, name: str, wanted: Demand) -> Carried:
        """Return the code of a function for an exported program.

        Raises
        ------
        RegistrationError
            The function needs an object of this process.
        GeneratorError
            The module has code for one architecture, and another one is requested.
        BeRuntimeError, ToolchainError
            The library can't be built for the requested machines.
        """
        if not self.can_move:
            from be_runtime.jax.exporting import known_here_alone

            raise known_here_alone(name)
        if self.only_arch is not None:
            others = [each for each in wanted.archs if Arch.parse(each).base != self.only_arch.base]
            if others:
                raise GeneratorError(
                    f"{name} contains code for {self.only_arch} alone, and not for {', '.join(others)}",
                    hints=("export it for that architecture", "or pass another one in compute_capability"),
                )
            wanted = wanted._replace(archs=(str(self.only_arch),))
        made = self._maker.build(wanted)
        return carried_library(
            made.image, made.data, made.functions[name].stages(captures_graphs=self._captures_graphs)
        )

    @public
    def report(self, *, block_sizes: Sequence[int] | None = None, loops: bool = False) -> ModuleReport:
        """Report the resources of the module's kernels, and the duration of each phase of the build.

        The first report of a module compiles all sources once more, and the cache keeps the report. If the module was
        built ahead of time, ``cuobjdump`` reads the library instead. If no installed tool prints a value, the value is
        None.

        Parameters
        ----------
        block_sizes : sequence of int, optional
            Numbers of threads per block for which the occupancy is computed. The default is 64, 128, 256, 512 and 1024.
        loops : bool, default False
            For a C++ module, also list the loops that the host compiler did or did not vectorize. The cache keeps this
            report separately, so the first such report also compiles all sources.

        Returns
        -------
        ModuleReport
            Registers, shared memory, spills, size and occupancy of each GPU kernel; size of each entry point of a C++
            module. ``print`` shows tables.

        Raises
        ------
        ArgumentError
            A block size is not an integer from 1 to 1024.
        BuildError, ToolchainError
            The module can't be compiled here.

        See Also
        --------
        - :doc:`/profiling`: the columns of the tables, and remedies.

        Examples
        --------
        >>> print(ops.report(block_sizes=[256]))  # doctest: +SKIP
        """
        from be_runtime.report import check_blocks

        return self._maker.report(check_blocks(block_sizes), loops=loops)

    def function(self, name: str) -> KernelFunction[..., Any]:
        """Return a function of the module, see `LoadedModule.__getitem__`."""
        if name not in self._functions:
            from be_runtime.call.function import KernelFunction

            self._functions[name] = KernelFunction(*self.entry_point(name), self.function).checked_by(self.mode)
        return self._functions[name]

    def entry_point(self, name: str) -> tuple[CallSignature, EntryCode]:
        """Return the signature of a function, and its code, see `KernelFunction`.

        Raises
        ------
        KeyError
            The module has no such function.
        LoadError
            The module was built ahead of time, and its index is damaged.
        """
        handlers = self.handlers.get(name)
        if handlers is None:
            raise self._lacks(name)
        from be_runtime.call.resolve import CallSignature
        from be_runtime.load.code import EntryCode
        from be_runtime.signature.grammar import parse_spec

        label = f"{self.name}.{name}"
        params = parse_spec(handlers.spec, function=label)
        if len(params) != len(handlers.names):
            raise LoadError(
                f"{label} has {len(params)} parameters and names for {len(handlers.names)}: its index is damaged",
                hints=("copy, install or build it again",),
            )
        named = zip(params, handlers.names, strict=True)
        signature = CallSignature(label, tuple(param._replace(name=known) for param, known in named), handlers.doc)
        return signature, EntryCode([self], name)

    def targets(self, name: str) -> tuple[tuple[str, str], ...]:
        """Register the target of a function, or of its checked version, under a name that its content determines."""
        mode = self.mode or checks.active()
        if mode is None or "bounds" not in mode.checks.names:
            return self._own_targets(name)
        twin = self._maker.checked()
        if twin is not None:
            return self.of(twin)._own_targets(name)  # noqa: SLF001 - of the same class
        mode.note(f"{self.name}: its accesses through tensors were not checked, since it was built ahead of time")
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
        """Register a function's code, so that a fault reports its name; libraries of older releases lack the symbol."""
        from be_runtime.jax.fault_names import NAMES

        symbol = self._symbols[name].partition("_")[2].partition("_")[2]
        with contextlib.suppress(ValueError, AttributeError):
            code = ctypes.c_void_p.in_dll(self._library, f"be_code_{symbol}").value or 0
            NAMES.add_code(f"{self.name}.{name}", code, self._library)

    def export(self, name: str) -> Export:
        """Return the exported function of a function.

        Raises
        ------
        LoadError
            The module was built by an older release, or its source exports functions by itself.
        """
        from be_runtime.call.resolve import Export

        for symbol in (f"__tvm_ffi_{name}", f"__tvm_ffi_{self.handlers[name].plain.removeprefix('be_ffi_')}"):
            if hasattr(self._library, symbol):
                return Export(self.entry_point(name)[0], self.path, symbol, self.platform)
        raise LoadError(f"{self.name}.{name} is not exported for other frameworks", hints=("build the module again",))

    def _lacks(self, name: str) -> KeyError:
        return KeyError(f"module {self.name!r} has no function {name!r}; it has {', '.join(self._symbols)}")


OWN = ("content_hash", "function_names", "get_handler", "info", "name", "path", "report")
"""Attributes of a module. A function of the same name hides the attribute."""

PLATFORM_OWN = ("declarations", "function_names", "parts")
"""Attributes of a module for two platforms. A function of the same name is only available as an item."""


class LoadedModule:
    """Base class of loaded modules, for type annotations.

    For a type checker, this class declares the attributes of a `CompiledModule`, but no functions. ``python -m
    be_runtime stubs`` writes a subclass with the functions of one module.

    See Also
    --------
    - :doc:`/calling`: stubs for type checkers.

    Examples
    --------
    >>> import be_runtime
    >>> def apply(ops: be_runtime.LoadedModule, x):
    ...     return ops["scale"](x)
    """

    if TYPE_CHECKING:  # see `CompiledModule.__getattr__`
        info: ModuleInfo
        name: str
        path: Path
        content_hash: str

        function_names: list[str]
        get_handler: Callable[[str], object]
        report: Callable[..., ModuleReport]

    def __init__(self, info: ModuleInfo) -> None:
        self.__dict__["__info__"] = info
        _warn(info)

    @property
    def __info__(self) -> ModuleInfo:
        """The description of the module; no function can have this name."""
        info: ModuleInfo = self.__dict__["__info__"]
        return info

    @public
    def __getitem__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function of the module.

        Parameters
        ----------
        name : str
            Name of the function, such as ``"scale"``, or ``"a.fire"`` if the files ``a`` and ``b`` both define
            ``fire``.

        Returns
        -------
        KernelFunction
            Function of JAX arrays.

        Raises
        ------
        KeyError
            The module has no such function.
        """
        return self.__info__.function(name)

    def __dir__(self) -> list[str]:
        """List the functions, and the attributes that every module has."""
        return sorted({*super().__dir__(), *OWN, *self.__info__.function_names})

    def __copy__(self) -> Self:
        """Return the module itself, since it is immutable."""
        return self

    def __deepcopy__(self, memo: object) -> Self:
        """Return the module itself."""
        return self

    def __reduce__(self) -> NoReturn:
        """Refuse to pickle, since the library is loaded in this process."""
        raise TypeError(
            f"module {self.__info__.name!r} can't be pickled, since its code is loaded in this process alone: call the "
            "load function in the other process, which finds it in the cache"
        )

    def __repr__(self) -> str:
        info = self.__info__
        return f"CompiledModule(name={info.name!r}, functions={info.function_names}, path={str(info.path)!r})"


class CompiledModule(LoadedModule):
    """A loaded module, which the load functions return.

    Each function of the module is a method of type `KernelFunction`. If the name of a function is not a Python
    identifier, write ``ops["a.fire"]``. If a function has the name of an attribute below, such as ``path``, the method
    hides the attribute: write ``ModuleInfo.of(ops).path``.

    Attributes
    ----------
    info : ModuleInfo
        Description of the module.
    name : str
        Name of the module.
    path : Path
        Path of the compiled library.
    content_hash : str
        Hash of all inputs of the build. In all processes, equal inputs have equal hashes.
    function_names : list of str
        Names of the functions.
    get_handler : callable
        Method `ModuleInfo.get_handler`.
    report : callable
        Method `ModuleInfo.report`.

    See Also
    --------
    - `load_cpp_inline`, `load_cuda_inline`: load a module.
    - :doc:`/calling`: attributes, result shapes and derivatives.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cpp_inline(
    ...     "doc_negate",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE negate arg[... n]:float32 ret[... n]:float32
    ... void negate(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = -1 * x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> ops.function_names
    ['negate']
    >>> ops.negate(jnp.arange(3.0)).tolist()
    [-0.0, -1.0, -2.0]
    """

    @public
    def __getattr__(self, name: str) -> KernelFunction[..., Any]:
        """Return a function of the module, as ``module[name]`` does, else an attribute of every module."""
        info = self.__info__
        if name in info.handlers:
            function = self.__dict__[name] = self[name]
            return function
        if name in OWN:
            own: Any = info if name == "info" else getattr(info, name)
            return cast("KernelFunction[..., Any]", own)  # `LoadedModule` declares its type
        has = ", ".join(info.function_names)
        message = f"module {info.name!r} has no function {name!r}; it has {has}"
        raise AttributeError(message, name=name, obj=self)  # with which Python adds "Did you mean"


def _warn(info: ModuleInfo) -> None:
    """Issue the functions' warnings at the line that calls this package; Python shows each warning once."""
    for name, handlers in info.handlers.items():
        if handlers.warning:
            first, *others = handlers.warning.split("\n")
            if first:
                warn_caller(f"{info.name}.{name} {first}", StreamWarning)
            for line in others:
                if line.startswith(ENDS):
                    warn_caller(f"{info.name}.{name} {line}", ExitWarning)
                    continue
                effect = "" if "#20012-D" in line else ": nvcc may leave out the code of a kernel that does so"
                where = "" if line.startswith(f"{info.name}(") else f"{info.name}: "
                warn_caller(f"{where}{line}{effect}", DeviceCodeWarning)
    reached = [name for name in info.handlers if hasattr(CompiledModule, name)]
    if reached:
        names = ", ".join(f"module[{name!r}]" for name in reached)
        warn_caller(f"module {info.name!r}: Python's own attributes hide functions: call {names}")
    hidden = [name for name in info.handlers if name in OWN]
    if hidden:
        of = "be_runtime.ModuleInfo.of(module)" if "info" in hidden else "module.info"
        own = ", ".join(f"{of if name == 'info' else f'{of}.{name}'} instead of module.{name}" for name in hidden)
        warn_caller(f"module {info.name!r}: functions hide attributes of the module: use {own}")
