"""A compiled module: the library in memory and its handlers."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NoReturn

from be_runtime.errors import LoadError


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


class CompiledModule:
    """A loaded module, as the load functions return it.

    Parameters
    ----------
    name : str
    path : Path
        Path of the shared library.
    content_hash : str
        Hash of everything that the library was made from; the same in every process.
    symbols : mapping of str to str
        Symbol of each function's handler.
    instantiate : mapping of str to str
        Symbol of the handler that makes the state of each function that has one.
    library : ctypes.CDLL
    capsule : callable
        Function that wraps a handler for registration with JAX.

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
    ('negate',)
    """

    def __init__(
        self,
        *,
        name: str,
        path: Path,
        content_hash: str,
        symbols: Mapping[str, str],
        instantiate: Mapping[str, str],
        library: ctypes.CDLL,
        capsule: Callable[[object], object],
    ) -> None:
        self.name = name
        self.path = path
        self.content_hash = content_hash
        self._symbols = dict(symbols)
        self._instantiate = dict(instantiate)
        self._library = library
        self._capsule = capsule

    @property
    def function_names(self) -> tuple[str, ...]:
        """The names of the module's functions, in the order of the source."""
        return tuple(self._symbols)

    def get_handler(self, name: str) -> object:
        """Return the FFI handler of a function, as a capsule for ``jax.ffi.register_ffi_target``.

        A function with state has two, in a dict by their stage.

        Raises
        ------
        KeyError
            The module has no such function.
        """
        if name not in self._symbols:
            raise KeyError(f"module {self.name!r} has no function {name!r}; it has {', '.join(self._symbols)}")
        execute = self._capsule(getattr(self._library, self._symbols[name]))
        if name not in self._instantiate:
            return execute
        return {"instantiate": self._capsule(getattr(self._library, self._instantiate[name])), "execute": execute}

    def __copy__(self) -> CompiledModule:
        """Return the module itself, since it is immutable."""
        return self

    def __deepcopy__(self, memo: object) -> CompiledModule:
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
