"""The sanitizers on this machine: libraries of the C++ compiler, valgrind and compute-sanitizer."""

from __future__ import annotations

import sys
from pathlib import Path

from be_runtime.checking.children import SANITIZED, Detectors, Tool
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.system import System
from be_toolchain.model import HostCompiler

_RUNTIMES = {
    "gcc": ("lib{}.so",),
    "clang": ("libclang_rt.{}.so", "libclang_rt.{}-x86_64.so", "libclang_rt.{}-aarch64.so"),
}
"""Names of a sanitizer's library by family of compilers."""

_BELOW_TOOLKIT = ("bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer", "extras/compute-sanitizer")


def find_detectors(system: System, record_dir: Path) -> Detectors:
    """Find the sanitizers; parts that are missing are empty."""
    preload = {tool: _runtime(tool, system, record_dir) for tool in SANITIZED}
    return Detectors(
        sys.executable,
        {tool: libraries for tool, libraries in preload.items() if libraries},
        str(system.which("valgrind") or ""),
        _compute_sanitizer(system, record_dir),
    )


def _runtime(tool: Tool, system: System, record_dir: Path) -> tuple[str, ...]:
    """Return a sanitizer's library, and that of C++, without which exceptions of later libraries are not found."""
    try:
        compiler = resolve(ToolchainRequest(), system=system, record_dir=record_dir).cxx
    except ToolchainError:
        return ()
    assert compiler is not None, "resolve() raises when there is no host compiler"
    names = [name.format(tool) for name in _RUNTIMES.get(compiler.family, ())]
    found = [path for name in (*names, "libstdc++.so.6") if (path := _library(compiler, name, system))]
    return tuple(found) if len(found) > 1 else ()


def _library(compiler: HostCompiler, name: str, system: System) -> str:
    """Return the path of one of the compiler's libraries; the compiler repeats the name of one that it lacks."""
    said = system.run((str(compiler.path), f"-print-file-name={name}")).stdout.strip()
    return said if Path(said).is_absolute() and system.is_file(Path(said)) else ""


def _compute_sanitizer(system: System, record_dir: Path) -> str:
    """Return the program on PATH, or of the CUDA toolkit."""
    on_path = system.which("compute-sanitizer")
    if on_path is not None:
        return str(on_path)
    try:
        toolkit = resolve(ToolchainRequest(need_cuda=True), system=system, record_dir=record_dir).cuda
    except ToolchainError:
        return ""
    places = [toolkit.root / name for name in _BELOW_TOOLKIT] if toolkit is not None else []
    return next((str(place) for place in places if system.is_program(place)), "")
