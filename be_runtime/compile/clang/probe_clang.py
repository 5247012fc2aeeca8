"""Clang's host side and device side of a CUDA source, as commands that run at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from be_runtime.compile.clang.plan_clang import Packer, split_clang
from be_runtime.compile.plan.build_plan import UnitBuild
from be_runtime.compile.plan.unit_files import UnitFiles
from be_runtime.compile.run.programs import find_objcopy
from be_toolchain.known import fatbin
from be_toolchain.machine.system import System


def clang_phases(
    command: Sequence[str], unit: UnitFiles, *, ptxas: Path, compiler: Path, system: System
) -> UnitBuild | None:
    """The phases of clang for one source, or None when it has to be run as a whole: objcopy is missing.

    Parameters
    ----------
    command : sequence of str
        Clang with its flags, without files.
    unit : UnitFiles
    ptxas, compiler : Path
    """
    objcopy = find_objcopy(compiler, system)
    if objcopy is None:
        return None
    return split_clang(command, unit, str(ptxas), Packer(sys.executable, fatbin.__file__, objcopy))
