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
    """Compile C++ and CUDA source texts, whose functions of the same name are one operation for CPU and GPU.

    A call is lowered for the platform of its program. Both sources declare the same arrays, attributes and axes; a CUDA
    function may also take a stream. Rules such as ``defvjp`` are given once. On a machine without a GPU, the CUDA
    source is compiled only if architectures are named, as with `compute_capability`; its declarations are compared in
    any case.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries. Its targets are called ``<name>.<function>``.
    cpp, cuda : str or list of str
        Source texts. Several texts of a language are compiled as one, in order.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. With None, they are the functions that a ``// @BE name`` comment declares. A list
        of names reads each arg_spec from the C++ signature. A dict maps names to arg_spec tokens.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=haswell"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder that keeps the module. By default the cache keeps it.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. The default is the first
        of these that names any: `extra_cuda_cflags`, `set_compute_capabilities`, the variable
        ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine.
    force_rebuild : bool, default False
        Compile even if the cache has a valid entry.
    auto_register : bool, default True
        Register the targets. With False, `ModuleInfo.get_handler` returns the handlers.
    target_prefix : str, optional
        First part of the targets' names, in place of the module's name.
    ninja_workers : int, optional
        Number of compilers that run at once. The default is one for each processor, as far as memory allows.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``: faster, less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let JAX record calls into CUDA graphs. Pass False if the host code of an entry point does more than launch
        kernels, for example if it allocates memory. The compiled code stays the same.
    active : {"nonzero", "positive"}, optional
        Floating-point values that ``IS_ACTIVE_*`` of ``cuda_common.h`` treats as events: all but 0, including negative
        values and NaN, or values above 0. The default is the variable ``BE_ACTIVE``, else ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` sends them to the stream of the call, so
        that published code runs unchanged. ``"cuda"`` leaves them on CUDA's default stream, and a `StreamWarning` lists
        them.
    replace : bool, default False
        Accepted for programs written for brainevent. It has no effect, since XLA keeps the first code registered under
        a name.
    native : bool, default False
        Compile host code only for this machine's CPU (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The code stays the same.
    debug : bool, str or sequence of str, default False
        Check every call of the module's functions. True means all checks; `be_runtime.debug` lists their names.

    Returns
    -------
    PlatformModule
        Module whose functions are methods. ``parts["cpp"]`` and ``parts["cuda"]`` are the modules of the two languages.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SpecError
        An arg_spec or a C++ signature can't be understood, a named function is not in the source, or the two sources
        declare a function differently.
    ToolchainError
        A compiler is missing, or can't compile for an architecture.
    BuildError
        The source does not compile or link, or takes longer than ``BE_COMPILE_TIMEOUT_S``.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with other content.

    See Also
    --------
    - `load_file`: compile files.
    - `load_cpp_inline`: compile only C++.
    - `load_cuda_inline`: compile only CUDA.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to have a kernel for each platform.

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
    """Compile C++ files and CUDA files, whose functions of the same name are one operation for CPU and GPU.

    A call is lowered for the platform of its program. Both sources declare the same arrays, attributes and axes; a CUDA
    function may also take a stream. Rules such as ``defvjp`` are given once. On a machine without a GPU, the CUDA
    source is compiled only if architectures are named, as with `compute_capability`; its declarations are compared in
    any case.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries. Its targets are called ``<name>.<function>``.
    cpp, cuda : str or Path, or list of them
        Files of each language. Several files of a language are compiled separately, in parallel.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. With None, they are the functions that a ``// @BE name`` comment declares. A list
        of names reads each arg_spec from the C++ signature. A dict maps names to arg_spec tokens.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=haswell"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder that keeps the module. By default the cache keeps it.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. The default is the first
        of these that names any: `extra_cuda_cflags`, `set_compute_capabilities`, the variable
        ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine.
    force_rebuild : bool, default False
        Compile even if the cache has a valid entry.
    auto_register : bool, default True
        Register the targets. With False, `ModuleInfo.get_handler` returns the handlers.
    target_prefix : str, optional
        First part of the targets' names, in place of the module's name.
    ninja_workers : int, optional
        Number of compilers that run at once. The default is one for each processor, as far as memory allows.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``: faster, less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let JAX record calls into CUDA graphs. Pass False if the host code of an entry point does more than launch
        kernels, for example if it allocates memory. The compiled code stays the same.
    active : {"nonzero", "positive"}, optional
        Floating-point values that ``IS_ACTIVE_*`` of ``cuda_common.h`` treats as events: all but 0, including negative
        values and NaN, or values above 0. The default is the variable ``BE_ACTIVE``, else ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` sends them to the stream of the call, so
        that published code runs unchanged. ``"cuda"`` leaves them on CUDA's default stream, and a `StreamWarning` lists
        them.
    replace : bool, default False
        Accepted for programs written for brainevent. It has no effect, since XLA keeps the first code registered under
        a name.
    native : bool, default False
        Compile host code only for this machine's CPU (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The code stays the same.
    debug : bool, str or sequence of str, default False
        Check every call of the module's functions. True means all checks; `be_runtime.debug` lists their names.

    Returns
    -------
    PlatformModule
        Module whose functions are methods. ``parts["cpp"]`` and ``parts["cuda"]`` are the modules of the two languages.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        There is no such file, or it can't be read.
    SpecError
        An arg_spec or a C++ signature can't be understood, a named function is not in the source, or the two sources
        declare a function differently.
    ToolchainError
        A compiler is missing, or can't compile for an architecture.
    BuildError
        The source does not compile or link, or takes longer than ``BE_COMPILE_TIMEOUT_S``.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with other content.

    See Also
    --------
    - `load_inline`: compile source texts; its example is a complete program.
    - `load_dir`: compile the files of folders.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to have a kernel for each platform.

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
    """Compile the C++ and CUDA files of folders, whose functions of the same name are one operation for CPU and GPU.

    A call is lowered for the platform of its program. Both sources declare the same arrays, attributes and axes; a CUDA
    function may also take a stream. Rules such as ``defvjp`` are given once. On a machine without a GPU, the CUDA
    source is compiled only if architectures are named, as with `compute_capability`; its declarations are compared in
    any case.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entries. Its targets are called ``<name>.<function>``.
    cpp, cuda : str or Path
        Folder whose ``*.cc``, ``*.cpp`` and ``*.cxx`` files are the C++ sources, and folder whose ``*.cu`` files are
        the CUDA sources; both may be the same. Folders below them are not read.
    functions : dict of str to list of str, list of str, or None
        Entry points of both sources. With None, they are the functions that a ``// @BE name`` comment declares. A list
        of names reads each arg_spec from the C++ signature. A dict maps names to arg_spec tokens.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=haswell"]``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker of both modules, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder that keeps the module. By default the cache keeps it.
    verbose : bool, default False
        Print the commands and their output to standard error.
    compute_capability : str or list of str, optional
        GPU architectures, such as ``"sm_86"``, ``"8.6"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. The default is the first
        of these that names any: `extra_cuda_cflags`, `set_compute_capabilities`, the variable
        ``BE_COMPUTE_CAPABILITIES``, the GPUs of this machine.
    force_rebuild : bool, default False
        Compile even if the cache has a valid entry.
    auto_register : bool, default True
        Register the targets. With False, `ModuleInfo.get_handler` returns the handlers.
    target_prefix : str, optional
        First part of the targets' names, in place of the module's name.
    ninja_workers : int, optional
        Number of compilers that run at once. The default is one for each processor, as far as memory allows.
    optimization_level : {0, 1, 2, 3}, default 3
        Level of ``-O`` for all code.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` and ``--use_fast_math``: faster, less exact floating-point arithmetic.
    allow_cuda_graph : bool, default True
        Let JAX record calls into CUDA graphs. Pass False if the host code of an entry point does more than launch
        kernels, for example if it allocates memory. The compiled code stays the same.
    active : {"nonzero", "positive"}, optional
        Floating-point values that ``IS_ACTIVE_*`` of ``cuda_common.h`` treats as events: all but 0, including negative
        values and NaN, or values above 0. The default is the variable ``BE_ACTIVE``, else ``"nonzero"``.
    default_stream : {"cuda", "xla"}, default "cuda"
        Stream for launches, copies and fills that name no stream. ``"xla"`` sends them to the stream of the call, so
        that published code runs unchanged. ``"cuda"`` leaves them on CUDA's default stream, and a `StreamWarning` lists
        them.
    replace : bool, default False
        Accepted for programs written for brainevent. It has no effect, since XLA keeps the first code registered under
        a name.
    native : bool, default False
        Compile host code only for this machine's CPU (``-march=native``). Such a module can't be exported.
    line_info : bool, default False
        Record source lines for debuggers and profilers. The code stays the same.
    debug : bool, str or sequence of str, default False
        Check every call of the module's functions. True means all checks; `be_runtime.debug` lists their names.

    Returns
    -------
    PlatformModule
        Module whose functions are methods. ``parts["cpp"]`` and ``parts["cuda"]`` are the modules of the two languages.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        There is no such folder, it has no sources, or one can't be read.
    SpecError
        An arg_spec or a C++ signature can't be understood, a named function is not in the source, or the two sources
        declare a function differently.
    ToolchainError
        A compiler is missing, or can't compile for an architecture.
    BuildError
        The source does not compile or link, or takes longer than ``BE_COMPILE_TIMEOUT_S``.
    CacheError
        The cache folder can't be used.
    LoadError
        The compiled library can't be opened, for example because a symbol is undefined.
    RegistrationError
        A target of the same name is registered with other content.

    See Also
    --------
    - `load_inline`: compile source texts; its example is a complete program.
    - `load_file`: compile chosen files.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/custom-kernels`: other ways to have a kernel for each platform.

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
