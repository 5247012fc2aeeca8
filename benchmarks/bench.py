"""Where rows run: the compilers, a scratch folder, how often to repeat, and how to start processes."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from be_toolchain import CudaToolkit, HostCompiler, ToolchainError, ToolchainRequest, probe_devices, resolve
from be_toolchain.find.devices import Device
from be_toolchain.machine.local_system import LocalSystem

from .stats import alternating

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "kernels"
_CHILDREN = HERE / "children"
_ARCH_WITHOUT_DEVICE = "sm_90"
# They would change what is measured: a compiler cache, output, other folders, and imports that compile every module.
_DROPPED = (
    "BE_COMPILER_LAUNCHER",
    "BE_REMOTE_CACHE",
    "BE_VERBOSE",
    "BRAINEVENT_CACHE_DIR",
    "PYTHONDONTWRITEBYTECODE",
    "XLA_FLAGS",
)
_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a row measures with.

    Parameters
    ----------
    scratch : Path
        A temporary folder.
    cxx : HostCompiler
        The C++ compiler that the toolchain chose, for ours and for what it is compared with.
    cuda : CudaToolkit or None
        None where there is no complete one.
    device : Device or None
        The first visible GPU.
    repeat : int or None
        Rounds of every row, instead of the row's own number.
    quick : bool
        Just enough rounds to see that everything works.
    """

    scratch: Path
    cxx: HostCompiler
    cuda: CudaToolkit | None
    device: Device | None
    repeat: int | None = None
    quick: bool = False
    _numbers: itertools.count[int] = field(default_factory=itertools.count, repr=False)

    def rounds(self, full: int, quick: int = 2) -> int:
        """How often to measure."""
        return self.repeat or (quick if self.quick else full)

    def folder(self, stem: str) -> Path:
        """A new, empty folder."""
        path = self.scratch / self.unique(stem)
        path.mkdir()
        return path

    def unique(self, stem: str) -> str:
        """A name that no other call returns."""
        return f"{stem}_{next(self._numbers)}"

    @property
    def arch(self) -> str:
        """The architecture that device code is compiled for, such as ``"sm_90"``."""
        return self.device.arch.sm if self.device is not None else _ARCH_WITHOUT_DEVICE

    def child(
        self, script: str, *arguments: str, cache: Path, python: str | None = None, **variables: str | None
    ) -> Any:
        """Run a script of `benchmarks/children` in a fresh Python and give back what it prints as JSON.

        Parameters
        ----------
        cache : Path
            Its cache folder.
        python : str, optional
            Another Python than this one.
        **variables
            Environment variables to set; None removes one.
        """
        command = (python or sys.executable, str(_CHILDREN / script), *arguments)
        done = _run(command, child_environment(os.environ, cache, variables))
        return json.loads(done.splitlines()[-1])

    def timed(self, command: Sequence[str]) -> float:
        """Seconds that a command takes, its start included."""
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        start = time.perf_counter()
        _run(command, environment)
        return time.perf_counter() - start


def prepare(scratch: Path, *, repeat: int | None, quick: bool) -> Bench:
    """Find the compilers and the GPU."""
    toolchain = resolve(ToolchainRequest())
    assert toolchain.cxx is not None, "resolve() raises when there is no host compiler"
    try:
        cuda = resolve(ToolchainRequest(need_cuda=True)).cuda
    except ToolchainError:
        cuda = None
    devices = probe_devices(LocalSystem()).devices
    return Bench(
        scratch=scratch,
        cxx=toolchain.cxx,
        cuda=cuda,
        device=devices[0] if devices else None,
        repeat=repeat,
        quick=quick,
    )


def child_environment(environ: Mapping[str, str], cache: Path, variables: Mapping[str, str | None]) -> dict[str, str]:
    """A child's environment: this checkout before any installed copy, a cache of its own, no compiler cache.

    A variable of value None is left out.
    """
    kept = {name: value for name, value in environ.items() if name not in _DROPPED}
    search = (str(HERE.parent), *filter(None, [kept.get("PYTHONPATH")]))
    ours = {
        "PYTHONPATH": os.pathsep.join(search),
        "BE_CACHE_DIR": str(cache),
        "CCACHE_DISABLE": "1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    return {name: value for name, value in {**kept, **ours, **variables}.items() if value is not None}


def interleave(contestants: Sequence[str], rounds: int) -> list[str]:
    """Every round's contestants in one list; see `stats.alternating`."""
    return [name for order in alternating(contestants, rounds) for name in order]


def _run(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """What a command prints; a failure shows all that it said."""
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout
