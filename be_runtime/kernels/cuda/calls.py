"""One call of a kernel inside a JAX program."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from be_runtime.call.compiled_function import Converted
from be_runtime.call.tracing import KernelTarget
from be_runtime.kernels.cuda.describe import Geometry, Kernel, LaunchParam, encode_params
from be_runtime.kernels.cuda.launcher import Again, Launcher
from be_runtime.load.process import PROCESS
from be_runtime.load.session import Session
from be_runtime.request.tools import no_architecture, wanted_archs
from be_runtime.xla.attribute_values import Numbers
from be_toolchain.arch import Arch
from be_toolchain.find.device_memory import device_archs


class Obtained(NamedTuple):
    """A kernel, the launcher for its calls, and a function that compiles it for other architectures."""

    kernel: Kernel
    launcher: Launcher
    again: Again | None = None


def new_session() -> Session:
    """Return the session in which a kernel is made, from the process's current settings."""
    return PROCESS.session()


def choose_archs(asked: str | None, session: Session) -> tuple[Arch, ...]:
    """Choose the architectures to compile for: the requested ones, else those of the devices present.

    Raises
    ------
    ArgumentError
        No architecture is requested, and none can be detected.
    """
    archs = wanted_archs(
        asked,
        session.archs,
        session.settings,
        lambda: device_archs(session.system, record_dir=session.record_dir),
    )
    if not archs:
        raise no_architecture("the architecture to compile for is not known")
    return archs


def launch(
    obtained: Obtained, geometry: Geometry, params: Sequence[LaunchParam], local: tuple[str, ...] | None
) -> KernelTarget:
    """Make a kernel known to its launcher, and return what a call of it calls.

    Parameters
    ----------
    local : tuple of str, or None
        Numbers of the geometry as arithmetic over the axes of one device, see `Sizes.local`.
    """
    kernel, launcher, again = obtained
    launcher.define(kernel, again)
    attributes: Converted = (
        ("kernel", kernel.id),
        ("launch", _words(geometry.encode())),
        ("name", kernel.name),
        ("params", _words(encode_params(params))),
    )
    return KernelTarget((("cuda", launcher.target),), attributes, None if local is None else (("launch", local),))


def _words(numbers: Sequence[int]) -> Numbers:
    return Numbers("int64", struct.pack(f"={len(numbers)}q", *numbers), is_array=True)
