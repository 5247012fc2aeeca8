"""zig's C++ compiler, wrapped so that it is called as clang++, and its C++ library, built once."""

from __future__ import annotations

from pathlib import Path

from be_toolchain.machine.system import System

_COMPILER = """#!/bin/sh
# zig's clang++, without the option that its linker lacks.
#
# The target is named: without that, zig looks for another C compiler on PATH and for the processor at hand, and
# builds its C++ library anew whenever it finds something else. A link always has the same level of optimization for
# the same reason. What it builds stays beside it, where that can be written.
here=$(dirname -- "$(readlink -f -- "$0")")
level=-Os
count=$#
while [ "$count" -gt 0 ]; do
  case $1 in
    -Wl,--exclude-libs,*) ;;
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
"""The first link builds the C++ library, which takes a minute of processor time."""


def write_compiler(tree: Path, machine: str) -> None:
    """Make a program that is called, and behaves, as clang++.

    Parameters
    ----------
    tree : Path
        A folder that the wheel ``ziglang`` was unpacked into; it may be moved later.
    machine : str
        As `System.machine`.
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
        With the program of `write_compiler`.
    work : Path
        For files that nobody needs afterwards.
    system : System
        The machine.

    Returns
    -------
    str
        What went wrong; empty after success.
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
