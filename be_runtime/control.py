"""Public functions that control the process: the cache, architectures, backends, targets, live editing and checks."""

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
    """Keep compiled modules in another folder from now on.

    Parameters
    ----------
    path : str or Path or None
        Folder, created on the first build; None restores the environment's folder, or the default.

    Raises
    ------
    ArgumentError
        The argument is not a path.
    """
    process.PROCESS.choose_cache(None if path is None else options.check_path(path, "path"))


@frames.public
def get_cache_dir() -> Path:
    """Return the folder of compiled modules; it need not exist yet."""
    return process.PROCESS.cache_dir(process.PROCESS.settings())


@frames.public
def clear_cache(name: str | None = None) -> int:
    """Remove compiled modules from the cache.

    Parameters
    ----------
    name : str, optional
        Name of the modules to remove; by default all modules.

    Returns
    -------
    int
        Number of removed entries. Loaded modules keep working.
    """
    if name is not None:
        options.check_name(name)
    return Cache(get_cache_dir()).clear(name)


@frames.public
def export_prebuilt(path: StrPath) -> tuple[Path, ...]:
    """Copy the modules of the cache into a folder from which they are loaded without a compiler.

    If the variable ``BE_PREBUILT_DIR`` names that folder, a load of the same sources with the same options finds its
    module there. The folder may be copied to another machine, or into an image, and may be read-only.

    Parameters
    ----------
    path : str or Path
        Folder, made if it does not exist. Modules of earlier exports stay, or are replaced by equal modules.

    Returns
    -------
    tuple of Path
        The folder of each copied module.

    Raises
    ------
    CacheError
        The cache has no modules, or the folder can't be written.
    """
    from be_runtime.load.prebuilt import export

    folder = options.check_path(path, "path")
    return export(Cache(get_cache_dir()), folder)


@frames.public
def watch(*, retrace: bool = False, interval_s: float = 0.2) -> Watching:
    """Follow changes of kernels' sources, until the returned context ends or `unwatch` is called.

    This concerns modules that the load functions load from then on. A changed source under the same name is no error:
    functions of the new module call the new code. A module of files follows them: a saved file is compiled in the
    background. The next call of the module's functions uses the new code, and waits for the compiler if necessary. If a
    file can't be compiled, the error is shown, and the code before stays.

    Programs that were compiled before, as by ``jax.jit``, keep the code that they were traced with. A name for
    ``jax.ffi.ffi_call`` keeps the code that was registered first.

    Parameters
    ----------
    retrace : bool
        True to call ``jax.clear_caches()`` when code changes. It drops all compiled programs of this process, with and
        without kernels, so that they are traced again.
    interval_s : float
        Seconds between two checks of the files in the background. Each call of a module's function checks them too.

    Returns
    -------
    Watching
        A context manager.

    Raises
    ------
    ArgumentError
        An argument is not allowed.

    Examples
    --------
    >>> with be_runtime.watch():  # doctest: +SKIP
    ...     module = be_runtime.load_cpp_file("scale.cc")
    ...     explore(module)
    """
    from be_runtime.debugging.watch import Watching, watcher

    if not 0 < interval_s < math.inf:
        raise errors.ArgumentError(f"interval_s must be a positive number of seconds, not {interval_s!r}")
    watching = Watching()
    watcher().begin(watching, retrace=options.check_bool(retrace, "retrace"), interval_s=float(interval_s))
    return watching


def unwatch() -> None:
    """End all calls of `watch`; modules keep their current code."""
    from be_runtime.debugging.watch import watcher

    watcher().end()


@frames.public
def write_compile_commands(path: StrPath = "compile_commands.json") -> Path:
    """Write a compilation database for editors, with every source file of the cached modules.

    Parameters
    ----------
    path : str or Path
        The file to write, in the format that clangd and other tools read; an older file is replaced.

    Returns
    -------
    Path
        The absolute path of the file. It lacks sources that are missing, and sources that were given as text.

    Raises
    ------
    ArgumentError
        The argument is not a path, or its folder can't be written.

    Examples
    --------
    >>> be_runtime.write_compile_commands("/my/project/compile_commands.json")  # doctest: +SKIP
    PosixPath('/my/project/compile_commands.json')
    """
    from be_runtime.compile.plan import FILE, merge_commands

    target = options.check_path(path, "path")
    modules = sorted(Cache(get_cache_dir()).entries(), key=lambda entry: entry.created_ns, reverse=True)
    found = []
    for entry in modules:
        with contextlib.suppress(OSError):  # modules of text have no such file, and processes may remove entries
            found.append(Path(entry.path, FILE).read_text(encoding="utf-8", errors="replace"))
    text = merge_commands(found)
    try:
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise errors.ArgumentError(f"path can't be written: {error}") from error
    return target


