"""The launcher of this process: it is loaded on first use, registered with JAX, and given the kernels."""

from __future__ import annotations

import ctypes
from functools import partial

from be_runtime.kernels.cuda.describe import Kernel, KernelImage
from be_runtime.load.native_library import native_library
from be_runtime.load.pipeline import Session
from be_runtime.load.registry import Target
from be_runtime.xla import jax_port
from be_toolchain.machine.forks import ThreadLock

TARGET = "be_runtime.launch"
"""The FFI target of every launch."""


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
    """The loaded launcher and the kernels it knows.

    Parameters
    ----------
    session : Session
        Session that builds the launcher, if it is not in the cache, and registers its target.
    """

    def __init__(self, session: Session) -> None:
        library = native_library("launcher", session, ["-ldl"])
        self._define = library.be_launch_define
        self._define.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(_Image), ctypes.c_int64)
        self._define.restype = None
        self._known: set[str] = set()
        self._lock = ThreadLock()
        stages = {"instantiate": library.be_launch_instantiate, "execute": library.be_launch_execute}
        target = Target(name=TARGET, platform=jax_port.PLATFORMS["cuda"], content="launcher")
        session.registry.add([target], {TARGET: partial(jax_port.stage_capsules, stages)})

    def define(self, kernel: Kernel) -> None:
        """Give a kernel to the launcher before its first call; repeated calls do nothing."""
        with self._lock:
            if kernel.id in self._known:
                return
            images = (_Image * len(kernel.images))(*map(_as_struct, kernel.images))
            self._define(kernel.id.encode(), kernel.name.encode(), images, len(images))
            self._known.add(kernel.id)


def _as_struct(image: KernelImage) -> _Image:
    """Convert an image to C's struct; PTX gets a final zero byte."""
    data = image.data + b"\0" if image.is_ptx else image.data
    arch = image.arch.major * 10 + image.arch.minor
    is_exact = image.arch.suffix == "a"
    return _Image(arch, image.is_ptx, is_exact, image.form, image.entry.encode(), data, len(data))
