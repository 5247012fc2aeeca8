"""Launchers in this process: the session's own, and those that bundles bring; each is registered and given kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial

from be_runtime.kernels.cuda.describe import Kernel, KernelImage
from be_runtime.load.native_library import native_library
from be_runtime.load.pipeline import Session
from be_runtime.load.process import PROCESS
from be_runtime.load.registry import Registry, Target
from be_runtime.xla import jax_port
from be_toolchain.machine.forks import ThreadLock

TARGET = "be_runtime.launch"
"""The FFI target of every launch by the session's own launcher."""

SYMBOL = "be_launch"
"""The last part of the target's name of a launcher in a bundle."""

STAGES = {"instantiate": "be_launch_instantiate", "execute": "be_launch_execute"}
"""Symbols of a launcher's handlers."""

NATIVE, LDFLAGS = "launcher", ("-ldl",)
"""Name of the launcher's source, and what it is linked with."""


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
    """

    def __init__(self, library: ctypes.CDLL, target: str, registry: Registry) -> None:
        self.target = target
        self._define = library.be_launch_define
        self._define.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Image), ctypes.c_int64)
        self._define.restype = None
        self._known: set[str] = set()
        self._lock = ThreadLock()
        stages = {stage: getattr(library, symbol) for stage, symbol in STAGES.items()}
        row = Target(name=target, platform=jax_port.PLATFORMS["cuda"], content="launcher")
        registry.add([row], {target: partial(jax_port.stage_capsules, stages)})

    def define(self, kernel: Kernel) -> None:
        """Give a kernel to the launcher before its first call; repeated calls do nothing."""
        with self._lock:
            if kernel.id in self._known:
                return
            images = (_Image * len(kernel.images))(*map(_as_struct, kernel.images))
            self._define(kernel.id.encode(), kernel.name.encode(), images, len(images))
            self._known.add(kernel.id)


class _Launchers:
    """The launchers of a process by their targets."""

    def __init__(self) -> None:
        self._made: dict[str, Launcher] = {}
        self._lock = ThreadLock()

    def get(self, target: str, load: Callable[[], ctypes.CDLL], registry: Registry) -> Launcher:
        """Return the launcher of a target, loaded and registered on first use."""
        with self._lock:
            if target not in self._made:
                self._made[target] = Launcher(load(), target, registry)
            return self._made[target]


def launcher_of(target: str, load: Callable[[], ctypes.CDLL], registry: Registry) -> Launcher:
    """Return this process's launcher of a target.

    Parameters
    ----------
    target : str
    load : callable
        Function that loads its library, called on first use.
    registry : Registry
    """
    return PROCESS.only(_Launchers, _Launchers).get(target, load, registry)


def own_launcher(session: Session) -> Launcher:
    """Return the launcher that a session builds, if it is not in the cache.

    Raises
    ------
    ToolchainError, BuildError, LoadError
        It can't be compiled or loaded.
    """
    return launcher_of(TARGET, lambda: native_library(NATIVE, session, LDFLAGS), session.registry)


def _as_struct(image: KernelImage) -> _Image:
    """Convert an image to C's struct; PTX gets a final zero byte."""
    data = image.data + b"\0" if image.is_ptx else image.data
    arch = image.arch.major * 10 + image.arch.minor
    is_exact = image.arch.suffix == "a"
    return _Image(arch, image.is_ptx, is_exact, image.form, image.entry.encode(), data, len(data))
