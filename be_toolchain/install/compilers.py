"""Folders that act as compilers: the CUDA 12 wheels joined for clang, and zig under the name clang++."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from be_toolchain.known import fatbin, layouts
from be_toolchain.machine.system import System

_NO_CURAND = """\
/* clang includes this header of cuRAND before every CUDA source, for the types of blockDim and threadIdx in it. It
   comes with the wheel nvidia-curand-cu12, whose headers, where they are searched, come before this one. */
"""

_PROBE = """\
#include <cuda_fp16.h>
#include <nv/target>

__global__ void twice(const __half* x, float* out) { out[threadIdx.x] = 2.0f * __half2float(x[threadIdx.x]); }
void launch(const __half* x, float* out) { twice<<<1, 32>>>(x, out); }
"""

_FOLDERS = ("bin", "include", "lib", "nvvm")
_PROBE_ARCH = "sm_80"
_PROBE_S = 120.0


def join_wheels(tree: Path, versions: dict[str, str]) -> Path:
    """Join the CUDA 12 wheels below a folder by relative links; the wheels' own files stay as they are.

    Parameters
    ----------
    tree : Path
        The folder into which the wheels were installed, as into site-packages.
    versions : dict of str to str
        The wheels and their versions.

    Returns
    -------
    Path
        The joined folder: ``bin``, ``include``, ``lib``, ``nvvm``, our ``fatbinary``, ``version.json``.
    """
    root = tree / layouts.CLANG_ROOT
    for folder in _FOLDERS:
        parts = (tree / part / folder for part in layouts.CUDA12_PARTS)
        _join(root / folder, [part for part in parts if part.is_dir()])
    (root / "lib64").symlink_to("lib")
    packer = root / "bin" / "fatbinary"
    packer.write_text(f"#!/usr/bin/env python3\n{Path(fatbin.__file__).read_text(encoding='utf-8')}", encoding="utf-8")
    packer.chmod(0o755)
    curand = root / "include" / "curand_mtgp32_kernel.h"
    if not curand.exists():
        curand.write_text(_NO_CURAND, encoding="utf-8")
    rows = {name: {"name": name, "version": version} for name, version in versions.items()}
    (root / "version.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    return root


def _join(target: Path, sources: Sequence[Path]) -> None:
    """Link the entries of several folders into one; join subfolders of the same name."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        for entry in sorted(source.iterdir()):
            if entry.name not in {"__init__.py", "__pycache__"}:
                found.setdefault(entry.name, []).append(entry)
    target.mkdir(parents=True)
    for name, entries in found.items():
        if len(entries) > 1 and entries[0].is_dir():
            _join(target / name, entries)
        else:
            (target / name).symlink_to(os.path.relpath(entries[0], target))


def try_clang(clang: str, root: Path, work: Path, system: System) -> str:
    """Compile a kernel and its launcher with a joined folder; return the error, or an empty text.

    Parameters
    ----------
    clang : str
        The program.
    root : Path
        The joined folder, from `join_wheels`.
    work : Path
        A folder for temporary files.
    system : System
        The machine.
    """
    source = work / "probe.cu"
    source.write_text(_PROBE, encoding="utf-8")
    argv = (clang, "-x", "cuda", f"--cuda-path={root}", f"--cuda-gpu-arch={_PROBE_ARCH}", "-std=c++17", "-O1")
    files = ("-Wno-unknown-cuda-version", "-c", str(source), "-o", str(work / "probe.o"))
    done = system.run((*argv, *files), unset=layouts.OUTPUT_VARIABLES, timeout_s=_PROBE_S)
    return done.why_failed and "\n".join((done.why_failed, *done.text.strip().splitlines()[:6]))


_COMPILER = """#!/bin/sh
# zig's clang++, without the option that its linker lacks, and with its names of x86-64's levels.
#
# The target is named: without that, zig searches for another C compiler on PATH and for the processor at hand, and
# builds its C++ library anew whenever it finds something else. A link always has the same level of optimization for
# the same reason. What it builds stays beside it, where that can be written.
here=$(dirname -- "$(readlink -f -- "$0")")
level=-Os
count=$#
while [ "$count" -gt 0 ]; do
  case $1 in
    -Wl,--exclude-libs,*) ;;
    -march=x86-64) set -- "$@" -march=x86_64 ;;
    -march=x86-64-v[234]) set -- "$@" "-march=x86_64_v${1##*-v}" ;;
    -c | -S | -E | -M | -MM | -fsyntax-only) level=; set -- "$@" "$1" ;;
    *) set -- "$@" "$1" ;;
  esac
  shift
  count=$((count - 1))
done
if [ -z "${ZIG_GLOBAL_CACHE_DIR:-}" ] && [ -w "$here/../cache" ]; then
  ZIG_GLOBAL_CACHE_DIR=$here/../cache
  export ZIG_GLOBAL_CACHE_DIR
fi
exec "$here/../ziglang/zig" c++ -target MACHINE-linux-gnu -O2 -fno-sanitize=undefined "$@" $level
"""

_PROGRAM = """#include <stdexcept>
#include <string>
int probe(int n) {
  try {
    if (n > 0) throw std::runtime_error(std::to_string(n));
  } catch (const std::exception& error) {
    return static_cast<int>(std::string(error.what()).size());
  }
  return 0;
}
"""

_FIRST_COMPILE_S = 900.0
"""The limit for the first link, which builds the C++ library in a minute of processor time."""


def write_compiler(tree: Path, machine: str) -> None:
    """Write a program with the name and the behavior of clang++.

    Parameters
    ----------
    tree : Path
        The folder with the files of the wheel ``ziglang``; it may be moved later.
    machine : str
        The machine, see `System.machine`.
    """
    script = tree / "bin" / "clang++"
    script.parent.mkdir(exist_ok=True)
    (tree / "cache").mkdir(exist_ok=True)
    script.write_text(_COMPILER.replace("MACHINE", machine), encoding="utf-8")
    script.chmod(0o755)


def build_library(tree: Path, work: Path, system: System) -> str:
    """Compile and link once, which builds the C++ library that all later links use.

    Parameters
    ----------
    tree : Path
        The folder with the program of `write_compiler`.
    work : Path
        A folder for temporary files.
    system : System
        The machine.

    Returns
    -------
    str
        The error; empty after success.
    """
    program = str(tree / "bin" / "clang++")
    source, middle, out = work / "probe.cc", work / "probe.o", work / "probe.so"
    source.write_text(_PROGRAM, encoding="utf-8")
    compiling = (program, "-std=c++17", "-O3", "-fPIC", "-c", str(source), "-o", str(middle))
    for argv in (compiling, (program, "-shared", "-fPIC", str(middle), "-o", str(out))):
        done = system.run(argv, unset=("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"), timeout_s=_FIRST_COMPILE_S)
        if done.returncode != 0:
            return done.why_failed
    return ""
