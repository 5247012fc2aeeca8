"""Programs with their kernels: `export` writes them, and `load_exported` checks, maps and registers them."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.errors import ArgumentError, BeRuntimeError, LoadError, RegistrationError
from be_runtime.frames import public
from be_runtime.jax import exporting
from be_runtime.kernels.launcher import STAGES, kernel_of, lacking, launcher_of
from be_runtime.load.prebuilt import register_image_target
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Target
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import check_arch_list, check_path
from be_runtime.store.artifact import Artifact, pack, unpack
from be_runtime.store.images import (
    check_baseline,
    default_baseline,
    require_baseline,
    require_machine,
)
from be_runtime.store.index import (
    CodeImage,
    Demand,
    ImageTarget,
    Index,
    lacking_arch,
    reading,
)
from be_toolchain import __version__
from be_toolchain.arch import Arch, parse_archs
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust import LARGEST, open_regular, read_beginning

_PLATFORMS = {"cpu": "cpu", "cuda": "CUDA", "gpu": "CUDA"}


class ExportedProgram(bytes):
    """The bytes of a program and its kernels; `export` returns them.

    This class is a subclass of ``bytes``. `load_exported` loads the bytes, or the file that `save` writes.

    See Also
    --------
    - :doc:`/exported-programs`: the content of a program, and the machines that run the program.
    """

    __slots__ = ()

    def save(self, path: StrPath) -> Path:
        """Write the program to a file. An existing file is replaced atomically.

        Parameters
        ----------
        path : str or Path
            File to write.

        Returns
        -------
        Path
            Path of the file.

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
    """Export a function and the machine code of its kernels as a program.

    `load_exported` loads the program on a machine without the sources, the cache or a compiler. The program consists of
    the output of ``jax.export`` and the machine code of each kernel.

    Parameters
    ----------
    function : callable
        Function, which may be jitted.
    *args : array or ShapeDtypeStruct, or pytrees of them
        Arguments with the shapes and dtypes of the program's arguments.
    platforms : str or sequence of str, optional
        ``"cpu"``, ``"cuda"`` or both platforms. The default is the platform of JAX's default backend. You can export
        for ``"cuda"`` on a machine without a GPU.
    archs : str or sequence of str, optional
        GPU architectures, such as ``"8.0,9.0"``. By default, each kernel is exported for the architectures for which
        this process compiled the kernel.
    baseline : str, optional
        Level of x86-64 whose instructions host code may use. The default is ``"x86-64-v3"``, which includes AVX2. If
        the level is an empty string, host code runs on any x86-64 machine.

    Returns
    -------
    ExportedProgram
        Bytes of the program.

    Raises
    ------
    ArgumentError
        A platform or the level is unknown.
    ArchError
        An architecture does not exist.
    RegistrationError
        The function calls a Python callback, or a kernel that works only in this process. Or the export is for
        both platforms, and the function calls ``jax.ffi.ffi_call`` with a name that is registered for both: the
        exported call can name only one of the two targets. In this case, export the function for each platform.
    GeneratorError
        A kernel can't be exported for an architecture, for example because the kernel was built ahead of time for other
        architectures.
    BeRuntimeError, ToolchainError
        A kernel can't be compiled for a platform or an architecture.
    ValueError
        JAX can't export the function.
    LoadError
        A package that ``jax.export`` needs is not installed.

    See Also
    --------
    - `load_exported`: load the program.
    - :doc:`/exported-programs`: the content of a program, and the machines that run the program.

    Examples
    --------
    >>> import be_runtime
    >>> import jax
    >>> import jax.numpy as jnp
    >>> program = be_runtime.export(jax.jit(lambda x: 2 * x), jnp.arange(3.0))  # doctest: +SKIP
    >>> be_runtime.load_exported(program.save("program.be")).call(jnp.arange(3.0)).tolist()  # doctest: +SKIP
    [0.0, 2.0, 4.0]
    """
    machine = platform.machine()
    level = default_baseline(machine) if baseline is None else check_baseline(baseline, machine)
    asked = () if archs is None else parse_archs(check_arch_list(archs, "archs") or "")
    names = None
    if platforms is not None:
        names = [platforms] if isinstance(platforms, str) else [*platforms]
        for name in names:
            if name not in _PLATFORMS:
                raise ArgumentError(f"platforms must be 'cpu' or 'cuda', not {name!r}")
        names = ["cuda" if name == "gpu" else str(name) for name in names]
    cargo = _Cargo(Demand(level, tuple(map(str, asked))), names)
    with PROCESS.also_for(asked):
        program = exporting.export_program(function, args, names, PROCESS.registry.names, cargo.rename)
    text = bytes(program.serialize())
    own = hashlib.sha256(text).hexdigest()
    cargo.images[own] = CodeImage("program", "", len(text)), text
    index = Index(
        machine=machine,
        images={digest: image for digest, (image, _) in cargo.images.items()},
        targets=cargo.targets,
        kernels=cargo.kernels,
        program={
            **exporting.describe_program(program),
            "image": own,
            "baseline": level,
            "made_by": f"brainevent-toolchain {__version__}",
        },
    )
    images = {each: data for each, (_, data) in cargo.images.items()}
    return ExportedProgram(pack(index, images))


