"""The grammar of ``python -m be_runtime``. It imports little, so that help is fast."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from be_toolchain import __version__
from be_toolchain.cli.parser import EXIT_CODES, Parser, add_explain

_NAME_OR_DIGEST = 'select an entry by its name, or by the first 4 or more digits of its hash, which "cache list" prints'
_PACKAGE = "take this package, or the package in this folder (default: the only package below the working directory)"

_Commands = Any  # argparse's action for subparsers is generic over a private type


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(
        prog="python -m be_runtime", description="Build, inspect, check and tune kernels, and manage the cache."
    )
    parser.add_argument("--version", action="version", version=f"be_runtime {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for add in (_add_stubs, _add_build, _add_show, _add_report, _add_trace, _add_tune, _add_cmake_dir, add_explain):
        add(commands)
    for command in (*commands.choices.values(), *_add_cache(commands), _add_check(commands)):
        command.add_argument("--json", action="store_true", help="print the result as JSON")
        command.epilog = command.epilog or EXIT_CODES
    return parser


def _add(commands: _Commands, name: str, short: str, long: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=short, description=long)
    return parser


def _add_stubs(commands: _Commands) -> None:
    stubs = _add(
        commands,
        "stubs",
        "write a stub of a module's functions for type checkers and editors",
        "Write a .pyi file with the functions of a module. The command reads C++ and CUDA sources without compiling "
        "the sources. If the argument names a Python module, the command imports the module.",
    )
    stubs.add_argument(
        "source",
        metavar="FOLDER_OR_MODULE",
        help="read this source file or folder of sources, or import this Python module",
    )
    stubs.add_argument("--output", type=Path, metavar="FILE", help="write this .pyi file (default: next to the source)")


def _add_build(commands: _Commands) -> None:
    build = _add(
        commands,
        "build",
        "compile the kernels of a package ahead of time",
        "Compile all kernels of a package, and write the compiled kernels to a folder of the package. The file "
        "kernels.toml declares the kernels. The package then loads on machines without a compiler.",
    )
    build.add_argument("package", nargs="?", metavar="PACKAGE", help=_PACKAGE)
    build.add_argument(
        "--archs",
        metavar="LIST",
        help="compile for these GPU architectures, such as 8.0,9.0,12.0 (default: archs in kernels.toml)",
    )
    build.add_argument(
        "--out", type=Path, metavar="DIR", help="write to this folder (default: _kernels in the package)"
    )


def _add_show(commands: _Commands) -> None:
    show = _add(
        commands,
        "show",
        "list the kernels in an exported program, a package or a wheel",
        "List the functions and the code in an exported program, a package or a wheel. The list also contains the "
        "machines that can run the code. The command compares the code with the stored hashes, and does not load the "
        "code.",
    )
    show.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="read this exported program, wheel, package or folder of a package",
    )


def _add_report(commands: _Commands) -> None:
    report = _add(
        commands,
        "report",
        "describe the compiled code of kernels",
        "Compile kernels, and report the registers, shared memory, spills, code size and theoretical occupancy of each "
        "kernel. The report also contains the duration of each phase of the build.",
    )
    report.add_argument(
        "source",
        metavar="FILE",
        help="read this source file, folder of sources, .so file, package or folder of a package",
    )
    report.add_argument(
        "--arch",
        metavar="LIST",
        help="compile for these GPU architectures, such as 8.0,9.0 (default: the GPUs of this machine)",
    )
    report.add_argument(
        "--blocks",
        metavar="LIST",
        help="compute the occupancy for these block sizes in threads, such as 128,256",
    )
    report.add_argument(
        "--loops",
        action="store_true",
        help="list the C++ loops that the compiler vectorized, and the C++ loops that the compiler could not vectorize",
    )


def _add_trace(commands: _Commands) -> None:
    trace = _add(
        commands,
        "trace",
        "list the phases of loads by their duration",
        "List the phases and commands of each load in a trace file, the longest first. If the variable BE_TRACE names "
        "a file, loads write this file.",
    )
    trace.add_argument("file", type=Path, metavar="FILE", help="read this trace file")


def _add_tune(commands: _Commands) -> None:
    tune = _add(
        commands,
        "tune",
        "choose the fastest configurations of a package's kernels",
        "Import a package, and time the configurations of its autotuned kernels on this machine. The command writes "
        "the fastest configurations to tuned.json in the package, and keeps the choices for other GPUs in this file.",
    )
    tune.add_argument("package", nargs="?", metavar="PACKAGE", help=_PACKAGE)


def _add_cmake_dir(commands: _Commands) -> None:
    _add(
        commands,
        "cmake-dir",
        "print the folder in which CMake finds be_add_kernels()",
        "Print the folder of the CMake package BeRuntime, which defines be_add_kernels(). Pass the folder to CMake as "
        'cmake -DBeRuntime_ROOT="$(python -m be_runtime cmake-dir)". scikit-build-core needs no such option.',
    )


class _WithModule(argparse.HelpFormatter):
    """Help in which an option for all further words shows the first one."""

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        text = super()._format_args(action, default_metavar)
        return f"{default_metavar} {text}" if action.nargs == argparse.REMAINDER and action.option_strings else text


def _add_check(commands: _Commands) -> argparse.ArgumentParser:
    check = _add(
        commands,
        "check",
        "run a program, and report the faults of its kernels",
        "Run a Python program several times: in checked mode, and under each installed tool (sanitizers of the "
        "compiler, valgrind, compute-sanitizer). Then report the faults of the program's kernels with source lines.",
    )
    check.formatter_class = _WithModule
    check.usage = "%(prog)s [-h] [--tools LIST] [--timeout S] [--json]\n       (SCRIPT | -m MODULE) [ARGUMENT ...]"
    check.epilog = (
        "exit codes: 0 no fault was found, 1 a fault was found, 2 the program failed or a tool of --tools is not "
        "installed, 3 internal error, 64 invalid arguments"
    )
    check.add_argument(
        "--tools",
        metavar="LIST",
        help="run only these tools, separated by commas: guard (checked mode), asan, tsan, valgrind, memcheck, "
        "racecheck, initcheck (default: every installed tool)",
    )
    check.add_argument("--timeout", type=float, metavar="S", help="stop each run of the program after S seconds")
    check.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, help="run this module with its arguments, as python -m does"
    )
    check.add_argument("program", metavar="SCRIPT", nargs=argparse.REMAINDER, help="run this script with its arguments")
    return check


def _add_cache(commands: _Commands) -> tuple[argparse.ArgumentParser, ...]:
    """Add ``cache``, and return the parsers of its commands."""
    cache = _add(
        commands,
        "cache",
        "list, explain, check and remove compiled kernels",
        "List, explain, check, remove, export and import the compiled kernels in the cache.",
    )
    below = cache.add_subparsers(dest="subcommand", metavar="COMMAND", required=True)
    for add in (_add_cache_shows, _add_cache_removals, _add_cache_carriers):
        add(below)
    return tuple(below.choices.values())


def _add_cache_shows(commands: _Commands) -> None:
    """Add the commands that print entries."""
    listed = _add(
        commands,
        "list",
        "list compiled modules and kernels",
        "List the cache's modules and kernels, newest first.",
    )
    listed.add_argument("name", nargs="?", metavar="NAME", help="list only the entries of this name")
    _add_all(listed, "also list parts of builds, such as the object files of modules")
    show = _add(
        commands,
        "show",
        "print the details of an entry",
        "Print the sources, compilers and options of an entry, and the time and the reason of the build.",
    )
    show.add_argument("name", metavar="NAME", help=_NAME_OR_DIGEST)
    show.add_argument("--files", action="store_true", help="also list every file that the build read")
    why = _add(
        commands,
        "why",
        "print the reason for a build",
        "Print the reason for the last build of a module or kernel, and whether the next load builds it again.",
    )
    why.add_argument("name", metavar="NAME", help=_NAME_OR_DIGEST)
    _add(commands, "path", "print the cache folder", "Print the cache folder.")
    _add(
        commands,
        "stats",
        "count entries and bytes",
        "Print the number and size of the entries, by kind and by last use.",
    )
    verify = _add(
        commands,
        "verify",
        "compare files with their stored hashes",
        "Hash all compiled files, and all files that the builds read. If a compiled file has changed, its entry is "
        "damaged. If a file that the build read has changed, the entry is out of date, and the next load builds again.",
    )
    verify.epilog = (
        "exit codes: 0 success, 1 a damaged entry stays in the cache, 3 internal error, 64 invalid arguments"
    )
    verify.add_argument("name", nargs="?", metavar="NAME", help="check only the entries of this name")
    verify.add_argument("--remove", action="store_true", help="remove damaged entries")


def _add_cache_removals(commands: _Commands) -> None:
    """Add ``prune`` and ``clear``."""
    prune = _add(
        commands,
        "prune",
        "remove entries until the cache is small enough",
        "Remove entries that have not been used for a long time. Then remove the least recently used entries until the "
        "cache is small enough.",
    )
    prune.add_argument(
        "--stale",
        action="store_true",
        help="also remove entries whose headers, libraries or compilers have changed",
    )
    prune.add_argument(
        "--max-size",
        type=_count,
        metavar="MIB",
        help="set the limit for the size of the cache (default: BE_CACHE_MAX_SIZE_MIB)",
    )
    prune.add_argument(
        "--max-age",
        type=_count,
        metavar="DAYS",
        help="remove entries that were not used for this number of days (default: BE_CACHE_MAX_AGE_DAYS)",
    )
    clear = _add(commands, "clear", "remove entries", "Remove all modules and kernels, or the entries of one name.")
    clear.add_argument("name", nargs="?", metavar="NAME", help="remove only the entries of this name")
    _add_all(clear, "also remove the parts of builds that all modules share")
    for parser in (prune, clear):
        parser.add_argument(
            "--dry-run", action="store_true", help="only list the entries that the command would remove"
        )


def _add_cache_carriers(commands: _Commands) -> None:
    """Add the commands that carry entries to other machines, and sign them."""
    export = _add(
        commands,
        "export",
        "write entries to a file for other machines",
        "Write compiled modules and kernels to one file. A machine with the same compilers, libraries and headers can "
        "import the file instead of compiling.",
    )
    export.add_argument("file", type=Path, metavar="FILE", help="write to this file")
    export.add_argument("names", nargs="*", metavar="NAME", help="write only these modules and kernels (default: all)")
    imported = _add(
        commands,
        "import",
        "add the entries of an exported file to the cache",
        "Add the entries of an exported file to the cache. Loads use these entries instead of compiling. Your programs "
        "run the code in the file, so import only files that you trust.",
    )
    imported.add_argument("file", type=Path, metavar="FILE", help='read this file, which "cache export" wrote')
    imported.add_argument(
        "--public-key",
        metavar="KEY",
        help="require a signature that this public key verifies. KEY may also be the absolute path of a file with "
        "public keys (default: BE_REMOTE_CACHE_PUBLIC_KEY)",
    )
    keygen = _add(
        commands,
        "keygen",
        "make a pair of keys for signatures",
        "Make a pair of keys. The command writes the private key, which signs entries, to a file, and prints the "
        "public key, which checks signatures.",
    )
    keygen.add_argument(
        "--out", type=Path, metavar="FILE", help="write the private key to this file (default: be-cache.key)"
    )
    sign = _add(
        commands, "sign", "sign entries", 'Sign a file that "cache export" wrote, or one file of a remote cache.'
    )
    sign.add_argument("file", type=Path, metavar="FILE", help="sign this file in place")
    sign.add_argument("--key", type=Path, required=True, metavar="FILE", help="sign with the private key in this file")


def _add_all(parser: argparse.ArgumentParser, meaning: str) -> None:
    parser.add_argument("--all", action="store_true", dest="everything", help=meaning)


def _count(text: str) -> int:
    """Return a whole number of at least 0."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)
