"""One call of a kernel inside a JAX program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from be_runtime.kernels.cuda.describe import Geometry, Kernel, LaunchParam, encode_params
from be_runtime.kernels.cuda.launcher import TARGET, Launcher
from be_runtime.load.pipeline import Session
from be_runtime.load.process import PROCESS
from be_runtime.request.tools import no_architecture, wanted_archs
from be_runtime.xla import jax_port
from be_toolchain.arch import Arch
from be_toolchain.find.device_memory import device_archs


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
    kernel: Kernel,
    geometry: Geometry,
    params: Sequence[LaunchParam],
    arrays: Sequence[Any],
    outs: Sequence[Any],
    *,
    session: Session,
    vmap_method: str | None,
    aliases: Mapping[int, int],
) -> Sequence[Any]:
    """Call a kernel, and return one array for each of `outs`.

    Raises
    ------
    ToolchainError, BuildError, LoadError
        The launcher can't be compiled or loaded.
    """
    import numpy as np

    launcher = PROCESS.only(Launcher, lambda: Launcher(session))
    launcher.define(kernel)
    return jax_port.call(
        TARGET,
        outs,
        arrays,
        vmap_method=vmap_method,
        input_output_aliases=aliases,
        kernel=kernel.id,
        launch=np.array(geometry.encode(), np.int64),
        name=kernel.name,
        params=np.array(encode_params(params), np.int64),
    )
