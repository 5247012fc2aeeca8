"""`export`: a program of JAX with the kernels that it calls, as bytes."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from be_runtime.bundle.baseline import check_baseline, default_baseline
from be_runtime.bundle.carried import Demand
from be_runtime.bundle.index import CodeImage, ImageTarget, Index
from be_runtime.errors import ArgumentError, BeRuntimeError, RegistrationError
from be_runtime.frames import public
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Target
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import check_arch_list, check_path
from be_runtime.ship.programs.container import write_container
from be_runtime.xla import jax_export
from be_toolchain import __version__
from be_toolchain.arch import parse_archs

_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA", "gpu": "CUDA"}


class ExportedProgram(bytes):
    """A program and its kernels, see `export`."""

    __slots__ = ()

    def save(self, path: StrPath) -> Path:
        """Write the program to a file, complete or not at all; an older one is replaced.

        Raises
        ------
        ArgumentError
            The file can't be written.
        """
        target = check_path(path, "path")
        try:
            with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
                staging = Path(file.name)
                try:
                    file.write(self)
                    file.flush()
                    os.fsync(file.fileno())
                    staging.chmod(0o644)
                    staging.replace(target)
                except BaseException:
                    staging.unlink(missing_ok=True)
                    raise
        except OSError as error:
            raise ArgumentError(f"{target} can't be written: {error.strerror}") from error
        return target

    def __repr__(self) -> str:
        return f"<exported program of {len(self)} bytes>"

    __str__ = __repr__


@public
def export(
    function: Callable[..., Any],
    *args: Any,
    platforms: str | Sequence[str] | None = None,
    archs: str | Sequence[str] | None = None,
    baseline: str | None = None,
) -> ExportedProgram:
    """Export a function with all kernels that it calls: a program that needs no sources, cache or compiler.

    It is what ``jax.export`` makes, and the machine code of each kernel, once. `load_exported` loads it.

    Parameters
    ----------
    function : callable
        Function, jitted by ``jax.jit`` or not.
    *args : array or ShapeDtypeStruct, or pytrees of them
        Arguments that have the shapes and dtypes that the program is for.
    platforms : str or sequence of str, optional
        ``"cpu"``, ``"cuda"`` or both; by default that of JAX's default backend. Their devices need not be here.
    archs : str or sequence of str, optional
        GPU architectures, such as ``"8.0,9.0"``; by default those for which each kernel was compiled here.
    baseline : str, optional
        Level of CPU instructions that host code may use: by default ``"x86-64-v3"`` on x86-64, which has AVX2. An empty
        text stands for what every such machine has.

    Returns
    -------
    ExportedProgram
        Bytes, with a method ``save``.

    Raises
    ------
    ArgumentError
        A platform, an architecture or the level is unknown.
    RegistrationError
        A kernel that it calls works in this process alone, or it calls back into Python.
    BeRuntimeError, ToolchainError
        A kernel can't be compiled as asked.
    ValueError
        JAX can't export it.
    LoadError
        A package that ``jax.export`` needs is not installed.

    Examples
    --------
    >>> import be_runtime, jax, jax.numpy as jnp
    >>> data = be_runtime.export(jax.jit(lambda x: 2 * x), jnp.arange(3.0))  # doctest: +SKIP
    >>> be_runtime.load_exported(data.save("program.be")).call(jnp.arange(3.0)).tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0]
    """
    machine = platform.machine()
    level = default_baseline(machine) if baseline is None else check_baseline(baseline, machine)
    asked = () if archs is None else parse_archs(check_arch_list(archs, "archs") or "")
    listed = [platforms] if isinstance(platforms, str) else platforms
    names = None if listed is None else [_check_platform(name) for name in listed]
    cargo = _Cargo(Demand(level, tuple(map(str, asked))), names)
    with PROCESS.also_for(asked):
        program = jax_export.export_program(function, args, names, PROCESS.registry.names, cargo.rename)
    data = jax_export.write_program(program)
    return ExportedProgram(write_container(cargo.index(program, level), data, cargo.data()))


def _check_platform(name: object) -> str:
    if name not in _PLATFORMS:
        raise ArgumentError(f"platforms has {name!r}; there are: cpu, cuda")
    return "cuda" if name == "gpu" else str(name)


class _Cargo:
    """The code that a program carries, collected while its calls are renamed.

    Parameters
    ----------
    wanted : Demand
    platforms : sequence of str, or None
        The program's platforms; None for that of the default backend.
    """

    def __init__(self, wanted: Demand, platforms: Sequence[str] | None) -> None:
        self._wanted = wanted
        self._platforms = platforms
        self._renamed: dict[tuple[str, str], tuple[str, str]] = {}
        self._images: dict[str, tuple[CodeImage, bytes]] = {}
        self._targets: dict[str, ImageTarget] = {}
        self._kernels: dict[str, object] = {}

    def rename(self, name: str, kernel: str) -> tuple[str, str]:
        """Return the target and the kernel by content; what is not ours keeps its name."""
        if (name, kernel) not in self._renamed:
            live = PROCESS.registry.get(name)
            self._renamed[name, kernel] = self._take(self._choose(name, live), kernel) if live else (name, kernel)
        return self._renamed[name, kernel]

    def _choose(self, name: str, live: Sequence[Target]) -> Target:
        """Choose the target of a name that the program calls.

        Raises
        ------
        RegistrationError
            The name has a target on each of the program's platforms.
        """
        asked = {_PLATFORMS[each] for each in self._platforms or jax_export.default_platforms()}
        found = [target for target in live if target.platform in asked] or [*live]
        if len(found) > 1:
            raise RegistrationError(
                f"{name!r} is registered for cpu and CUDA, and a program for both can't tell which one a call means",
                hints=("export it for each platform", "or call the modules' functions, as in module.f(x)"),
            )
        return found[0]

    def _take(self, target: Target, kernel: str) -> tuple[str, str]:
        if target.carry is None:
            raise jax_export.known_here_alone(repr(target.name))
        try:
            made = target.carry(self._wanted._replace(kernel=kernel))
        except BeRuntimeError as error:
            error.hints = (*error.hints, f"it is exported since the program calls {target.name}")
            raise
        self._targets[made.target] = made.row
        self._images.update(made.images)
        self._kernels.update(made.kernels)
        return made.target, made.kernel or kernel

    def data(self) -> dict[str, bytes]:
        """Return the images' bytes by hash."""
        return {digest: data for digest, (_, data) in self._images.items()}

    def index(self, program: Any, baseline: str) -> Index:
        """Return the index of a program."""
        return Index(
            machine=platform.machine(),
            images={digest: image for digest, (image, _) in self._images.items()},
            targets=self._targets,
            kernels=self._kernels,
            program={
                **jax_export.describe_program(program),
                "baseline": baseline,
                "made_by": f"brainevent-toolchain {__version__}",
            },
        )
