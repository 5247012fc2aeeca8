"""The interface of CUDA compilers, and the choice among them; no other module lists the compilers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from be_runtime.compile.plan import BuildOrder, UnitBuild, UnitFiles
from be_runtime.request.options import CompileOptions
from be_runtime.request.tools import Tools
from be_toolchain.values import ClangCuda, Nvcc

if TYPE_CHECKING:
    from be_runtime.compile.nvcc_preamble import Preamble


class CudaCompiler(Protocol):
    """A compiler of CUDA sources."""

    def command(self, options: CompileOptions, includes: Sequence[str], /) -> tuple[str, ...]:
        """Return the command that compiles one of the author's units, without files."""

    def device_link(self, options: CompileOptions, /) -> tuple[str, ...] | None:
        """Return the command that links relocatable device code, without files; None if there is no such code."""

    def phases(self, command: Sequence[str], unit: UnitFiles, order: BuildOrder, /) -> UnitBuild | None:
        """Return the steps of `command` for one source as separate commands; None to run it as a whole."""

    def preamble(self, command: Sequence[str], order: BuildOrder, /) -> Preamble | None:
        """Return the precompiled beginning of all sources; None if there is none."""

    def phase_inputs(self) -> tuple[Path, ...]:
        """Return the files that decide the phases, apart from the files that the phases read."""


def cuda_compiler(tools: Tools) -> CudaCompiler:
    """Return the compiler of the CUDA toolkit in `tools`."""
    toolkit, archs = tools.cuda, tools.archs
    assert toolkit is not None, "a CUDA module has a toolkit"
    match toolkit.compiler:
        case Nvcc() as nvcc:
            from be_runtime.compile.nvcc import NvccCompiler

            return NvccCompiler(nvcc, archs)
        case ClangCuda():
            from be_runtime.compile.clang import ClangCompiler

            return ClangCompiler(toolkit, archs)
