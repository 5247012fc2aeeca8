"""How a CUDA source is compiled: one interface, and the one place that knows which compilers there are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from be_runtime.compile.machine import Machine
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.request.options import BuildRequest, CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain.model import ClangCuda, Nvcc

if TYPE_CHECKING:
    from be_runtime.compile.nvcc.keep_preamble import Preamble


class CudaCompiler(Protocol):
    """A compiler of CUDA sources."""

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """The command for one author unit, up to the files."""

    def device_link(self, options: CompileOptions, /) -> tuple[str, ...] | None:
        """The command that links relocatable device code, up to the files; None where none is asked for."""

    def phases(self, command: Sequence[str], unit: UnitFiles, machine: Machine, /) -> UnitBuild | None:
        """The steps of `command` for one source as commands of their own; None to run it as a whole."""

    def preamble(
        self, command: Sequence[str], request: BuildRequest, tools: Tools, machine: Machine, /
    ) -> Preamble | None:
        """The precompiled beginning of all sources; None where there is none."""

    def asked(self) -> tuple[Path, ...]:
        """The files that decide the phases and that no command of theirs reads."""


def cuda_compiler(tools: Tools) -> CudaCompiler:
    """The compiler of the CUDA toolkit in `tools`."""
    toolkit, archs = tools.cuda, tools.archs
    assert toolkit is not None, "a CUDA module has a toolkit"
    match toolkit.compiler:
        case Nvcc() as nvcc:
            from be_runtime.compile.nvcc.nvcc_compiler import NvccCompiler

            return NvccCompiler(nvcc, archs)
        case ClangCuda():
            from be_runtime.compile.clang.clang_compiler import ClangCompiler

            return ClangCompiler(toolkit, archs)
