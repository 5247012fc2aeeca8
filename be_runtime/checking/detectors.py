"""The sanitizers on this machine: libraries of the C++ compiler, and compute-sanitizer."""

from __future__ import annotations

import sys
from pathlib import Path

from be_runtime.checking.children import Detectors
from be_toolchain import ToolchainRequest, resolve
from be_toolchain.errors import ToolchainError
from be_toolchain.machine.system import System
from be_toolchain.model import HostCompiler

_RUNTIMES = {
    "gcc": ("libasan.so", "libstdc++.so.6"),
    "clang": ("libclang_rt.asan.so", "libclang_rt.asan-x86_64.so", "libclang_rt.asan-aarch64.so", "libstdc++.so.6"),
}
"""Libraries by family of compilers: exceptions of a library that is not there at the start would not be found."""

_BELOW_TOOLKIT = ("bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer", "extras/compute-sanitizer")


def find_detectors(system: System, record_dir: Path) -> Detectors:
    """Find the sanitizers; parts that are missing are empty."""
    return Detectors(sys.executable, _asan_runtime(system, record_dir), _compute_sanitizer(system, record_dir))


def _asan_runtime(system: System, record_dir: Path) -> tuple[str, ...]:
    try:
        compiler = resolve(ToolchainRequest(), system=system, record_dir=record_dir).cxx
    except ToolchainError:
        return ()
    assert compiler is not None, "resolve() raises when there is no host compiler"
    found = [path for name in _RUNTIMES.get(compiler.family, ()) if (path := _library(compiler, name, system))]
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
