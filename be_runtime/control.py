"""Functions that set and print the state of the process, such as the cache folder, architectures and checks.

The functions are also attributes of ``be_runtime``: ``be_runtime.config.set_cache_dir`` is
``be_runtime.set_cache_dir``.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from be_runtime import errors, frames
from be_runtime.checks import OnFinding, parse_checks
from be_runtime.load import module, process, registry
from be_runtime.request import options
from be_runtime.request.arguments import StrPath
from be_runtime.store.cache import Cache
from be_toolchain.arch import parse_archs

if TYPE_CHECKING:
    from be_runtime.debugging.watch import Watching
    from be_runtime.load.checked_mode import Debugging


@frames.public
def set_cache_dir(path: StrPath | None) -> None:
    """Set the cache folder of this process, in which compiled modules are stored.

    Parameters
    ----------
    path : str, Path or None
        Folder, which the first build creates. None restores the folder that ``BE_CACHE_DIR`` names, or else the default
        folder.

    Raises
    ------
    ArgumentError
        The argument is not a path.

    See Also
    --------
    - `get_cache_dir`: return the folder.
    - :doc:`/caching`: cache hits, limits and the folder.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.set_cache_dir("/scratch/kernels")
    >>> be_runtime.get_cache_dir()
    PosixPath('/scratch/kernels')
    >>> be_runtime.set_cache_dir(None)
    """
    process.PROCESS.choose_cache(None if path is None else options.check_path(path, "path"))


@frames.public
def get_cache_dir() -> Path:
    """Return the cache folder, in which compiled modules are stored.

    Returns
    -------
    Path
        Folder, which may not exist yet.

    Raises
    ------
    CacheError
        The folder that ``BE_CACHE_DIR`` names can't be used. Or the variable is not set, and neither the default folder
        nor a temporary folder can be used.

    See Also
    --------
    - `set_cache_dir`: choose the folder.
    - :doc:`/caching`: cache hits, limits and the folder.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.get_cache_dir().is_absolute()
    True
    """
    return process.PROCESS.cache_dir(process.PROCESS.settings())


@frames.public
def clear_cache(name: str | None = None) -> int:
    """Remove compiled modules from the cache.

    Parameters
    ----------
    name : str, optional
        Module name. All cache entries of modules with this name are removed. By default, all modules are removed.

    Returns
    -------
    int
        Number of removed entries; 0 if no entry matches. Loaded modules keep working.

    Raises
    ------
    ArgumentError
        `name` is not a valid name.
    CacheError
        The cache folder can't be used.

    See Also
    --------
    - :doc:`/caching`: cache hits, limits and the folder.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.clear_cache("no_such_module")
    0
    """
    if name is not None:
        options.check_name(name)
    return Cache(get_cache_dir()).clear(name)


@frames.public
def export_prebuilt(path: StrPath) -> tuple[Path, ...]:
    """Copy the modules of the cache into a folder for machines without a compiler.

    Copy the folder to another machine or into a container image, and set ``BE_PREBUILT_DIR`` to the folder. A load
    function with the same sources and the same options then takes the compiled module from the folder, which may be
    read-only.

    Parameters
    ----------
    path : str or Path
        Folder, which is created if necessary. Modules from earlier exports stay in the folder.

    Returns
    -------
    tuple of Path
        Folder of each copied module.

    Raises
    ------
    ArgumentError
        The argument is not a path.
    CacheError
        The cache contains no modules, a module was compiled with ``native=True``, or the folder can't be written.

    See Also
    --------
    - `package_kernels`: ship kernels in a wheel.
    - :doc:`/caching`: prebuilt folders and the cache.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.export_prebuilt("prebuilt")  # doctest: +SKIP
    (PosixPath('/my/project/prebuilt/ops/c70349ab20f5ebf3f30a197e4972f832-host'),)
    """
    from be_runtime.load.prebuilt import export

    folder = options.check_path(path, "path")
    return export(Cache(get_cache_dir()), folder)


@frames.public
def watch(*, retrace: bool = False, interval_s: float = 0.2) -> Watching:
    """Reload modules when the sources change, until the returned context manager exits or `unwatch` is called.

    A module is reloaded only if it was loaded after the call of `watch`. When you save a file, the module is compiled
    in the background. The next call of the module's functions waits for the compiler if necessary, and runs the new
    code. If the file doesn't compile, the error is printed to standard error and the old code stays in use.

    If you load different source text under the name of a loaded module, the load raises no `RegistrationError`. The
    functions of the new module call the new code, and the functions of the old module call the old code.

    A compiled program, such as a function of ``jax.jit``, keeps the code from the time of the trace. A target for
    ``jax.ffi.ffi_call`` keeps the code that was registered first.

    Parameters
    ----------
    retrace : bool, default False
        Call ``jax.clear_caches()`` when code changes. JAX then traces and compiles all programs of the process again.
    interval_s : float, default 0.2
        Seconds between two checks of the files in the background. Each call of a module's function also checks the
        files.

    Returns
    -------
    Watching
        Context manager.

    Raises
    ------
    ArgumentError
        An argument has a wrong type or value.

    See Also
    --------
    - `unwatch`: stop reloading.
    - :doc:`/live-editing`: edit kernels in scripts and notebooks.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> with be_runtime.watch():  # doctest: +SKIP
    ...     ops = be_runtime.load_cpp_file("scale.cc")
    ...     while input("Enter calls scale, q ends: ") != "q":
    ...         print(ops.scale(jnp.arange(3.0)))
    """
    from be_runtime.debugging.watch import Watching, watcher

    if not 0 < interval_s < math.inf:
        raise errors.ArgumentError(f"interval_s must be a positive number of seconds, not {interval_s!r}")
    watching = Watching()
    watcher().begin(watching, retrace=options.check_bool(retrace, "retrace"), interval_s=float(interval_s))
    return watching


def unwatch() -> None:
    """Stop reloading modules; the modules keep their current code.

    See Also
    --------
    - `watch`: reload sources when they change.
    - :doc:`/live-editing`: edit kernels in scripts and notebooks.

    Examples
    --------
    >>> import be_runtime
    >>> watching = be_runtime.watch()
    >>> be_runtime.unwatch()
    """
    from be_runtime.debugging.watch import watcher

    watcher().end()


@frames.public
def write_compile_commands(path: StrPath = "compile_commands.json") -> Path:
    """Write a compilation database for editors, with the source files of the cached modules.

    The database contains neither modules from source texts nor files that no longer exist.

    Parameters
    ----------
    path : str or Path, default "compile_commands.json"
        File to write, in the format that clangd reads. An existing file is replaced.

    Returns
    -------
    Path
        Absolute path of the file.

    Raises
    ------
    ArgumentError
        The argument is not a path, or the file can't be written.
    CacheError
        The cache folder can't be used.

    See Also
    --------
    - :doc:`/building`: logs and commands of builds.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.write_compile_commands("/my/project/compile_commands.json")  # doctest: +SKIP
    PosixPath('/my/project/compile_commands.json')
    """
    from be_runtime.compile.plan import FILE, merge_commands

    target = options.check_path(path, "path")
    modules = sorted(Cache(get_cache_dir()).entries(), key=lambda entry: entry.created_ns, reverse=True)
    found = []
    for entry in modules:
        with contextlib.suppress(OSError):  # inline sources have no such file, and processes may remove entries
            found.append(Path(entry.path, FILE).read_text(encoding="utf-8", errors="replace"))
    text = merge_commands(found)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.ArgumentError(f"path can't be written: {error}") from error
    return target


@frames.public
def set_compute_capabilities(archs: str | Sequence[str] | None) -> None:
    """Set the architectures for which CUDA code is compiled from now on.

    Parameters
    ----------
    archs : str, sequence of str or None
        Architectures, such as ``"8.6"``, ``"sm_86"``, ``"8.0,9.0"`` or ``["8.0", "9.0"]``. The argument
        ``compute_capability`` of a function takes precedence. None restores the architectures that
        ``BE_COMPUTE_CAPABILITIES`` names, or else the architectures of this machine's GPUs.

    Raises
    ------
    ArgumentError
        The argument is neither a string nor a sequence of strings.
    ArchError
        A string is not an architecture.

    See Also
    --------
    - `be_toolchain.device_archs`: return the architectures of the GPUs.
    - :doc:`/compiler-options`: architectures and flags.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.set_compute_capabilities("8.0, 9.0")
    >>> be_runtime.set_compute_capabilities(None)
    """
    text = options.check_arch_list(archs, "archs")
    process.PROCESS.choose_archs(() if text is None else parse_archs(text))


@frames.public
def set_backend(platform: str, backend: str | None) -> None:
    """Prefer a backend for a platform from now on, in all operations that have a kernel of the backend.

    The preference overrides the default backends of these operations. The argument ``backend`` of a call overrides the
    preference. After a change, JAX traces and compiles jitted functions again. Call `set_backend` before other threads
    call operations.

    Parameters
    ----------
    platform : {"cpu", "gpu", "tpu"}
        Platform. ``"cuda"`` and ``"rocm"`` mean ``"gpu"``.
    backend : str or None
        Name of the backend, such as ``"numba"``. None restores the defaults of the operations.

    Raises
    ------
    ArgumentError
        The platform is unknown, or the backend's name is empty or not a string.

    See Also
    --------
    - `get_backend`: return the preference.
    - `clear_backends`: remove all preferences.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.set_backend("cpu", "numba")
    >>> be_runtime.get_backend("cpu")
    'numba'
    >>> be_runtime.clear_backends()
    """
    from be_runtime.kernels import dispatch

    where = dispatch.check_platform(platform)
    rest = {name: chosen for name, chosen in process.PROCESS.backends.items() if name != where}
    _choose_backends(rest if backend is None else {**rest, where: dispatch.check_name(backend)})


@frames.public
def get_backend(platform: str) -> str | None:
    """Return the backend that `set_backend` prefers for a platform.

    Parameters
    ----------
    platform : {"cpu", "gpu", "tpu"}
        Platform. ``"cuda"`` and ``"rocm"`` mean ``"gpu"``.

    Returns
    -------
    str or None
        Name of the backend; None without a preference.

    Raises
    ------
    ArgumentError
        The platform is unknown.

    See Also
    --------
    - `set_backend`: prefer a backend.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> print(be_runtime.get_backend("gpu"))
    None
    """
    from be_runtime.kernels.dispatch import check_platform

    return process.PROCESS.backends.get(check_platform(platform))


def clear_backends() -> None:
    """Remove all preferences of `set_backend`, so that each operation uses its default backend.

    See Also
    --------
    - `set_backend`: prefer a backend.
    - :doc:`/custom-kernels`: operations with several kernels.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.set_backend("cpu", "numba")
    >>> be_runtime.clear_backends()
    >>> print(be_runtime.get_backend("cpu"))
    None
    """
    _choose_backends({})


def _choose_backends(chosen: Mapping[str, str]) -> None:
    if chosen != process.PROCESS.backends:
        from be_runtime.jax import transforms

        process.PROCESS.backends = chosen
        transforms.forget_programs()


@frames.public
def list_registered_targets(platform: str | None = None) -> tuple[str, ...]:
    """List the FFI targets that this process has registered.

    Parameters
    ----------
    platform : {"cpu", "CUDA"}, optional
        Platform whose targets are listed. By default, the targets of all platforms are listed.

    Returns
    -------
    tuple of str
        Names for ``jax.ffi.ffi_call``, sorted.

    Raises
    ------
    ArgumentError
        The platform is unknown.

    See Also
    --------
    - `register_ffi_target`: register a handler.
    - :doc:`/calling`: names of targets.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.list_registered_targets("CUDA")  # doctest: +SKIP
    ('ops.decay', 'ops.fire')
    """
    return process.PROCESS.registry.names(None if platform is None else _platform(platform))


@frames.public
def register_ffi_target(
    name: str,
    handler: Any,
    function: str | None = None,
    *,
    platform: str | None = None,
    content: str | None = None,
    replace: bool = False,
) -> None:
    """Register an FFI handler under a name of your choice.

    Parameters
    ----------
    name : str
        Name of the target for ``jax.ffi.ffi_call``.
    handler : CompiledModule or capsule
        Module, or a handler from `ModuleInfo.get_handler` or ``jax.ffi.pycapsule``.
    function : str, optional
        If `handler` is a module, the name of a function of the module. If `handler` is a capsule, leave this
        argument out.
    platform : {"cpu", "CUDA"}, optional
        Platform of the handler; ``"cuda"`` and ``"gpu"`` mean ``"CUDA"``. The default is the platform of the module,
        or ``"cpu"`` for a capsule.
    content : str, optional
        Text that identifies the handler's code. A second registration of `name` with the same text does nothing. The
        default for a function of a module depends on the inputs of the module's build. The default for a capsule is
        different for each capsule object.
    replace : bool, default False
        Ignored: XLA keeps the first code that is registered under a name. The argument exists for :doc:`programs
        written for brainevent </from-brainevent>`.

    Raises
    ------
    RegistrationError
        The name is already registered with different code.
    ArgumentError
        The name is not allowed, or the platform is unknown.
    KeyError
        The module has no such function.

    See Also
    --------
    - `list_registered_targets`: list the names.
    - :doc:`/calling`: names of targets.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> ops = be_runtime.load_cpp_file("scale.cc", auto_register=False)  # doctest: +SKIP
    >>> be_runtime.register_ffi_target("mine.scale", ops, "scale")  # doctest: +SKIP
    >>> x = jnp.arange(3.0)
    >>> y = jax.ffi.ffi_call("mine.scale", jax.ShapeDtypeStruct(x.shape, x.dtype))(x)  # doctest: +SKIP
    """
    options.check_name(name)
    options.check_bool(replace, "replace")
    if isinstance(handler, module.CompiledModule):
        info = module.ModuleInfo.of(handler)
        capsule = info.get_handler(str(function))
        usual, identity = info.platform, info.identity(str(function))
        carry = partial(info.carry, str(function))
    else:
        capsule, usual = handler, "cpu" if function is None else function
        identity, carry = f"object:{id(handler)}", None
    where = _platform(usual if platform is None else platform)
    target = registry.Target(name=name, platform=where, content=identity if content is None else content, carry=carry)
    process.PROCESS.registry.add([target], {name: lambda: capsule})


@frames.public
def debug(checks: bool | str | Sequence[str] = True, *, on_finding: OnFinding = "raise") -> Debugging:
    """Check the calls of kernels in checked mode, in a ``with`` block or in the whole process.

    In checked mode, a kernel gets copies of the arrays, with guard bytes around each copy. The kernel usually runs
    twice or more, with different bytes in unwritten elements. In a ``with`` block, the calls of this thread are
    checked. JAX retraces functions that were compiled before the block, and uses the earlier programs again after the
    block. Without ``with``, all calls of the process are checked until you call ``debug(False)``. To check a whole
    process, call `debug` before other threads start, because JAX does not retrace functions that other threads have
    already compiled.

    Parameters
    ----------
    checks : bool, str or sequence of str, default True
        Names of checks: guards, unwritten, inputs, values, bounds, fault, stream, repeat. True and ``"all"`` mean all
        checks. A minus leaves out a check, as in ``"all,-repeat"``. False ends the checks of the process.
    on_finding : {"raise", "warn", "collect"}, default "raise"
        Raise a `FindingError`, issue a `FindingWarning`, or only collect the findings. With ``"raise"``, an uncertain
        finding does not raise an error, but issues a `FindingWarning`.

    Returns
    -------
    Debugging
        Context manager. In ``with be_runtime.debug() as found:``, ``found`` is a `Findings` object, which is a sequence
        of `Finding`.

    Raises
    ------
    ArgumentError
        The name of a check or the value of `on_finding` is unknown.

    See Also
    --------
    - :doc:`/debugging`: the checks, their cost, and a report.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> with be_runtime.debug(on_finding="collect") as found:
    ...     y = 2 * jnp.arange(3.0)
    >>> print(found.report())
    no findings
    """
    return process.PROCESS.debug(None if checks is False else parse_checks(checks, on_finding))


def print_diagnostics() -> None:
    """Print a report about compilers and GPUs, the cache folder and the registered targets to standard output.

    The report about compilers and GPUs is the output of ``python -m be_toolchain doctor``.

    Raises
    ------
    CacheError
        The cache folder can't be used.

    See Also
    --------
    - :doc:`/troubleshooting`: remedies for the report's findings.

    Examples
    --------
    >>> import be_runtime
    >>> be_runtime.print_diagnostics()  # doctest: +SKIP
    """
    from be_toolchain.doctor.doctor import examine_machine, render_report
    from be_toolchain.machine.local_system import LocalSystem
    from be_toolchain.terminal import many, say

    report = examine_machine(LocalSystem())
    cache = get_cache_dir()
    say(render_report(report))
    say(report.redact(f"\ncache: {cache}, {many(sum(1 for _ in Cache(cache).entries()), 'entry', 'entries')}"))
    say(f"registered targets: {', '.join(list_registered_targets()) or 'none'}")


def _platform(name: object) -> str:
    """Return JAX's name of a platform."""
    known = {"cpu": "cpu", "cuda": "CUDA", "gpu": "CUDA"}.get(str(name).lower())
    if known is None:
        raise errors.ArgumentError(f"platform must be 'cpu' or 'CUDA', not {name!r}")
    return known
