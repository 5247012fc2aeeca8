"""`load_exported`: an exported program is checked, its kernels are mapped and registered, and it can be called."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from be_runtime.bundle.archs import lacking_arch
from be_runtime.bundle.baseline import require_baseline, require_machine
from be_runtime.bundle.index import reading
from be_runtime.bundle.mapped_images import Bundle
from be_runtime.errors import ArgumentError, LoadError
from be_runtime.frames import public
from be_runtime.kernels.cuda.images import kernel_of, lacking
from be_runtime.kernels.cuda.launcher import STAGES, launcher_of
from be_runtime.load.image_target import register_image_target
from be_runtime.load.process import PROCESS
from be_runtime.request.arguments import StrPath
from be_runtime.request.options import check_path
from be_runtime.ship.programs.container import PROGRAM, open_container
from be_runtime.xla import jax_export
from be_toolchain.arch import Arch
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.trust.regular_file import LARGEST, open_regular, read_beginning


class LoadedProgram:
    """A program whose kernels are registered in this process.

    Parameters
    ----------
    program : jax.export.Exported
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self.call: Callable[..., Any] = jax_export.callable_program(program)
        """The program, as a function of arrays; it may be called in jitted functions."""

    @property
    def in_avals(self) -> Sequence[Any]:
        """The shapes and dtypes of the arguments, flattened."""
        return tuple(self._program.in_avals)

    @property
    def out_avals(self) -> Sequence[Any]:
        """The shapes and dtypes of the results, flattened."""
        return tuple(self._program.out_avals)

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms that it was exported for, such as ``"cpu"``."""
        return tuple(self._program.platforms)

    @property
    def nr_devices(self) -> int:
        """The number of devices that it runs on."""
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
    """Load an exported program: this runs its code, so load what you trust.

    Its kernels are registered once in a process, under names that contain their hashes. Those of a platform that this
    machine lacks are left out. Nothing is compiled, and no file is written. JAX's backends are started.

    Parameters
    ----------
    data_or_path : bytes, str or Path
        What `export` returned, or its file, which nobody else may be able to write.
    expected_sha256 : str, optional
        Hash of all bytes; others are refused before anything of them is read.
    verify : callable, optional
        Function that is given the bytes before anything of them is read, such as a check of a signature: it raises, or
        returns False, to refuse them.

    Returns
    -------
    LoadedProgram
        ``program.call(...)`` takes the arguments of the exported function.

    Raises
    ------
    LoadError
        It is damaged, not the expected one, of another release's format, or for other machines.
    ArgumentError
        An argument is of the wrong type, or the file can't be read.
    """
    if isinstance(data_or_path, (bytes, bytearray, memoryview)):
        data, where = bytes(data_or_path), "the exported program"
    else:
        path = check_path(data_or_path, "data_or_path")
        data, where = _read(path), str(path)
    _accept(data, where, expected_sha256, verify)
    bundle = open_container(data, where)
    with reading(where):
        read = jax_export.read_program(bundle.file(PROGRAM), bundle.table.program)
        _register(bundle)
    return LoadedProgram(read)


def _read(path: Path) -> bytes:
    """Read a file that nobody else can write or replace."""
    try:
        with open_regular(path) as file:
            problem = LocalSystem().distrust(path.absolute())
            if problem:
                raise LoadError(
                    f"code is not loaded from {path}: {problem}",
                    hints=("copy it to a folder of your own", "or take the right to write from others: chmod go-w"),
                )
            return read_beginning(file, LARGEST)
    except OSError as error:
        raise ArgumentError(f"{path} can't be read: {error.strerror}") from error


def _accept(data: bytes, where: str, expected_sha256: str | None, verify: Callable[[bytes], object] | None) -> None:
    """Check a program's bytes as the caller asks, before anything is read of them."""
    if expected_sha256 is not None:
        found = hashlib.sha256(data).hexdigest()
        if found != str(expected_sha256).lower():
            raise LoadError(f"{where} is not the expected program: its sha256 is {found}, and not {expected_sha256}")
    if verify is not None and verify(data) is False:
        raise LoadError(f"{where} is refused: verify returned False")


def _register(bundle: Bundle) -> None:
    """Check everything that is used here, then map and register it."""
    index, archs = bundle.table, jax_export.device_archs()
    here = {name: target for name, target in index.targets.items() if target.platform in archs}
    kernels = index.kernels if any(target.stages == STAGES for target in here.values()) else {}
    used = {target.image for target in here.values()}
    _check(bundle, used, kernels, tuple(sorted({Arch.parse(each) for each in archs.get("CUDA", ())})))
    for name, target in here.items():
        if target.stages != STAGES:
            register_image_target(name, bundle, PROCESS.registry)
            continue
        launcher = launcher_of(name, partial(bundle.library, target.image), PROCESS.registry)
        for kernel, row in kernels.items():
            launcher.define(kernel_of(kernel, row, bundle.image))


def _check(bundle: Bundle, used: Collection[str], kernels: Mapping[str, Any], devices: tuple[Arch, ...]) -> None:
    """Check machine, level and architectures of the images that are used here.

    Raises
    ------
    LoadError
        An image is not for this machine.
    """
    if used:
        require_machine(bundle.table.machine, bundle.where)
    for digest in used:
        require_baseline(bundle.table.images[digest].baseline, bundle.where)
    problems = [lacking_arch(image.archs, devices) for image in (bundle.table.images[digest] for digest in used)]
    problem = next(filter(None, [*problems, *(lacking(row, devices) for row in kernels.values())]), "")
    if problem:
        raise LoadError(f"{bundle.where} can't run here: {problem}", hints=("export it for this GPU too: archs=",))
