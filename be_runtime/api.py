"""The load functions, which compile sources and register the entry points of the module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from be_runtime import errors, frames
from be_runtime.load import process
from be_runtime.load.module import CompiledModule
from be_runtime.request.arguments import (
    CppOptions,
    CudaOptions,
    Functions,
    PlatformOptions,
    Reread,
    StrPath,
    cpp_request,
    cuda_request,
    default_name,
    dir_again,
    dir_units,
    file_again,
    file_units,
    inline_units,
    load_options,
    same_again,
)
from be_runtime.request.options import Language, Unit

if TYPE_CHECKING:
    from be_runtime.load.platforms import PlatformModule


@frames.public
def load_cuda_inline(
    name: str,
    cuda_sources: str | Sequence[str],
    functions: Functions = None,
    *,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
    build_directory: StrPath | None = None,
    verbose: bool = False,
    compute_capability: str | Sequence[str] | None = None,
    force_rebuild: bool = False,
    auto_register: bool = True,
    target_prefix: str | None = None,
    ninja_workers: int | None = None,
    optimization_level: int = 3,
    use_fast_math: bool = False,
    allow_cuda_graph: bool = True,
    active: str | None = None,
    default_stream: str = "cuda",
    replace: bool = False,
    native: bool = False,
    line_info: bool = False,
    debug: bool | str | Sequence[str] = False,
) -> CompiledModule:
    """Compile CUDA source text and register its entry points as JAX FFI targets.

    Parameters
    ----------
    name : str
        Names the module, its cache entry and, unless `target_prefix` is given, its targets ``<name>.<function>``.
    cuda_sources : str or list of str
        CUDA C++; several texts are compiled as one, in order.
    functions : dict, list of str or None
        A mapping of function name to arg_spec tokens, such as ``{"vector_add": ["arg", "arg", "ret", "stream"]}``; a
        list of names, whose arg_spec is read from their C++ signature, empty for a module without any; or None for the
        functions that a ``// @BE name`` comment announces.
    extra_cuda_cflags, extra_ldflags : list of str, optional
        Arguments for nvcc and for the linker; each item stays one argument.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Keep the module here instead of in the cache.
    verbose : bool
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. By default, the first
        of these that names any: `extra_cuda_cflags`, `set_compute_capabilities`, the variable
        ``BE_COMPUTE_CAPABILITIES``, the devices present.
    force_rebuild : bool
        Compile even if the cache holds a valid entry.
    auto_register : bool
        Register the targets. Without it, `CompiledModule.get_handler` returns the handlers.
    target_prefix : str, optional
        First part of the targets' names; by default the module's name.
    ninja_workers : int, optional
        Number of compilers that run at once; by default one for each processor, as memory allows.
    optimization_level : int
        0 to 3, for host and device code.
    use_fast_math : bool
        Pass ``--use_fast_math``: faster, less exact float arithmetic.
    allow_cuda_graph : bool
        Let JAX record calls into CUDA graphs. Pass False for an entry point whose host code does more than launch
        kernels, for example allocates memory. The option changes the registration, not the compiled code.
    active : {"nonzero", "positive"}, optional
        Floating values that ``IS_ACTIVE_*`` of ``cuda_common.h`` takes for events: all but 0, so negative values and
        NaN too, or values above 0. By default the variable ``BE_ACTIVE``, else ``"nonzero"``.
    default_stream : {"cuda", "xla"}
        Stream for launches, copies and fills of this module that name no stream. ``"xla"`` sends them to the stream of
        the call, so that published code runs as it is; by default they stay on CUDA's default stream, and a
        `StreamWarning` lists them.
    replace : bool
        Accepted for programs written for brainevent, and without effect there too: XLA keeps the first code of a name.
    native : bool
        Compile host code for this machine's CPU alone (``-march=native``). Such a module can't be exported.
    line_info : bool
        Record the lines of the source for debuggers and profilers; the code stays the same.
    debug : bool, str or sequence of str
        Always check each call of the module's functions; names of checks as for `be_runtime.debug`.

    Returns
    -------
    CompiledModule

    Raises
    ------
    ArgumentError, SpecError
        Before anything is compiled.
    ToolchainError
        The toolchain is missing a part, or can't compile for the architecture.
    BuildError
        The source does not compile or link.
    RegistrationError
        A target of that name is registered with other content.
    """
    options = {key: value for key, value in locals().items() if key in CudaOptions.__annotations__}
    return _load("cuda", name, inline_units(name, cuda_sources, "cuda_sources"), functions, same_again, options)


@frames.public
def load_cuda_file(
    path: StrPath | Sequence[StrPath],
    functions: Functions = None,
    *,
    name: str | None = None,
    **options: Unpack[CudaOptions],
) -> CompiledModule:
    """Compile a CUDA file, or several, and register its entry points as JAX FFI targets.

    Parameters
    ----------
    path : str or Path, or a list of them
        A ``.cu`` file. Its own folder is searched for the headers that it includes. Several files become one module, as
        those of a folder by `load_cuda_dir`.
    functions : dict, list of str or None
        As for `load_cuda_inline`.
    name : str, optional
        The module's name; by default the first file's name without its ending.
    **options
        The keyword arguments of `load_cuda_inline`.

    Returns
    -------
    CompiledModule

    Raises
    ------
    SourceNotFoundError
        There is no such file. Other errors are as for `load_cuda_inline`.
    """
    errors.refuse_unknown(options, CudaOptions, "load_cuda_file")
    return _load("cuda", default_name(path, name), file_units(path), functions, file_again, options)


@frames.public
def load_cuda_dir(
    directory: StrPath, functions: Functions = None, *, name: str | None = None, **options: Unpack[CudaOptions]
) -> CompiledModule:
    """Compile every CUDA file of a folder into one module.

    The files are compiled separately, several at once. A name that several files define is private to each of them: an
    entry point of such a name is called ``<file>.<function>``, any other ``<function>``. The files can declare and call
    what only one of them defines.

    Parameters
    ----------
    directory : str or Path
        Folder whose ``*.cu`` files are the sources; folders below it are not read.
    functions : dict, list of str or None
        As for `load_cuda_inline`; a name applies to each file that defines it.
    name : str, optional
        The module's name; by default the folder's name.
    **options
        The keyword arguments of `load_cuda_inline`.

    Returns
    -------
    CompiledModule

    Raises
    ------
    SourceNotFoundError
        There is no such folder, or no source in it. Other errors are as for `load_cuda_inline`.
    """
    errors.refuse_unknown(options, CudaOptions, "load_cuda_dir")
    chosen = default_name(directory, name, "directory")
    return _load("cuda", chosen, dir_units(directory, "cuda"), functions, dir_again, options)


@frames.public
def load_cpp_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    functions: Functions = None,
    *,
    extra_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[StrPath] | None = None,
    build_directory: StrPath | None = None,
    verbose: bool = False,
    force_rebuild: bool = False,
    auto_register: bool = True,
    target_prefix: str | None = None,
    ninja_workers: int | None = None,
    optimization_level: int = 3,
    use_fast_math: bool = False,
    replace: bool = False,
    native: bool = False,
    line_info: bool = False,
    debug: bool | str | Sequence[str] = False,
) -> CompiledModule:
    """Compile C++ source text and register its entry points as JAX FFI targets on CPU.

    Parameters
    ----------
    name : str
        Names the module, its cache entry and, unless `target_prefix` is given, its targets ``<name>.<function>``.
    cpp_sources : str or list of str
        C++17; several texts are compiled as one, in order.
    functions : dict, list of str or None
        As for `load_cuda_inline`. A ``stream`` parameter receives 0.
    extra_cflags, extra_ldflags : list of str, optional
        Arguments for the compiler and for the linker; each item stays one argument.
    extra_include_paths, build_directory, verbose, force_rebuild, auto_register, target_prefix, ninja_workers
        As for `load_cuda_inline`.
    optimization_level : int
        0 to 3.
    use_fast_math : bool
        Pass ``-ffast-math``.
    replace, native, line_info, debug
        As for `load_cuda_inline`.

    Returns
    -------
    CompiledModule

    Raises
    ------
    ArgumentError, SpecError
        Before anything is compiled.
    ToolchainError
        There is no C++ compiler.
    BuildError
        The source does not compile or link.
    RegistrationError
        A target of that name is registered with other content.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import be_runtime as brainevent
    >>> module = brainevent.load_cpp_inline(
    ...     "doc_double",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE twice arg ret
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i) y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> x = jnp.arange(3, dtype=jnp.float32)
    >>> jax.jit(jax.ffi.ffi_call("doc_double.twice", jax.ShapeDtypeStruct(x.shape, x.dtype)))(x).tolist()
    [0.0, 2.0, 4.0]
    """
    options = {key: value for key, value in locals().items() if key in CppOptions.__annotations__}
    return _load("cpp", name, inline_units(name, cpp_sources, "cpp_sources"), functions, same_again, options)


@frames.public
def load_cpp_file(
    path: StrPath | Sequence[StrPath],
    functions: Functions = None,
    *,
    name: str | None = None,
    **options: Unpack[CppOptions],
) -> CompiledModule:
    """Compile C++ files and register their entry points on CPU; see `load_cpp_inline` and `load_cuda_file`."""
    errors.refuse_unknown(options, CppOptions, "load_cpp_file")
    return _load("cpp", default_name(path, name), file_units(path), functions, file_again, options)


@frames.public
def load_cpp_dir(
    directory: StrPath, functions: Functions = None, *, name: str | None = None, **options: Unpack[CppOptions]
) -> CompiledModule:
    """Compile every ``.cc``, ``.cpp`` and ``.cxx`` file of a folder; see `load_cpp_inline` and `load_cuda_dir`."""
    errors.refuse_unknown(options, CppOptions, "load_cpp_dir")
    chosen = default_name(directory, name, "directory")
    return _load("cpp", chosen, dir_units(directory, "cpp"), functions, dir_again, options)


@frames.public
def load_inline(
    name: str,
    *,
    cpp: str | Sequence[str],
    cuda: str | Sequence[str],
    functions: Functions = None,
    **options: Unpack[PlatformOptions],
) -> PlatformModule:
    """Compile C++ and CUDA source text whose functions of one name are one operation for CPU and GPU.

    A call is lowered for the platform of its program. Both sources declare the same arrays, attributes and axes; a CUDA
    function may take a stream besides. Rules such as ``defvjp`` are given once. Without a GPU, the CUDA source is
    compiled only if architectures are named, as by `compute_capability`; its declarations are always compared.

    Parameters
    ----------
    name : str
        The module's name.
    cpp, cuda : str or list of str
        The sources.
    functions : dict, list of str or None
        As for `load_cuda_inline`, for both sources.
    **options
        As for `load_cpp_inline` and `load_cuda_inline`; each source gets those that its language has.

    Returns
    -------
    PlatformModule
        Each function is a method; ``parts["cpp"]`` and ``parts["cuda"]`` are the two modules.

    Raises
    ------
    SpecError
        A function is declared differently in the two sources.
    ArgumentError, ToolchainError, BuildError, RegistrationError
        As for `load_cuda_inline`.

    Examples
    --------
    >>> source = '''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[n]:float32 ret[n]:float32 %s
    ... void twice(const BE::Tensor x, BE::Tensor y%s) {}'''
    >>> ops = load_inline(
    ...     "doc_twice",
    ...     cpp=source % ("", ""),
    ...     cuda=source % ("stream", ", cudaStream_t stream"),
    ...     compute_capability="9.0",
    ... )  # doctest: +SKIP
    >>> ops.twice(x)  # doctest: +SKIP
    """
    errors.refuse_unknown(options, PlatformOptions, "load_inline")
    units = inline_units(name, cpp, "cpp"), inline_units(name, cuda, "cuda")
    return _load_both(name, *units, functions, same_again, options)


@frames.public
def load_file(
    name: str,
    *,
    cpp: StrPath | Sequence[StrPath],
    cuda: StrPath | Sequence[StrPath],
    functions: Functions = None,
    **options: Unpack[PlatformOptions],
) -> PlatformModule:
    """Compile C++ files and CUDA files whose functions of one name are one operation; see `load_inline`."""
    errors.refuse_unknown(options, PlatformOptions, "load_file")
    return _load_both(name, file_units(cpp), file_units(cuda), functions, file_again, options)


@frames.public
def load_dir(
    name: str, *, cpp: StrPath, cuda: StrPath, functions: Functions = None, **options: Unpack[PlatformOptions]
) -> PlatformModule:
    """Compile the C++ files of a folder and the CUDA files of a folder, which may be one; see `load_inline`."""
    errors.refuse_unknown(options, PlatformOptions, "load_dir")
    return _load_both(name, dir_units(cpp, "cpp"), dir_units(cuda, "cuda"), functions, dir_again, options)


def _load_both(
    name: str,
    cpp_units: tuple[Unit, ...],
    cuda_units: tuple[Unit, ...],
    functions: Functions,
    reread: Reread,
    options: Mapping[str, Any],
) -> PlatformModule:
    from be_runtime.load.platforms import PlatformModule, are_swapped, declared_functions, has_archs

    languages = CppOptions.__annotations__, CudaOptions.__annotations__
    cpp, cuda = ({key: options[key] for key in options if key in known} for known in languages)
    request = cuda_request(name, cuda_units, functions, **cuda)
    try:
        parts = {"cpp": _load("cpp", name, cpp_units, functions, reread, cpp)}
    except errors.BeRuntimeError as error:
        if are_swapped(cpp_units, cuda_units):
            error.hints = ("cpp has CUDA code and cuda has none: are the two sources swapped?", *error.hints)
        raise
    if has_archs(request, process.PROCESS.session()):
        parts["cuda"] = process.PROCESS.load(request, load_options(name, **cuda), reread)
        return PlatformModule(name, parts)
    return PlatformModule(name, parts, declared_functions(request))


def _load(
    language: Language,
    name: str,
    units: tuple[Unit, ...],
    functions: Functions,
    reread: Reread,
    options: Mapping[str, Any],
) -> CompiledModule:
    make = cuda_request if language == "cuda" else cpp_request
    return process.PROCESS.load(make(name, units, functions, **options), load_options(name, **options), reread)
