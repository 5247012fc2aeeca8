"""The functions that load C++ for the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from be_runtime import errors, frames
from be_runtime.load import process
from be_runtime.load.module import CompiledModule
from be_runtime.request.arguments import (
    CppOptions,
    Functions,
    Reread,
    StrPath,
    cpp_request,
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
    """Compile C++ source text, and register the entry points as JAX FFI targets on the CPU.

    The functions run on the CPU. On a machine with a GPU, set ``JAX_PLATFORMS=cpu`` or place the arrays on the CPU.

    Parameters
    ----------
    name : str
        Name of the module and of its cache entry.
    cpp_sources : str or list of str
        C++17 source text. Several texts are joined in order and compiled as one text.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg",
        "ret"]}``.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
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
        Optimization level, the number after ``-O``.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` to the compiler, for faster but less exact floating-point arithmetic.
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
        No C++ compiler was found.
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
    - `load_cpp_file`: compile files.
    - `load_cuda_inline`: compile CUDA source text.
    - :doc:`/tutorial-cpp`: a first kernel, step by step.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cpp_inline(
    ...     "doc_twice",
    ...     '''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[... n]:float32 ret[... n]:float32
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''',
    ... )
    >>> jax.jit(ops.twice)(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    """
    options = {key: value for key, value in locals().items() if key in CppOptions.__annotations__}
    return _load(name, inline_units(name, cpp_sources, "cpp_sources"), functions, same_again, options)


@frames.public
def load_cpp_file(
    path: StrPath | Sequence[StrPath],
    functions: Functions = None,
    *,
    name: str | None = None,
    **options: Unpack[CppOptions],
) -> CompiledModule:
    """Compile one or more C++ files, and register the entry points as JAX FFI targets on the CPU.

    The functions run on the CPU. Several files are compiled in parallel and become one module. A file can declare and
    call functions of the other files. If several files define a function of the same name, each file calls its own
    definition. If such functions are entry points, their names begin with the file's name: ``a.fire`` and ``b.fire``.

    Parameters
    ----------
    path : str or Path, or list of them
        C++17 files. The compiler searches the folder of each file for the headers that the file includes.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg",
        "ret"]}``. If several files define a function that the list or dict names, each definition becomes an entry
        point.
    name : str, optional
        Name of the module. The default is the first file's name without its extension.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
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
        Optimization level, the number after ``-O``.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` to the compiler, for faster but less exact floating-point arithmetic.
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
        No C++ compiler was found.
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
    - `load_cpp_inline`: compile source text.
    - `load_cpp_dir`: compile all files of a folder.
    - :doc:`/tutorial-cpp`: a first kernel, step by step.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "doc_file.cc")
    >>> characters = path.write_text('''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[... n]:float32 ret[... n]:float32
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''')
    >>> ops = be_runtime.load_cpp_file(path)
    >>> ops.twice(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    >>> folder.cleanup()
    """
    errors.refuse_unknown(options, CppOptions, "load_cpp_file")
    return _load(default_name(path, name), file_units(path), functions, file_again, options)


@frames.public
def load_cpp_dir(
    directory: StrPath, functions: Functions = None, *, name: str | None = None, **options: Unpack[CppOptions]
) -> CompiledModule:
    """Compile the C++ files of a folder into one module, and register the entry points as JAX FFI targets on the CPU.

    The functions run on the CPU. The files are compiled in parallel. A file can declare and call functions of the other
    files. If several files define a function of the same name, each file calls its own definition. If such functions
    are entry points, their names begin with the file's name: ``a.fire`` and ``b.fire``.

    Parameters
    ----------
    directory : str or Path
        Folder whose ``*.cc``, ``*.cpp`` and ``*.cxx`` files are the sources. Subfolders are not searched.
    functions : dict of str to list of str, list of str, or None
        Entry points of the module. If the argument is None, the functions that ``// @BE`` comments declare become entry
        points. A list names functions whose :doc:`arg_spec </arg-spec>` is derived from the C++ signature. An empty
        list loads a module without functions. A dict maps names to arg_spec tokens, such as ``{"twice": ["arg",
        "ret"]}``. If several files define a function that the list or dict names, each definition becomes an entry
        point.
    name : str, optional
        Name of the module. The default is the folder's name.
    extra_cflags : list of str, optional
        Arguments for the C++ compiler, such as ``["-march=x86-64-v3"]``.
    extra_ldflags : list of str, optional
        Arguments for the linker, such as ``["-lfftw3f"]``.
    extra_include_paths : list of str or Path, optional
        Folders to search for headers.
    build_directory : str or Path, optional
        Folder in which the module is stored, instead of the cache folder.
    verbose : bool, default False
        Print the commands and their output to standard error.
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
        Optimization level, the number after ``-O``.
    use_fast_math : bool, default False
        Pass ``-ffast-math`` to the compiler, for faster but less exact floating-point arithmetic.
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
        No C++ compiler was found.
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
    - `load_cpp_file`: compile chosen files.
    - `load_dir`: compile C++ and CUDA files for CPU and GPU.
    - :doc:`/tutorial-cpp`: a first kernel, step by step.
    - :doc:`/calling`: attributes, result shapes and derivatives.
    - :doc:`/compiler-options`: flags, libraries, architectures.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = Path(folder.name, "twice.cc")
    >>> characters = path.write_text('''
    ... #include "brainevent/common.h"
    ... // @BE twice arg[... n]:float32 ret[... n]:float32
    ... void twice(const BE::Tensor x, BE::Tensor y) {
    ...   for (int64_t i = 0; i < x.numel(); ++i)
    ...     y.data_ptr<float>()[i] = 2 * x.data_ptr<float>()[i];
    ... }''')
    >>> ops = be_runtime.load_cpp_dir(folder.name, name="doc_dir")
    >>> ops.twice(jnp.arange(3.0)).tolist()
    [0.0, 2.0, 4.0]
    >>> folder.cleanup()
    """
    errors.refuse_unknown(options, CppOptions, "load_cpp_dir")
    chosen = default_name(directory, name, "directory")
    return _load(chosen, dir_units(directory, "cpp"), functions, dir_again, options)


def _load(
    name: str, units: tuple[Unit, ...], functions: Functions, reread: Reread, options: Mapping[str, Any]
) -> CompiledModule:
    request = cpp_request(name, units, functions, **options)
    return process.PROCESS.load(request, load_options(name, **options), reread)
