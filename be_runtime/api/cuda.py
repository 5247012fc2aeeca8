"""The functions that load CUDA for the GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from be_runtime import errors, frames
from be_runtime.load import process
from be_runtime.load.module import CompiledModule
from be_runtime.request.arguments import (
    CudaOptions,
    Functions,
    Reread,
    StrPath,
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
from be_runtime.request.options import Unit


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
    """Compile CUDA source text, and register the entry points as JAX FFI targets on GPUs.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entry.
    cuda_sources : str or list of str
        CUDA C++17 source text. Several texts are joined in order and compiled as one text.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg", "ret",
        "stream"]}``.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lcublas"]``.
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
        names an architecture, the module is compiled for ``sm_75``, with a warning.
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
        Level of ``-O`` for host and device code.
    use_fast_math : bool, default False
        Pass ``--use_fast_math``, for faster but less exact floating-point arithmetic.
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
    CompiledModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SpecError
        An arg_spec or a C++ signature is invalid, or the source does not define a function that the argument
        `functions` names.
    ToolchainError
        nvcc or the C++ compiler is missing, an architecture does not exist, or nvcc can't compile for an architecture.
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
    - `load_cuda_file`: compile files.
    - `cuda_kernel`: compile a ``__global__`` function for which you write no host function.
    - :doc:`/tutorial-cuda`: a first kernel, step by step.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cuda_inline(
    ...     "doc_twice",
    ...     '''
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
    ... )  # doctest: +SKIP
    >>> jax.jit(ops.twice)(jnp.arange(3.0)).tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0]
    """
    options = {key: value for key, value in locals().items() if key in CudaOptions.__annotations__}
    return _load(name, inline_units(name, cuda_sources, "cuda_sources"), functions, same_again, options)


@frames.public
def load_cuda_file(
    path: StrPath | Sequence[StrPath],
    functions: Functions = None,
    *,
    name: str | None = None,
    **options: Unpack[CudaOptions],
) -> CompiledModule:
    """Compile one or more CUDA files, and register the entry points as JAX FFI targets on GPUs.

    Several files are compiled in parallel and become one module. A file can declare and call host functions of the
    other files. If several files define a function of the same name, each file calls its own definition. If such
    functions are entry points, their names begin with the file's name: ``a.fire`` and ``b.fire``.

    Parameters
    ----------
    path : str or Path, or list of them
        CUDA C++17 files, such as ``"scale.cu"``. The folder of each file is searched for the headers that the file
        includes.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg", "ret",
        "stream"]}``. If several files define a function that the list or dict names, each definition becomes an entry
        point.
    name : str, optional
        Name of the module. The default is the first file's name without its extension.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lcublas"]``.
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
        names an architecture, the module is compiled for ``sm_75``, with a warning.
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
        Level of ``-O`` for host and device code.
    use_fast_math : bool, default False
        Pass ``--use_fast_math``, for faster but less exact floating-point arithmetic.
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
    CompiledModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        A file does not exist or can't be read.
    SpecError
        An arg_spec or a C++ signature is invalid, or the source does not define a function that the argument
        `functions` names.
    ToolchainError
        nvcc or the C++ compiler is missing, an architecture does not exist, or nvcc can't compile for an architecture.
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
    - `load_cuda_inline`: compile source text, with a complete example.
    - `load_cuda_dir`: compile all files of a folder.
    - :doc:`/tutorial-cuda`: a first kernel, step by step.
    - :doc:`/port-cuda`: from an existing kernel to a function with derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cuda_file("scale.cu", {"scale": ["arg", "ret", "stream"]})  # doctest: +SKIP
    >>> ops.scale(jnp.arange(3.0), outs=jax.ShapeDtypeStruct((3,), jnp.float32))  # doctest: +SKIP
    """
    errors.refuse_unknown(options, CudaOptions, "load_cuda_file")
    return _load(default_name(path, name), file_units(path), functions, file_again, options)


@frames.public
def load_cuda_dir(
    directory: StrPath, functions: Functions = None, *, name: str | None = None, **options: Unpack[CudaOptions]
) -> CompiledModule:
    """Compile the CUDA files of a folder into one module, and register the entry points as JAX FFI targets on GPUs.

    The files are compiled in parallel. A file can declare and call host functions of the other files. If several files
    define a function of the same name, each file calls its own definition. If such functions are entry points, their
    names begin with the file's name: ``a.fire`` and ``b.fire``.

    Parameters
    ----------
    directory : str or Path
        Folder whose ``*.cu`` files are the sources. Subfolders are not searched.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg", "ret",
        "stream"]}``. If several files define a function that the list or dict names, each definition becomes an entry
        point.
    name : str, optional
        Name of the module. The default is the folder's name.
    extra_cuda_cflags : list of str, optional
        Arguments for nvcc, such as ``["-maxrregcount=64"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lcublas"]``.
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
        names an architecture, the module is compiled for ``sm_75``, with a warning.
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
        Level of ``-O`` for host and device code.
    use_fast_math : bool, default False
        Pass ``--use_fast_math``, for faster but less exact floating-point arithmetic.
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
    CompiledModule
        Module whose functions are methods, such as ``ops.twice(x)``.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.
    SourceNotFoundError
        A folder does not exist or contains no sources, or a source can't be read.
    SpecError
        An arg_spec or a C++ signature is invalid, or the source does not define a function that the argument
        `functions` names.
    ToolchainError
        nvcc or the C++ compiler is missing, an architecture does not exist, or nvcc can't compile for an architecture.
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
    - `load_cuda_file`: compile chosen files.
    - `load_dir`: compile C++ and CUDA files for CPU and GPU.
    - :doc:`/tutorial-cuda`: a first kernel, step by step.
    - :doc:`/port-cuda`: from an existing kernel to a function with derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cuda_dir("kernels", name="ops")  # doctest: +SKIP
    >>> ops.function_names  # doctest: +SKIP
    ['decay', 'a.fire', 'b.fire']
    >>> ops["a.fire"](jnp.arange(3.0))  # doctest: +SKIP
    """
    errors.refuse_unknown(options, CudaOptions, "load_cuda_dir")
    chosen = default_name(directory, name, "directory")
    return _load(chosen, dir_units(directory, "cuda"), functions, dir_again, options)


def _load(
    name: str, units: tuple[Unit, ...], functions: Functions, reread: Reread, options: Mapping[str, Any]
) -> CompiledModule:
    request = cuda_request(name, units, functions, **options)
    return process.PROCESS.load(request, load_options(name, **options), reread)
