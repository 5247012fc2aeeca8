"""The programs that a build runs besides the compilers: ninja, a fast linker, objcopy."""

from __future__ import annotations

import re
import sysconfig
from pathlib import Path

from be_runtime.errors import BuildError
from be_toolchain.machine.system import System


def resolve_ninja(system: System) -> Path:
    """Find the ninja program: in this Python environment, else on PATH.

    Raises
    ------
    BuildError
        Ninja is not installed.
    """
    beside = Path(sysconfig.get_path("scripts")) / "ninja"
    found = beside if system.is_program(beside) else system.which("ninja")
    if found is None:
        raise BuildError("ninja is not installed", hints=("pip install ninja, or conda install ninja",))
    return found


def fast_linker_flags(compiler: Path, system: System) -> tuple[str, ...]:
    """Return the flag for a faster linker than the compiler's, if its folder has one; an author's flag comes later."""
    folder = system.realpath(compiler.parent)
    found = (name for name in ("lld", "gold") if system.is_program(folder / f"ld.{name}"))
    return tuple(f"-fuse-ld={name}" for name in found)[:1]


def find_objcopy(compiler: Path, system: System) -> str | None:
    """Find the program that edits objects, preferably the compiler's own."""
    triple = re.sub(r"(clang\+\+|g\+\+|c\+\+)(-\d+)?$", "", compiler.name)
    names = (str(compiler.parent / f"{triple}objcopy"), f"{triple}objcopy", "objcopy", "llvm-objcopy")
    return next((str(found) for name in names if (found := system.which(name))), None)
