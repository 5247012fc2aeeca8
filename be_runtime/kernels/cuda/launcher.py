"""Launchers in this process: our own, and those that bundles bring; each is registered and given kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from be_runtime.bundle.carried import Carried, Demand, carried_library
from be_runtime.bundle.index import CodeImage
from be_runtime.bundle.mapped_images import library_bytes
from be_runtime.errors import GeneratorError
from be_runtime.kernels.cuda.describe import Kernel, KernelImage
from be_runtime.kernels.cuda.images import kernel_record
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Registry, Target
from be_runtime.load.session import Session
from be_runtime.xla import jax_port
from be_toolchain.arch import Arch
from be_toolchain.machine.forks import ThreadLock

TARGET = "be_runtime.launch"
"""The FFI target of every launch by the session's own launcher."""

SYMBOL = "be_launch"
"""The last part of the target's name of a launcher in a bundle."""

STAGES = {"instantiate": "be_launch_instantiate", "execute": "be_launch_execute"}
"""Symbols of a launcher's handlers."""


_NATIVE, _LDFLAGS = "launcher", ("-ldl",)


Again = Callable[[tuple[Arch, ...]], Kernel]
"""Function that compiles a kernel for other architectures."""


class _Image(ctypes.Structure):
    """``be_launch_image`` of ``native/launcher.cc``."""

    _fields_ = (
        ("arch", ctypes.c_int32),
        ("is_ptx", ctypes.c_int32),
        ("is_exact", ctypes.c_int32),
        ("form", ctypes.c_int32),
        ("entry", ctypes.c_char_p),
        ("data", ctypes.c_char_p),
        ("size", ctypes.c_int64),
    )


class Launcher:
    """A loaded launcher and the kernels it knows.

    Parameters
    ----------
    library : ctypes.CDLL
    target : str
        Name of its target, which is registered.
    registry : Registry
    read : callable
        Function that returns the library's bytes for exported programs.
    """

    def __init__(self, library: ctypes.CDLL, target: str, registry: Registry, read: Callable[[], bytes]) -> None:
        self.target = target
        self._read = read
        self._define = library.be_launch_define
        self._define.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Image), ctypes.c_int64)
        self._define.restype = None
        self._known: dict[str, tuple[Kernel, Again | None]] = {}
        self._lock = ThreadLock()
        stages = {stage: getattr(library, symbol) for stage, symbol in STAGES.items()}
        row = Target(name=target, platform=jax_port.PLATFORMS["cuda"], content="launcher", carry=self.carry)
        registry.add([row], {target: partial(jax_port.stage_capsules, stages)})

    def define(self, kernel: Kernel, again: Again | None = None) -> None:
        """Give a kernel to the launcher before its first call; repeated calls do nothing.

        Parameters
        ----------
        kernel : Kernel
        again : callable, optional
            Function that compiles it for other architectures, for exported programs.
        """
        with self._lock:
            if kernel.id in self._known:
                return
            images = (_Image * len(kernel.images))(*map(_as_struct, kernel.images))
            self._define(kernel.id.encode(), kernel.name.encode(), images, len(images))
            self._known[kernel.id] = (kernel, again)

    def carry(self, wanted: Demand) -> Carried:
        """Return what an exported program carries of a kernel: the launcher, and the images that are asked for.

        Raises
        ------
        GeneratorError
            There are no images for an architecture that is asked for, and they can't be compiled.
        """
        kernel = _for_archs(*self._known[wanted.kernel], tuple(map(Arch.parse, wanted.archs)))
        name, row, images = kernel_record(kernel)
        made = carried_launcher(self._read())
        return made._replace(images={**made.images, **images}, kernel=name, kernels={name: row})


class _Launchers:
    """The launchers of a process by their targets."""

    def __init__(self) -> None:
        self._made: dict[str, Launcher] = {}
        self._lock = ThreadLock()

    def get(
        self,
        target: str,
        load: Callable[[], ctypes.CDLL],
        registry: Registry,
        read: Callable[[], bytes] | None,
    ) -> Launcher:
        """Return the launcher of a target, loaded and registered on first use."""
        with self._lock:
            if target not in self._made:
                library = load()
                self._made[target] = Launcher(library, target, registry, read or partial(library_bytes, library))
            return self._made[target]


def launcher_of(
    target: str,
    load: Callable[[], ctypes.CDLL],
    registry: Registry,
    read: Callable[[], bytes] | None = None,
) -> Launcher:
    """Return this process's launcher of a target.

    Parameters
    ----------
    target : str
    load : callable
        Function that loads its library, called on first use.
    registry : Registry
    read : callable, optional
        Function that returns the bytes of the library for exported programs; by default those that are loaded.
    """
    return PROCESS.only(_Launchers, _Launchers).get(target, load, registry, read)


def own_launcher(session: Session) -> Launcher:
    """Return the launcher that a session builds, if it is not in the cache.

    Raises
    ------
    ToolchainError, BuildError, LoadError
        It can't be compiled or loaded.
    """
    from be_runtime.load.native_library import native_library

    return launcher_of(
        TARGET,
        lambda: native_library(_NATIVE, session, _LDFLAGS),
        session.registry,
        lambda: launcher_image(session),
    )


def launcher_image(session: Session) -> bytes:
    """Return the launcher's library, for a bundle."""
    from be_runtime.load.native_library import native_image

    return native_image(_NATIVE, session, _LDFLAGS)


def carried_launcher(data: bytes) -> Carried:
    """Return a launcher's library as bundles carry it."""
    image = CodeImage("library", jax_port.PLATFORMS["cuda"], len(data))
    return carried_library(image, data, STAGES)._replace(symbol=SYMBOL)


def _for_archs(kernel: Kernel, again: Again | None, archs: tuple[Arch, ...]) -> Kernel:
    """Return a kernel with the images of some architectures, and PTX for later ones where it can be compiled."""
    built = tuple(dict.fromkeys(image.arch for image in kernel.images))
    lacking = sorted({*archs} - {*built})
    if lacking and again is None:
        raise GeneratorError(
            f"the kernel {kernel.name} was built for {', '.join(map(str, built))} ahead of time, and not for "
            f"{', '.join(map(str, lacking))}",
            hints=("export for the architectures that it was built for", "or build its package for the others"),
        )
    made = kernel if again is None else again(archs or built)
    if (made.batch_axis, made.is_cooperative) != (kernel.batch_axis, kernel.is_cooperative):
        raise GeneratorError(
            f"the kernel {kernel.name} is launched in another way on {', '.join(map(str, archs))} than on the GPU here",
            hints=("export for these architectures in a process of their own: set_compute_capabilities(...)",),
        )
    return made._replace(images=tuple(image for image in made.images if not archs or image.arch in archs))


def _as_struct(image: KernelImage) -> _Image:
    """Convert an image to C's struct; PTX gets a final zero byte."""
    data = image.data + b"\0" if image.is_ptx else image.data
    arch = image.arch.major * 10 + image.arch.minor
    is_exact = image.arch.suffix == "a"
    return _Image(arch, image.is_ptx, is_exact, image.form, image.entry.encode(), data, len(data))