class _Cargo:
    """The code of an exported program; `rename` collects it.

    Parameters
    ----------
    wanted : Demand
    platforms : sequence of str, or None
        The program's platforms; None for the platform of the default backend.
    """

    def __init__(self, wanted: Demand, platforms: Sequence[str] | None) -> None:
        self._wanted = wanted
        self._platforms = platforms
        self._renamed: dict[tuple[str, str], tuple[str, str]] = {}
        self.images: dict[str, tuple[CodeImage, bytes]] = {}
        self.targets: dict[str, ImageTarget] = {}
        self.kernels: dict[str, object] = {}

    def rename(self, name: str, kernel: str) -> tuple[str, str]:
        """Return the names of a target and its kernel by their content; targets of other packages keep their names."""
        if (name, kernel) not in self._renamed:
            live = PROCESS.registry.get(name)
            self._renamed[name, kernel] = self._take(self._choose(name, live), kernel) if live else (name, kernel)
        return self._renamed[name, kernel]

    def _choose(self, name: str, live: Sequence[Target]) -> Target:
        """Return the target of a name that the program calls.

        Raises
        ------
        RegistrationError
            The name has a target on each of the program's platforms.
        """
        asked = {_PLATFORMS[each] for each in self._platforms or exporting.default_platforms()}
        found = [target for target in live if target.platform in asked] or [*live]
        if len(found) > 1:
            raise RegistrationError(
                f"{name!r} is registered for cpu and CUDA, and a program for both can't choose between them",
                hints=("export it for each platform", "or call the modules' functions, as in module.f(x)"),
            )
        return found[0]

    def _take(self, target: Target, kernel: str) -> tuple[str, str]:
        """Add the code of a target, and return the new names."""
        if target.carry is None:
            raise exporting.known_here_alone(repr(target.name))
        try:
            made = target.carry(self._wanted._replace(kernel=kernel))
        except BeRuntimeError as error:
            error.hints = (*error.hints, f"it is exported since the program calls {target.name}")
            raise
        self.targets[made.target] = made.row
        self.images.update(made.images)
        self.kernels.update(made.kernels)
        return made.target, made.kernel or kernel


class LoadedProgram:
    """A program whose kernels are registered in this process; `load_exported` returns it.

    Attributes
    ----------
    call : callable
        Function of arrays that runs the program. Jitted functions may call it.

    See Also
    --------
    - :doc:`/exported-programs`: the content of a program, and the machines that run the program.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self.call: Callable[..., Any] = exporting.callable_program(program)

    @property
    def in_avals(self) -> Sequence[Any]:
        """The shapes and dtypes of the arguments, as a flat tuple."""
        return tuple(self._program.in_avals)

    @property
    def out_avals(self) -> Sequence[Any]:
        """The shapes and dtypes of the results, as a flat tuple."""
        return tuple(self._program.out_avals)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that the program was exported for, such as ``"cpu"``."""
        return tuple(self._program.platforms)

    @property
    def nr_devices(self) -> int:
        """The number of devices that the program runs on."""
        return int(self._program.nr_devices)

    def __repr__(self) -> str:
        types = ", ".join(each.str_short() for each in self.in_avals)
        made = ", ".join(each.str_short() for each in self.out_avals)
        devices = f" on {self.nr_devices} devices" if self.nr_devices > 1 else ""
        return f"<program {self._program.fun_name}({types}) -> ({made}) for {', '.join(self.platforms)}{devices}>"