@frames.public
def set_compute_capabilities(archs: str | Sequence[str] | None) -> None:
    """Compile CUDA code for these architectures from now on, if a load names none.

    Parameters
    ----------
    archs : str, sequence of str or None
        ``"8.6"``, ``"sm_86"``, ``"8.0,9.0"`` or a list of such names; None restores the environment's architectures, or
        the architectures of the devices.

    Raises
    ------
    ArchError
        A name is not an architecture.
    """
    text = options.check_arch_list(archs, "archs")
    process.PROCESS.choose_archs(() if text is None else parse_archs(text))


@frames.public
def set_backend(platform: str, backend: str | None) -> None:
    """Prefer a backend for a platform from now on, in all operations that have a kernel of the backend.

    The argument ``backend`` of a call comes before this choice, and the operation's own default after it. Jitted
    functions follow it: after a change, JAX traces and compiles them again. Call it before threads use operations.

    Parameters
    ----------
    platform : {"cpu", "gpu", "tpu"}
    backend : str or None
        Backend; None restores the operations' defaults.
    """
    from be_runtime.kernels import dispatch

    where = dispatch.check_platform(platform)
    rest = {name: chosen for name, chosen in process.PROCESS.backends.items() if name != where}
    _choose_backends(rest if backend is None else {**rest, where: dispatch.check_name(backend)})


@frames.public
def get_backend(platform: str) -> str | None:
    """Return the backend that `set_backend` chose for a platform; None if there is no choice."""
    from be_runtime.kernels.dispatch import check_platform

    return process.PROCESS.backends.get(check_platform(platform))


def clear_backends() -> None:
    """Restore the operations' own defaults for all platforms."""
    _choose_backends({})


def _choose_backends(chosen: Mapping[str, str]) -> None:
    if chosen != process.PROCESS.backends:
        from be_runtime.jax import transforms

        process.PROCESS.backends = chosen
        transforms.forget_programs()


@frames.public
def list_registered_targets(platform: str | None = None) -> tuple[str, ...]:
    """List the FFI targets that this process has registered, sorted.

    Parameters
    ----------
    platform : {"cpu", "CUDA"}, optional
        Platform whose targets are listed; by default all platforms.

    Raises
    ------
    ArgumentError
        There is no such platform.
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
    """Register an FFI handler under a name, as the load functions do.

    Parameters
    ----------
    name : str
        Target name for ``jax.ffi.ffi_call``.
    handler : CompiledModule or capsule
        Module, or a handler, as from `CompiledModule.get_handler` or ``jax.ffi.pycapsule``.
    function : str, optional
        Name of the module's function; for a handler, this argument may be its platform.
    platform : {"cpu", "CUDA"}, optional
        Platform of the handler; ``"cuda"`` and ``"gpu"`` mean ``"CUDA"``. By default the module's platform, and
        ``"cpu"`` for a handler.
    content : str, optional
        Identity of the handler's code: registering the same content again does nothing. By default the identity of the
        module's function; each handler object has an identity of its own.
    replace : bool
        Accepted for programs written for brainevent, and without effect there too: XLA keeps the first code of a name.

    Raises
    ------
    RegistrationError
        The name is live with other content.
    ArgumentError
        The name or platform is not allowed.
    KeyError
        The module has no such function.
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
    """Check every call of a kernel that is traced from now on, until the returned context ends.

    Kernels get copies of their arrays with guard bytes around them, and run twice or more with different bytes in
    unwritten elements. Functions that JAX compiled before are traced again inside of the context, and are restored
    after it. Without ``with``, calls of the whole process are checked until ``debug(False)``. Then call it before other
    threads start, since their compiled functions are not traced again.

    Parameters
    ----------
    checks : bool, str or sequence of str
        Names of checks: guards, unwritten, inputs, values, bounds, fault, stream, repeat. True and "all" mean all
        checks, and a minus leaves a check out: ``"all,-repeat"``. False ends the checks that `debug` or ``BE_DEBUG``
        began for the process.
    on_finding : {"raise", "warn", "collect"}
        Raise a `FindingError` at the call, warn with a `FindingWarning`, or only keep the findings. Within a function
        that JAX compiled, XLA raises an error, and the context raises it as a `FindingError`.

    Returns
    -------
    Debugging
        A context manager. Its value is a sequence of `Finding` with ``report()``, and with ``notes`` that name calls
        that were not checked, and why.

    Raises
    ------
    ArgumentError
        There is no such check.

    Examples
    --------
    >>> with be_runtime.debug(on_finding="collect") as found:  # doctest: +SKIP
    ...     jax.block_until_ready(step(x))
    >>> print(found.report())  # doctest: +SKIP
    """
    return process.PROCESS.debug(None if checks is False else parse_checks(checks, on_finding))


def print_diagnostics() -> None:
    """Print the report of ``python -m be_toolchain doctor``, the cache folder and the registered targets."""
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
