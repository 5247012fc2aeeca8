"""Functions of the TVM-FFI C ABI as functions of JAX arrays: C++ is generated that calls them, and loaded as a module.

The generated module holds the library's bytes, so the cache, packages, exported programs and checked mode treat it as
any other module. ``tvm/ffi/c_api.h`` defines the ABI, see ``include/brainevent/detail/tvm_ffi.h``.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_runtime import errors, frames
from be_runtime.kernels.tvm_ffi_source import read_function, render, with_metadata
from be_runtime.load import process
from be_runtime.load.module import CompiledModule
from be_runtime.request.arguments import StrPath, cpp_request, cuda_request, default_name, inline_units, load_options
from be_runtime.request.options import check_bool, check_path
from be_toolchain.machine.forks import ThreadLock

if TYPE_CHECKING:
    from be_runtime.call.function import KernelFunction

PLATFORMS = ("cpu", "cuda")
_METADATA = "__tvm_ffi__metadata_"
_ABI = "0.1"
"""Major and minor version of the ABI; a newer patch only adds functions."""

_CALL_OFFSET = 24
"""Place of the function's address in a function object, after ``TVMFFIObject``."""


@frames.public
def load_tvm_ffi(
    library: StrPath,
    functions: Mapping[str, str | Sequence[str]],
    *,
    platform: str = "cpu",
    owned: bool = False,
    name: str | None = None,
    **options: Any,
) -> CompiledModule:
    """Load functions of a shared library with the TVM-FFI C ABI as a module of JAX functions.

    CuTe DSL, FlashInfer, TileLang and ``tvm_ffi.cpp.build`` export such libraries. The module holds a copy of the
    library, and calls it without Python. The page :doc:`/other-compilers` has examples.

    Parameters
    ----------
    library : str or Path
        Shared library with symbols ``__tvm_ffi_<name>``.
    functions : dict of str to str
        Declaration of each function: one token for each of its parameters, in its own order. Besides the tokens of an
        arg_spec there are constants (``=3``, ``=0.5``, ``=true``, ``='text'``, and ``=n`` for the extent of an axis),
        ``none``, ``stream`` (the CUDA stream as a pointer; ``stream:int64`` as a number), and, at the end,
        ``returned[n]:float32`` for each array that the function returns. If the library states types, attributes need
        none.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the functions' arrays. A module for CUDA is compiled by nvcc.
    owned : bool, default False
        The functions take ``tvm::ffi::Tensor`` objects, which may not be kept after the call. Libraries that state
        their types do not need this argument.
    name : str, optional
        Name of the module. The default is the library's name without ``lib`` and its suffix.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on the platform.

    Returns
    -------
    CompiledModule

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    SourceNotFoundError
        There is no such file.
    ArgumentError
        The file is not a shared library, or has no such function.
    SpecError
        A declaration is wrong, or differs from the library's own.
    RegistrationError
        The process has loaded another library under the module's name, or the same one before it was built again.

    Examples
    --------
    >>> ops = be_runtime.load_tvm_ffi("libadd.so", {"add": "arg[n]:float32 arg[n] ret[n]"})  # doctest: +SKIP
    >>> ops.add(x, y)  # doctest: +SKIP
    """
    if not isinstance(library, str | Path):
        raise errors.ArgumentError(
            f"library must be a path, not {library!r}",
            hints=("pass the path that tvm_ffi.cpp.build or build_inline returns",),
        )
    path = check_path(library, "library")
    source, data = library_source(path, functions, platform=platform, owned=owned)
    module = default_name(path.with_suffix("").name.removeprefix("lib"), name, "library")
    try:
        return load_source(module, source, platform, options, [(path.name, data)])
    except errors.RegistrationError as error:
        error.hints = ("this process has another library by that name: pass name='...' or target_prefix='...'",)
        raise


def library_source(
    path: Path, functions: object, *, platform: object = "cpu", owned: object = False
) -> tuple[str, bytes]:
    """Write the C++ of a module that calls functions of a library, and return it and the library, as `load_tvm_ffi`."""
    _check_platform(platform)
    check_bool(owned, "owned")
    if not isinstance(functions, Mapping) or not functions:
        raise errors.ArgumentError(f"functions must be a dict of names and declarations, not {functions!r}")
    if not path.is_file():
        raise errors.SourceNotFoundError(f"{path} is not a file")
    data = path.read_bytes()
    if not data.startswith(b"\x7fELF"):
        raise errors.ArgumentError(f"{path} is not a shared library")
    if b"\0__tvm_ffi__library_bin\0" in data:
        raise errors.ArgumentError(
            f"{path} holds a module that only its compiler's run-time library can load, as TileLang's exports do",
            hints=("import the compiler, and pass tvm_ffi.load_module(path).get_function(name) to tvm_ffi_function",),
        )
    # The assembler gets the name as a text.
    if re.search(r"[\"\\\x00-\x1f]", path.name):
        raise errors.ArgumentError(f"the name {path.name!r} has a quote, a backslash or a control character")
    read = [read_function(each, declaration, owned=bool(owned)) for each, declaration in functions.items()]
    exported = sorted({match.decode() for match in re.findall(rb"\0__tvm_ffi_(?!_)(\w+)(?=\0)", data)})
    for function in read:
        if function.name not in exported:
            raise errors.ArgumentError(
                f"{path} has no TVM-FFI function {function.name!r}",
                hints=(f"it has {', '.join(exported) or 'none'}",),
            )
    import_tvm_ffi("load_tvm_ffi")
    typed = [with_metadata(function, _metadata(path, data, function.name)) for function in read]
    return render(typed, str(platform), path.name), data


