"""Functions of the TVM-FFI C ABI as functions of JAX arrays: generated C++ calls them, and is loaded as a module.

The generated module contains the library's bytes, so the cache, packages, exported programs and checked mode treat it
like other modules. ``tvm/ffi/c_api.h`` defines the ABI, see ``include/brainevent/detail/tvm_ffi.h``.
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
"""Major and minor version of the ABI. A newer patch release only adds functions."""

_CALL_OFFSET = 24
"""Offset of the function's address in a function object, after ``TVMFFIObject``."""


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
    """Load a shared library with the TVM-FFI C ABI as a module of JAX functions.

    CuTe DSL, FlashInfer and ``tvm_ffi.cpp.build`` write such libraries. The module contains a copy of the library, and
    calls the copy without Python.

    Parameters
    ----------
    library : str or Path
        Shared library with symbols ``__tvm_ffi_<name>``.
    functions : dict of str to str
        Tokens of each function: one token for each parameter, in the function's order. The tokens of an arg_spec are
        allowed. Other tokens pass values: ``=3``, ``=0.5``, ``=true`` and ``='text'`` pass constants, ``=n`` passes the
        extent of the axis ``n``, ``none`` passes None, ``stream`` passes the CUDA stream as a pointer, and
        ``stream:int64`` passes the stream as a number. At the end, ``returned[n]:float32`` declares an array that the
        function returns. If the library states the types of its parameters, attributes need no types.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the functions' arrays. ``"cuda"`` requires nvcc.
    owned : bool, default False
        Pass ``tvm::ffi::Tensor`` objects, which some functions require. The function must not keep these objects after
        the call. If the library states the types of its parameters, leave out this argument.
    name : str, optional
        Name of the module. The default is the file's name without ``lib`` and the extension.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on `platform`.

    Returns
    -------
    CompiledModule
        Module whose functions are methods, such as ``ops.add(x, y)``.

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    SourceNotFoundError
        The file does not exist.
    ArgumentError
        The file is not a shared library, or does not define one of the functions.
    SpecError
        The tokens are invalid, or differ from the types that the library states.
    RegistrationError
        This process has loaded a module of the same name from a library with other content.

    See Also
    --------
    - `tvm_ffi_function`: call a function object.
    - :doc:`/other-compilers`: libraries from CuTe DSL, FlashInfer and TileLang.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_tvm_ffi("libadd.so", {"add": "arg[n]:float32 arg[n] ret[n]"})  # doctest: +SKIP
    >>> ops.add(jnp.ones(4), jnp.ones(4)).tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0, 2.0]
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
    # The assembler reads the name as a string.
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
    """Make a TVM-FFI function object callable from JAX.

    For example, a module from ``tvm_ffi.load_module`` contains such objects. The returned function works only in this
    process. Therefore `export` can't export the function.

    Parameters
    ----------
    function : tvm_ffi.Function
        Function object, which is kept until the process ends.
    signature : str or sequence of str
        One token for each parameter, in the function's order. The argument `functions` of `load_tvm_ffi` describes the
        tokens.
    platform : {"cpu", "cuda"}, default "cpu"
        Platform of the function's arrays.
    owned : bool, default False
        Pass ``tvm::ffi::Tensor`` objects, which some functions require. The function must not keep these objects after
        the call.
    name : str, default "tvm_ffi_function"
        Name in messages.
    **options
        Keyword arguments of `load_cpp_inline` or `load_cuda_inline`, depending on `platform`.

    Returns
    -------
    KernelFunction
        Function that takes the inputs by position and the attributes by name.

    Raises
    ------
    ImportError
        ``tvm_ffi`` is not installed.
    TypeError
        `function` is not a ``tvm_ffi.Function``.
    SpecError
        The tokens are invalid.

    See Also
    --------
    - `load_tvm_ffi`: load the functions of a library, which can be exported.
    - :doc:`/other-compilers`: functions from TileLang and TVM-FFI.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> import tvm_ffi  # doctest: +SKIP
    >>> compiled = tvm_ffi.load_module("libadd.so").get_function("add")  # doctest: +SKIP
    >>> add = be_runtime.tvm_ffi_function(compiled, "arg[n]:float32 arg[n] ret[n]")  # doctest: +SKIP
    >>> add(jnp.ones(4), jnp.ones(4)).tolist()  # doctest: +SKIP
    [2.0, 2.0, 2.0, 2.0]
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
        TVM-FFI is not installed, or has a different ABI.
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
