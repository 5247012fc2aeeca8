"""What tests of whole loads share: calls of a target, Python processes of their own, stand-ins for the compiler."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import requirements

ROOT = Path(__file__).resolve().parents[2]


PRINTING = {
    "CC_PRINT_OPTIONS": "1",
    "CLICOLOR_FORCE": "1",
    "FORCE_COLOR": "1",
    "GCC_COLORS": "error=01;31:locus=01",
    "GCC_EXTRA_DIAGNOSTIC_OUTPUT": "fixits-v2",
    "GCC_URLS": "st",
    "LANG": "de_DE.UTF-8",
    "LANGUAGE": "de:fr",
    "LC_MESSAGES": "de_DE.UTF-8",
    "MAKEFLAGS": "-j4 --jobserver-auth=3,4",
    "NINJA_STATUS": "[%f/%t] ",
    "SHELLOPTS": "xtrace",
    "TERM": "xterm-256color",
}
"""Variables that have programs print otherwise, and what people or their surroundings set them to."""


def call(target: str, out: Any, *args: Any, **attrs: Any) -> Any:
    """A jitted call of a target; `out` is a ShapeDtypeStruct or a sequence of them."""
    import jax

    def run(*arrays: Any) -> Any:
        caller: Any = jax.ffi.ffi_call(target, out)
        return caller(*arrays, **attrs)

    jitted: Any = jax.jit(run)
    return jitted(*args)


def libraries(cache: Path) -> list[Path]:
    """Every library that a cache holds, the oldest first."""
    return sorted(cache.glob("**/images/*.so"), key=lambda path: path.stat().st_mtime_ns)


def real_compiler() -> str:
    """The C++ compiler that stand-ins hand over to."""
    found = requirements.host_compiler()
    assert found is not None, "the tier needs one"
    return found


def script(path: Path, *lines: str) -> Path:
    """An executable shell script."""
    path.write_text("\n".join(("#!/bin/sh", *lines, "")), encoding="utf-8")
    path.chmod(0o755)
    return path


def forwarding_compiler(path: Path, *before: str) -> Path:
    """A compiler that runs some lines of shell before each compilation and link of a module, then does as the real one.

    The library that records what compilers look at is C: it is compiled without those lines.
    """
    guarded = [f"case \" $* \" in *' -x c '*) ;; *' -o '*) {line} ;; esac" for line in before]
    return script(path, *guarded, f'exec {real_compiler()} "$@"')


def environment(**changes: str | None) -> dict[str, str]:
    """This process's environment for a child that imports the packages under test; None removes a variable."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", **changes}
    return {name: value for name, value in environ.items() if value is not None}


def run_python(
    code: str, *args: str, env: Mapping[str, str] | None = None, cwd: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a process of its own."""
    argv = [sys.executable, "-W", "error::ResourceWarning", "-c", code, *args]
    done = subprocess.run(
        argv, env=env or environment(), cwd=cwd, capture_output=True, text=True, timeout=840, check=False
    )
    if check and done.returncode != 0:
        raise AssertionError(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def processes_with(mark: str) -> Sequence[str]:
    """Command lines of the running processes that mention `mark`, zombies aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name):
            try:
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            except OSError:
                continue
            if mark in words:
                found.append(words)
    return found


def without_compilers(folder: Path) -> str:
    """A PATH with the shell's usual programs and no compiler."""
    folder.mkdir(exist_ok=True)
    for name in ("sh", "uname", "env"):
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)