@frames.public
def tvm_ffi_function(
    function: Any,
    signature: str | Sequence[str],
    *,
    platform: str = "cpu",
    owned: bool = False,
    name: str | None = None,
    **options: Any,
) -> KernelFunction[..., Any]:
    """Make a function of JAX arrays from a TVM-FFI function object of this process.

    TileLang's compiled kernels and the functions of ``tvm_ffi.load_module`` are such objects. The function works only
    in this process, so it can't be exported. The page :doc:`/other-compilers` has an example.

    Parameters
    ----------
    function : tvm_ffi.Function
        Function object, which is kept until the process ends.
    signature : str or sequence of str
        One token for each parameter, as `load_tvm_ffi` describes them.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the function's arrays.
    owned : bool, default False
        The function takes ``tvm::ffi::Tensor`` objects, which may not be kept after the call.
    name : str, default "tvm_ffi_function"
        Name in messages.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on the platform.

    Returns
    -------
    KernelFunction

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    TypeError
        The object is not a TVM-FFI function.
    SpecError
        The declaration is wrong.

    Examples
    --------
    >>> add = be_runtime.tvm_ffi_function(compiled, "arg[n]:float32 arg[n] ret[n]")  # doctest: +SKIP
    """
    tvm_ffi = import_tvm_ffi("tvm_ffi_function")
    _check_platform(platform)
    if not isinstance(function, tvm_ffi.Function):
        raise TypeError(f"function must be a tvm_ffi.Function, not {function!r}")
    label = "tvm_ffi_function" if name is None else name
    source = render([read_function(label, signature, owned=check_bool(owned, "owned"))], platform, None)
    bound = process.PROCESS.only(_Bound, _Bound)
    # Each function needs a module of its own, whose text is the same in every process.
    source += f"// {bound.number(source, function)}\n"
    module = load_source(label, source, platform, {"auto_register": False, **options})
    handle = function.__chandle__()
    address = ctypes.c_void_p.from_address(handle + _CALL_OFFSET).value
    bind = ctypes.CDLL(str(module.__info__.path)).be_tvm_ffi_bind
    bind.argtypes, bind.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    bind(address, handle)
    module.__info__.can_move = False
    return module[label]


class _Bound:
    """The function objects of a process by the text of their modules."""

    def __init__(self) -> None:
        self._lock = ThreadLock()
        self._functions: dict[str, list[object]] = {}

    def number(self, source: str, function: object) -> int:
        """Return the number of a function among those with the same declaration, and keep it alive."""
        with self._lock:
            known = self._functions.setdefault(source, [])
            for index, each in enumerate(known):
                if each is function:
                    return index
            known.append(function)
            return len(known) - 1


def load_source(
    name: str, source: str, platform: str, options: Mapping[str, Any], files: Sequence[tuple[str, bytes]] = ()
) -> CompiledModule:
    """Load the C++ of `render` as a module, compiled with the options of `load_tvm_ffi`, with its library."""
    units = inline_units(name, source, "library")
    more = {**options, "extra_ldflags": [*(options.get("extra_ldflags") or ()), "-ldl"]}
    request = (cuda_request if platform == "cuda" else cpp_request)(name, units, None, **more)
    return process.PROCESS.load(request._replace(files=tuple(files)), load_options(name, **more))


def _check_platform(platform: object) -> None:
    if platform not in PLATFORMS:
        raise errors.ArgumentError(f"platform must be 'cpu' or 'cuda', not {platform!r}")


def _metadata(path: Path, data: bytes, name: str) -> str | None:
    """Return the types that a library states for a function; None if it states none."""
    symbol = _METADATA + name
    if f"\0{symbol}\0".encode() not in data:
        return None
    import tvm_ffi

    found = tvm_ffi.load_module(str(path)).get_function_metadata(name)
    return None if found is None else json.dumps(found)


def import_tvm_ffi(function: str) -> Any:
    """Import TVM-FFI, which loads its library into the process.

    Raises
    ------
    ImportError
        It is not installed, or has another ABI.
    """
    hint = "hint: pip install 'brainevent-toolchain[tvm-ffi]'"
    try:
        import tvm_ffi
    except ImportError as error:
        raise ImportError(f"{function} needs TVM-FFI, which can't be imported: {error}\n{hint}") from error
    version = str(tvm_ffi.__version__)
    if version.split(".")[:2] != _ABI.split("."):
        raise ImportError(f"{function} needs TVM-FFI {_ABI}, and {version} is installed\n{hint}")
    return tvm_ffi
