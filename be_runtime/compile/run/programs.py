"""The programs that a build runs beside the compilers: ninja, a fast linker, objcopy."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from be_runtime.errors import BuildError
from be_toolchain.machine.system import System


def resolve_ninja(system: System) -> Path:
    """The ninja program: the one of this Python environment, else PATH's.

    Raises
    ------
    BuildError
        There is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "ninja"
    found = beside if system.is_program(beside) else system.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed", hints=("pip install ninja, or conda install ninja",))
    return found


def fast_linker_flags(compiler: Path, system: System) -> tuple[str, ...]:
    """The flag for a linker that is faster than the compiler's own, if its folder has one; an author's comes later."""
    folder = system.realpath(compiler.parent)
    found = (name for name in ("lld", "gold") if system.is_program(folder / f"ld.{name}"))
    return tuple(f"-fuse-ld={name}" for name in found)[:1]


def find_objcopy(compiler: Path, system: System) -> str | None:
    """The program that edits objects, best the one that belongs to the compiler."""
    triple = re.sub(r"(clang\+\+|g\+\+|c\+\+)(-\d+)?$", "", compiler.name)
    names = (str(compiler.parent / f"{triple}objcopy"), f"{triple}objcopy", "objcopy", "llvm-objcopy")
    return next((str(found) for name in names if (found := system.which(name))), None)
