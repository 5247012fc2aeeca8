"""CUDA compiled by nvcc: its commands, its phases, and what is kept of the headers that its sources begin with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from be_runtime.compile.build_order import BuildOrder
from be_runtime.compile.nvcc.nvcc_flags import is_relocatable, nvcc_compile, nvcc_device_link
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.request.options import CompileOptions
from be_toolchain.arch import Arch
from be_toolchain.model import Nvcc

if TYPE_CHECKING:
    from be_runtime.compile.nvcc.keep_preamble import Preamble


class NvccCompiler(NamedTuple):
    """Nvcc and the architectures that it compiles for; see `cuda_compiler.CudaCompiler`."""

    nvcc: Nvcc
    archs: tuple[Arch, ...]

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Nvcc with its flags."""
        return nvcc_compile(self.nvcc, options, self.archs, includes)

    def device_link(self, options: CompileOptions, /) -> tuple[str, ...] | None:
        """``nvcc -dlink``, for the author's ``-rdc=true`` and the like."""
        return nvcc_device_link(self.nvcc, options, self.archs) if is_relocatable(options.cflags) else None

    def phases(self, command: Sequence[str], unit: UnitFiles, order: BuildOrder, /) -> UnitBuild | None:
        """The phases of nvcc's dry run."""
        from be_runtime.compile.nvcc.keep_phases import phases_for

        return phases_for(command, unit, order)

    def preamble(self, command: Sequence[str], order: BuildOrder, /) -> Preamble | None:
        """The preamble, for g++ behind nvcc's phases."""
        if self.nvcc.host.family != "gcc":
            return None
        from be_runtime.compile.nvcc.keep_preamble import find_preamble

        return find_preamble(command, order)

    def asked(self) -> tuple[Path, ...]:
        """Nvcc and its profile, which decide the dry run."""
        return (self.nvcc.path, self.nvcc.path.parent / "nvcc.profile")