@public
def load_exported(
    data_or_path: bytes | StrPath,
    *,
    expected_sha256: str | None = None,
    verify: Callable[[bytes], object] | None = None,
) -> LoadedProgram:
    """Load an exported program and register its kernels.

    This function runs code from the program, so load only programs that you trust. Only kernels for platforms of this
    machine are registered. No kernel is compiled, and no file is written. JAX initializes its backends.

    Parameters
    ----------
    data_or_path : bytes, str or Path
        Result of `export`, or the path of a saved program. Other users must not have permission to write to this file.
    expected_sha256 : str, optional
        SHA-256 hash of the bytes, in hexadecimal digits. If the hash differs, the bytes are refused before they are
        parsed.
    verify : callable, optional
        Function that is called with the bytes before they are parsed, for example to check a signature. To refuse the
        bytes, the function raises an exception or returns False.

    Returns
    -------
    LoadedProgram
        Program, whose method ``program.call(...)`` takes the arguments of the exported function.

    Raises
    ------
    LoadError
        The program is damaged or refused, has an unsupported format, or is for other machines.
    ArgumentError
        An argument has a wrong type, or the file can't be read.

    See Also
    --------
    - `export`: make the program.
    - :doc:`/exported-programs`: the content of a program, and the machines that run the program.

    Examples
    --------
    >>> import be_runtime
    >>> import jax.numpy as jnp
    >>> program = be_runtime.load_exported("program.be")  # doctest: +SKIP
    >>> program.call(jnp.arange(3.0))  # doctest: +SKIP
    """
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        data, where = bytes(data_or_path), "the exported program"
    else:
        path = check_path(data_or_path, "data_or_path")
        data, where = _read_trusted(path), str(path)
    if expected_sha256 is not None:
        found = hashlib.sha256(data).hexdigest()
        if found != str(expected_sha256).lower():
            raise LoadError(f"{where} is not the expected program: its sha256 is {found}, and not {expected_sha256}")
    if verify is not None and verify(data) is False:
        raise LoadError(f"{where} is refused: verify returned False")
    artifact = unpack(data, where)
    if not artifact.table.program:
        raise LoadError(f"{where} holds kernels, not a program", hints=("be_runtime.export makes programs",))
    with reading(where):
        read = exporting.read_program(artifact.image(artifact.table.program["image"]), artifact.table.program)
        _register(artifact)
    return LoadedProgram(read)


def _read_trusted(path: Path) -> bytes:
    """Return the bytes of a file that no other user can write or replace."""
    try:
        with open_regular(path) as file:
            problem = LocalSystem().distrust(path.absolute())
            if problem:
                raise LoadError(
                    f"code is not loaded from {path}: {problem}",
                    hints=("copy it to a folder of your own", "or remove other users' write permission: chmod go-w"),
                )
            return read_beginning(file, LARGEST)
    except OSError as error:
        raise ArgumentError(f"{path} can't be read: {error.strerror}") from error


def _register(artifact: Artifact) -> None:
    """Check the code for the platforms of this machine, then map and register it.

    Raises
    ------
    LoadError
        An image is for another machine.
    """
    index, archs = artifact.table, exporting.device_archs()
    here = {name: target for name, target in index.targets.items() if target.platform in archs}
    kernels = index.kernels if any(target.stages == STAGES for target in here.values()) else {}
    images = {target.image: index.images[target.image] for target in here.values()}
    if images:
        require_machine(index.machine, artifact.where)
    for image in images.values():
        require_baseline(image.baseline, artifact.where)
    devices = tuple(sorted({Arch.parse(each) for each in archs.get("CUDA", ())}))
    problems = [lacking_arch(image.archs, devices) for image in images.values()]
    problem = next(filter(None, [*problems, *(lacking(row, devices) for row in kernels.values())]), "")
    if problem:
        raise LoadError(f"{artifact.where} can't run here: {problem}", hints=("export it for this GPU too: archs=",))
    for name, target in here.items():
        if target.stages != STAGES:
            register_image_target(name, artifact, PROCESS.registry)
            continue
        launcher = launcher_of(name, partial(artifact.library, target.image), platform=target.platform)
        for kernel, row in kernels.items():
            launcher.define(kernel_of(kernel, row, artifact.image))
