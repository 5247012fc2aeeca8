"""Clang's host side and device side of a CUDA source, as commands that run at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from be_toolchain import fatbin
from be_toolchain.system import System

from .build.clang_cuda import Packer, split_clang
from .build.plan import UnitBuild
from .build.programs import find_objcopy


def clang_phases(
    command: Sequence[str], source: str, target: str, *, ptxas: Path, compiler: Path, system: System
) -> UnitBuild | None:
    """The phases of clang for one source, or None when it has to be run as a whole: objcopy is missing.

    Parameters
    ----------
    command : sequence of str
        Clang with its flags, without files.
    source, target : str
        The CUDA file and the object, relative to the build folder.
    ptxas, compiler : Path
    """
    objcopy = find_objcopy(compiler, system)
    if objcopy is None:
        return None
    return split_clang(command, source, target, str(ptxas), Packer(sys.executable, fatbin.__file__, objcopy))
