"""CUDA compiled by clang: its commands, and its host side and device side as commands that run at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from be_runtime.compile.clang.plan_clang import Packer, clang_compile, split_clang
from be_runtime.compile.machine import Machine
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.compile.run.programs import find_objcopy
from be_runtime.request.options import BuildRequest, CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain.arch import Arch
from be_toolchain.known import fatbin
from be_toolchain.model import CudaToolkit


class ClangCompiler(NamedTuple):
    """Clang's toolkit and the architectures that it compiles for; see `cuda_compiler.CudaCompiler`."""

    toolkit: CudaToolkit
    archs: tuple[Arch, ...]

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Clang with its flags.

        Raises
        ------
        ArgumentError
            An author's flag has no counterpart.
        """
        return clang_compile(self.toolkit, options, self.archs, includes)

    def device_link(self, _options: CompileOptions, /) -> None:
        """None: an author's flag that asks for relocatable device code is refused."""

    def phases(self, command: Sequence[str], unit: UnitFiles, machine: Machine, /) -> UnitBuild | None:
        """Both sides; None where objcopy, which joins them, is missing."""
        objcopy = find_objcopy(self.toolkit.host_compiler.path, machine.system)
        if objcopy is None:
            return None
        packer = Packer(sys.executable, fatbin.__file__, objcopy)
        return split_clang(command, unit, str(self.toolkit.ptxas), packer)

    def preamble(self, _command: Sequence[str], _request: BuildRequest, _tools: Tools, _machine: Machine, /) -> None:
        """None: clang's sides share no preprocessed text."""

    def asked(self) -> tuple[Path, ...]:
        """Nothing: clang's phases are known without asking it."""
        return ()
