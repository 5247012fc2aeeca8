"""The functions that load C++ and CUDA as one operation for CPU and GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from be_runtime import errors, frames
from be_runtime.load import process
from be_runtime.load.platforms import PlatformModule, are_swapped, declared_functions, has_archs
from be_runtime.request.arguments import (
    CppOptions,
    CudaOptions,
    Functions,
    PlatformOptions,
    Reread,
    StrPath,
    cpp_request,
    cuda_request,
    dir_again,
    dir_units,
    file_again,
    file_units,
    inline_units,
    load_options,
    same_again,
)
from be_runtime.request.options import Unit


@frames.public
def load_inline(
    name: str,
    *,
    cpp: str | Sequence[str],
    cuda: str | Sequence[str],
    functions: Functions = None,
    **options: Unpack[PlatformOptions],
) -> PlatformModule:
    """Compile C++ and CUDA source texts into operations for CPU and GPU.

    A C++ function and a CUDA function of the same name become one operation. A program for the CPU calls the C++
    function, and a program for the GPU calls the CUDA function. The two functions must declare the same arrays,
    attributes and axes; only the stream may differ. If a function has a ``// @BE`` comment only in the source of one
    platform, the function works only on this platform. A derivative rule, which you pass to ``defvjp``, applies to both
    functions.

    On a machine without a GPU, the CUDA source is compiled only if you name an architecture, for example by
    `compute_capability`. The declarations in the CUDA source are always checked.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries.
    cpp : str or list of str
        C++17 source text. Several texts are joined in order and compiled as one text.
    cuda : str or list of str
        CUDA C++17 source text. Several texts are joined in order and compiled as one text.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. If the argument is None, the functions that ``// @BE`` comments declare become
        entry points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. A dict
        maps names to the arg_spec tokens of both functions. If ``stream`` is one of the tokens, the C++ function must
        also have a parameter ``int64_t stream``, whose value is 0.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. By default, the
        architectures come from the first of these places that names an architecture: `extra_cuda_cflags`,
        `set_compute_capabilities`, the variable ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine. If no place
        names an architecture, the CUDA source is not compiled.
    force_rebuild : bool, default False
        Compile even if the cache contains a valid entry.
    auto_register : bool, default True
        Register a target for each function, for ``jax.ffi.ffi_call``. Methods such as ``ops.twice(x)`` don't need these
        targets. If False, you can register the handler that `ModuleInfo.get_handler` returns.
    target_prefix : str, optional
        First part of the targets' names, which have the form ``<target_prefix>.<function>``. The default is the
        module's name.
    ninja_workers : int, optional
        Maximum number of compiler processes at once. The default is the number of processors, or fewer if memory is
        short. ``BE_MAX_JOBS`` is an upper limit for the argument and for the default.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``, for faster but less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let XLA record calls in CUDA graphs, which replay launches, copies and fills without running host code again.
        Pass False if host code must run at every call, because the code waits for the GPU, allocates device memory, or
        reads values that determine the launches.
    active : {"nonzero", "positive"}, optional
        For sources that use the macros ``IS_ACTIVE_*`` of ``cuda_common.h``: the floating-point values that count as
        active. ``"nonzero"`` means all values except 0, including negative values and NaN. ``"positive"`` means values
        above 0. The default is the value of ``BE_ACTIVE``, or ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` runs such work on the stream of the call.
        ``"cuda"`` leaves such work on CUDA's default stream, which XLA does not wait for; a `StreamWarning` lists the
        source lines that start the work.
    replace : bool, default False
        Ignored: XLA keeps the first code that is registered under a name. The argument exists for :doc:`programs
        written for brainevent </from-brainevent>`.
    native : bool, default False
        Compile host code for this machine's CPU only (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The instructions stay the same.
    debug : bool, str or sequence of str, default False
        Check each call of the module's functions. True turns on all checks; `be_runtime.debug` lists the names of the
        checks.

    Returns
    -------
    PlatformModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SpecError
        An arg_spec or a C++ signature is invalid, one of the sources does not define a function that the argument
        `functions` names, or the two sources declare a function differently.
    ToolchainError
        A compiler is missing, an architecture does not exist, or nvcc can't compile for the architecture.
    BuildError
        The source does not compile or link. If the build takes longer than ``BE_COMPILE_TIMEOUT_S``, the error is a
        `BuildTimeoutError`.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with different code.

    See Also
    --------
    - `load_file`: compile files.
    - `load_cpp_inline`: compile only C++.
    - `load_cuda_inline`: compile only CUDA.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to define a kernel for each platform.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_inline(
    ...     "doc_both",
    ...     cpp='''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[... n]:float32 ret[... n]:float32
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''',
    ...     cuda='''
    ... #include "brainevent/common.h"
    ... __global__ void double_all(const float* x, float* y, int64_t n) {
    ...   int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    ...   if (i < n) y[i] = 2 * x[i];
    ... }
    ... // @BE twice arg[... n]:float32 ret[... n]:float32 stream
    ... void twice(const BE::Tensor x, BE::Tensor y, cudaStream_t stream) {
    ...   const int64_t n = x.numel();
    ...   if (n == 0) return;
    ...   double_all<<<(n + 255) / 256, 256, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
    ...   BE_CHECK_KERNEL_LAUNCH();
    ... }''',
    ... )
    >>> jax.jit(ops.twice)(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
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
    """Compile C++ files and CUDA files into operations for CPU and GPU.

    A C++ function and a CUDA function of the same name become one operation. A program for the CPU calls the C++
    function, and a program for the GPU calls the CUDA function. The two functions must declare the same arrays,
    attributes and axes; only the stream may differ. If a function has a ``// @BE`` comment only in the source of one
    platform, the function works only on this platform. A derivative rule, which you pass to ``defvjp``, applies to both
    functions.

    On a machine without a GPU, the CUDA source is compiled only if you name an architecture, for example by
    `compute_capability`. The declarations in the CUDA source are always checked.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries.
    cpp : str or Path, or list of them
        C++17 files. Several files are compiled in parallel.
    cuda : str or Path, or list of them
        CUDA C++17 files. Several files are compiled in parallel.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. If the argument is None, the functions that ``// @BE`` comments declare become
        entry points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. A dict
        maps names to the arg_spec tokens of both functions. If ``stream`` is one of the tokens, the C++ function must
        also have a parameter ``int64_t stream``, whose value is 0.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. By default, the
        architectures come from the first of these places that names an architecture: `extra_cuda_cflags`,
        `set_compute_capabilities`, the variable ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine. If no place
        names an architecture, the CUDA source is not compiled.
    force_rebuild : bool, default False
        Compile even if the cache contains a valid entry.
    auto_register : bool, default True
        Register a target for each function, for ``jax.ffi.ffi_call``. Methods such as ``ops.twice(x)`` don't need these
        targets. If False, you can register the handler that `ModuleInfo.get_handler` returns.
    target_prefix : str, optional
        First part of the targets' names, which have the form ``<target_prefix>.<function>``. The default is the
        module's name.
    ninja_workers : int, optional
        Maximum number of compiler processes at once. The default is the number of processors, or fewer if memory is
        short. ``BE_MAX_JOBS`` is an upper limit for the argument and for the default.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``, for faster but less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let XLA record calls in CUDA graphs, which replay launches, copies and fills without running host code again.
        Pass False if host code must run at every call, because the code waits for the GPU, allocates device memory, or
        reads values that determine the launches.
    active : {"nonzero", "positive"}, optional
        For sources that use the macros ``IS_ACTIVE_*`` of ``cuda_common.h``: the floating-point values that count as
        active. ``"nonzero"`` means all values except 0, including negative values and NaN. ``"positive"`` means values
        above 0. The default is the value of ``BE_ACTIVE``, or ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` runs such work on the stream of the call.
        ``"cuda"`` leaves such work on CUDA's default stream, which XLA does not wait for; a `StreamWarning` lists the
        source lines that start the work.
    replace : bool, default False
        Ignored: XLA keeps the first code that is registered under a name. The argument exists for :doc:`programs
        written for brainevent </from-brainevent>`.
    native : bool, default False
        Compile host code for this machine's CPU only (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The instructions stay the same.
    debug : bool, str or sequence of str, default False
        Check each call of the module's functions. True turns on all checks; `be_runtime.debug` lists the names of the
        checks.

    Returns
    -------
    PlatformModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        A file does not exist or can't be read.
    SpecError
        An arg_spec or a C++ signature is invalid, one of the sources does not define a function that the argument
        `functions` names, or the two sources declare a function differently.
    ToolchainError
        A compiler is missing, an architecture does not exist, or nvcc can't compile for the architecture.
    BuildError
        The source does not compile or link. If the build takes longer than ``BE_COMPILE_TIMEOUT_S``, the error is a
        `BuildTimeoutError`.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with different code.

    See Also
    --------
    - `load_inline`: compile source texts; the example there is a complete program.
    - `load_dir`: compile the files of folders.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to define a kernel for each platform.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_file("ops", cpp="scale.cc", cuda="scale.cu")  # doctest: +SKIP
    >>> jax.jit(ops.scale)(jnp.arange(3.0))  # doctest: +SKIP
    """
    errors.refuse_unknown(options, PlatformOptions, "load_file")
    return _load_both(name, file_units(cpp), file_units(cuda), functions, file_again, options)


@frames.public
def load_dir(
    name: str, *, cpp: StrPath, cuda: StrPath, functions: Functions = None, **options: Unpack[PlatformOptions]
) -> PlatformModule:
    """Compile the C++ files of one folder, and the CUDA files of the same or a second folder, into operations.

    A C++ function and a CUDA function of the same name become one operation. A program for the CPU calls the C++
    function, and a program for the GPU calls the CUDA function. The two functions must declare the same arrays,
    attributes and axes; only the stream may differ. If a function has a ``// @BE`` comment only in the source of one
    platform, the function works only on this platform. A derivative rule, which you pass to ``defvjp``, applies to both
    functions.

    On a machine without a GPU, the CUDA source is compiled only if you name an architecture, for example by
    `compute_capability`. The declarations in the CUDA source are always checked.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries.
    cpp : str or Path
        Folder whose ``*.cc``, ``*.cpp`` and ``*.cxx`` files are the C++ sources. Subfolders are not searched.
    cuda : str or Path
        Folder whose ``*.cu`` files are the CUDA sources. `cpp` and `cuda` may name the same folder.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. If the argument is None, the functions that ``// @BE`` comments declare become
        entry points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. A dict
        maps names to the arg_spec tokens of both functions. If ``stream`` is one of the tokens, the C++ function must
        also have a parameter ``int64_t stream``, whose value is 0.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. By default, the
        architectures come from the first of these places that names an architecture: `extra_cuda_cflags`,
        `set_compute_capabilities`, the variable ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine. If no place
        names an architecture, the CUDA source is not compiled.
    force_rebuild : bool, default False
        Compile even if the cache contains a valid entry.
    auto_register : bool, default True
        Register a target for each function, for ``jax.ffi.ffi_call``. Methods such as ``ops.twice(x)`` don't need these
        targets. If False, you can register the handler that `ModuleInfo.get_handler` returns.
    target_prefix : str, optional
        First part of the targets' names, which have the form ``<target_prefix>.<function>``. The default is the
        module's name.
    ninja_workers : int, optional
        Maximum number of compiler processes at once. The default is the number of processors, or fewer if memory is
        short. ``BE_MAX_JOBS`` is an upper limit for the argument and for the default.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``, for faster but less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let XLA record calls in CUDA graphs, which replay launches, copies and fills without running host code again.
        Pass False if host code must run at every call, because the code waits for the GPU, allocates device memory, or
        reads values that determine the launches.
    active : {"nonzero", "positive"}, optional
        For sources that use the macros ``IS_ACTIVE_*`` of ``cuda_common.h``: the floating-point values that count as
        active. ``"nonzero"`` means all values except 0, including negative values and NaN. ``"positive"`` means values
        above 0. The default is the value of ``BE_ACTIVE``, or ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` runs such work on the stream of the call.
        ``"cuda"`` leaves such work on CUDA's default stream, which XLA does not wait for; a `StreamWarning` lists the
        source lines that start the work.
    replace : bool, default False
        Ignored: XLA keeps the first code that is registered under a name. The argument exists for :doc:`programs
        written for brainevent </from-brainevent>`.
    native : bool, default False
        Compile host code for this machine's CPU only (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The instructions stay the same.
    debug : bool, str or sequence of str, default False
        Check each call of the module's functions. True turns on all checks; `be_runtime.debug` lists the names of the
        checks.

    Returns
    -------
    PlatformModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        A folder does not exist or contains no sources, or a source can't be read.
    SpecError
        An arg_spec or a C++ signature is invalid, one of the sources does not define a function that the argument
        `functions` names, or the two sources declare a function differently.
    ToolchainError
        A compiler is missing, an architecture does not exist, or nvcc can't compile for the architecture.
    BuildError
        The source does not compile or link. If the build takes longer than ``BE_COMPILE_TIMEOUT_S``, the error is a
        `BuildTimeoutError`.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with different code.

    See Also
    --------
    - `load_inline`: compile source texts; the example there is a complete program.
    - `load_file`: compile chosen files.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to define a kernel for each platform.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_dir("ops", cpp="kernels", cuda="kernels")  # doctest: +SKIP
    >>> jax.jit(ops.scale)(jnp.arange(3.0))  # doctest: +SKIP
    """
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
    languages = CppOptions.__annotations__, CudaOptions.__annotations__
    cpp, cuda = ({key: options[key] for key in options if key in known} for known in languages)
    request = cuda_request(name, cuda_units, functions, **cuda)
    try:
        made = cpp_request(name, cpp_units, functions, **cpp)
        parts = {"cpp": process.PROCESS.load(made, load_options(name, **cpp), reread)}
    except errors.BeRuntimeError as error:
        if are_swapped(cpp_units, cuda_units):
            error.hints = ("cpp has CUDA code and cuda has none: are the two sources swapped?", *error.hints)
        raise
    if has_archs(request, process.PROCESS.session()):
        parts["cuda"] = process.PROCESS.load(request, load_options(name, **cuda), reread)
        return PlatformModule(name, parts)
    return PlatformModule(name, parts, declared_functions(request))
