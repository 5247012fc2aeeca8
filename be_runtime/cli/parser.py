"""The grammar of ``python -m be_runtime``. It loads little, so that help is there at once."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from be_runtime.cli.cache.cache_parser import add_cache
from be_toolchain import __version__
from be_toolchain.cli.parser import Parser, add_explain

_Commands = Any  # argparse's action for subparsers is generic over a private type


def build_parser() -> argparse.ArgumentParser:
    """The grammar of all commands."""
    parser = Parser(prog="python -m be_runtime", description="Work with kernels from a shell.")
    parser.add_argument("--version", action="version", version=f"be_runtime {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_add_stubs, _add_build, _add_show, _add_report, _add_tune, _add_cmake_dir, add_explain):
        add(commands)
    for command in (*commands.choices.values(), *add_cache(commands), _add_check(commands)):
        command.add_argument("--json", action="store_true", help="print the outcome as JSON")
        command.epilog = command.epilog or (
            "exit codes: 0 done, 1 not possible, 3 internal error, 64 invalid arguments"
        )
    return parser


def _add_stubs(commands: _Commands) -> None:
    """``stubs``."""
    stubs = commands.add_parser(
        "stubs",
        help="tell type checkers and editors the functions of kernels",
        description="Write a .pyi file with the functions of a module of kernels. Its source is read, not compiled; a "
        "Python module is imported.",
    )
    stubs.add_argument("source", metavar="FOLDER_OR_MODULE", help="a folder or file of C++ or CUDA, or a Python module")
    stubs.add_argument("--output", type=Path, metavar="FILE", help="the .pyi file (default: beside the source)")


def _add_build(commands: _Commands) -> None:
    """``build``."""
    build = commands.add_parser(
        "build",
        help="compile the kernels of a package ahead of time",
        description="Compile everything that a package's kernels.toml declares into one folder, which needs no "
        "compiler where it is loaded.",
    )
    build.add_argument(
        "package", nargs="?", metavar="PACKAGE", help="a package or its folder (default: the one below this folder)"
    )
    build.add_argument(
        "--archs", metavar="LIST", help="GPU architectures, such as 8.0,9.0,12.0 (default: the declared)"
    )
    build.add_argument("--out", type=Path, metavar="DIR", help="the folder to write (default: _kernels in the package)")
    build.add_argument(
        "--standalone", action="store_true", help="write a Python file too, which calls the kernels with JAX alone"
    )


def _add_show(commands: _Commands) -> None:
    """``show``."""
    show = commands.add_parser(
        "show",
        help="list the kernels in an exported program, a package or a wheel",
        description="List what was built ahead of time: targets, machine code and what it is for. Its bytes are "
        "checked, and nothing is loaded.",
    )
    show.add_argument(
        "file", type=Path, metavar="FILE", help="an exported program, a wheel, or a package's name or folder"
    )


def _add_report(commands: _Commands) -> None:
    """``report``."""
    report = commands.add_parser(
        "report",
        help="describe what the compilers made of kernels",
        description="Compile kernels and report registers, shared memory, spills, size and theoretical occupancy of "
        "each, its hottest loop, and the seconds of the build's phases.",
    )
    report.add_argument(
        "source", metavar="FILE", help="a .cu, .cc or .so file, a folder of sources, or a package's name or folder"
    )
    report.add_argument("--arch", metavar="LIST", help="GPU architectures, such as 8.0,9.0 (default: those here)")
    report.add_argument("--blocks", metavar="LIST", help="threads of blocks for the occupancy, such as 128,256")
    report.add_argument("--line-info", action="store_true", help="tell the source lines of loops")
    report.add_argument(
        "--loops", action="store_true", help="list the loops of C++ that were vectorized, or could not be"
    )


def _add_tune(commands: _Commands) -> None:
    """``tune``."""
    tune = commands.add_parser(
        "tune",
        help="time what a package tunes, and keep the choices in it",
        description="Import a package, time every configuration that its calls of be_runtime.autotune name on this "
        "machine, and write the choices to tuned.json in the package, beside those of other GPUs.",
    )
    tune.add_argument(
        "package", nargs="?", metavar="PACKAGE", help="a package or its folder (default: the one below this folder)"
    )


def _add_cmake_dir(commands: _Commands) -> None:
    """``cmake-dir``."""
    commands.add_parser(
        "cmake-dir",
        help="say where CMake finds be_add_kernels()",
        description='Print the folder for cmake -DBeRuntime_ROOT="$(python -m be_runtime cmake-dir)", by which '
        "find_package(BeRuntime) finds us. scikit-build-core needs no such option.",
    )


def _add_check(commands: _Commands) -> argparse.ArgumentParser:
    """``check``."""
    check: argparse.ArgumentParser = commands.add_parser(
        "check",
        help="find faults of kernels while a program runs",
        usage="%(prog)s [-h] [--tools LIST] [--timeout S] [--json] (SCRIPT | -m MODULE) [ARGUMENT ...]",
        description="Run a Python program in checked mode, then under the compiler's sanitizers, valgrind and "
        "compute-sanitizer where they are there, and report the faults of its kernels with their lines.",
        epilog="exit codes: 0 nothing found, 1 something found, 2 the program failed or a tool is not here, 3 internal "
        "error, 64 invalid arguments",
    )
    check.add_argument(
        "--tools",
        metavar="LIST",
        help="of guard, asan, tsan, valgrind, memcheck, racecheck, initcheck (default: all that are here)",
    )
    check.add_argument("--timeout", type=float, metavar="S", help="stop a run of the program after so many seconds")
    check.add_argument("-m", dest="module", nargs=argparse.REMAINDER, help="run a module, as python -m does")
    check.add_argument("program", nargs=argparse.REMAINDER, help="the program and its arguments")
    return check
