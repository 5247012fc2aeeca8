"""The grammar of the command line; this module imports little, so that a command starts before its own imports."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any, NoReturn

from be_toolchain import __version__
from be_toolchain.terminal import USAGE_ERROR, say_error

PROGRAM = "python -m be_toolchain"

CHANGING = ("install", "list", "use", "remove", "prune")
"""The commands that list or change installations."""

PARTS = (
    *("root", "nvcc", "cicc", "ptxas", "cudafe++", "fatbinary", "nvlink", "libdevice"),
    *("cudart", "cudart-static", "include", "crt", "cccl", "host"),
)
"""The parts of a CUDA toolkit that ``which`` prints."""

SHELLS = ("bash", "zsh", "fish")

NONE = "none"
"""The argument of ``use`` that clears the selection."""

EXIT_CODES = "exit codes: 0 success, 1 failure, 3 internal error, 64 invalid arguments"
"""The exit codes of most commands."""

_CONFIRMED = "exit codes: 0 success, 1 failure, 3 internal error, 4 the user did not confirm, 64 invalid arguments"
_VERDICTS = "exit codes: 0 success, 1 no CUDA toolkit, 2 no C++ compiler, 3 internal error, 64 invalid arguments"

_Commands = Any  # argparse's action for subparsers is generic over a private type


class Parser(argparse.ArgumentParser):
    """A parser whose usage errors have an exit code of their own, which no verdict of the doctor has."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        import textwrap

        self.print_usage(sys.stderr)
        say_error(textwrap.fill(message, 80, initial_indent=" " * len("error: ")).lstrip())
        self.exit(USAGE_ERROR)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = Parser(prog=PROGRAM, description="Find, check and install compilers for CUDA and C++.")
    parser.add_argument("--version", action="version", version=f"be_toolchain {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    _add_doctor(commands)
    _add_install(commands)
    _add_store(commands)
    _add_queries(commands)
    add_explain(commands)
    return parser


def _add_doctor(commands: _Commands) -> None:
    """Add the command ``doctor``."""
    doctor = commands.add_parser(
        "doctor",
        help="report the compilers of this machine, and remedies",
        description="Report the compilers, the CUDA toolkit and the GPUs of this machine, and a remedy for each "
        "problem.",
        epilog="exit codes: 0 C++ and CUDA builds work, 1 only C++ builds work, 2 C++ builds don't work, or a setting "
        "makes every load fail, 3 internal error, 4 the user did not confirm the plan of --fix, 64 invalid arguments, "
        "74 the report can't be written",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.add_argument(
        "--verbose", action="store_true", help="also list every searched place and each part of the CUDA toolkit"
    )
    doctor.add_argument("--smoke", action="store_true", help="build and run test programs, and call a kernel from JAX")
    doctor.add_argument(
        "--fix",
        action="store_true",
        help="print a plan that repairs the toolchain, ask for confirmation, and apply the plan",
    )
    doctor.add_argument("--yes", action="store_true", help="apply the plan of --fix without a question")
    doctor.add_argument(
        "--wheels",
        type=Path,
        metavar="FOLDER",
        help="take the wheels for --fix from this folder instead of a package index",
    )


def _add_install(commands: _Commands) -> None:
    """Add the command ``install``."""
    install = commands.add_parser(
        "install",
        help="install a CUDA toolkit or a C++ compiler",
        description="Print a plan with its reasons, ask for confirmation, and install a compiler.",
        epilog=_CONFIRMED,
    )
    install.add_argument(
        "--cuda", metavar="VERSION", help="install this release, such as 13.0, 13.0.2 or auto (default: auto)"
    )
    install.add_argument(
        "--into",
        choices=("env", "managed"),
        help="install into the environment of the running Python (env), or into a separate folder (managed)",
    )
    install.add_argument(
        "--host-compiler", action="store_true", help="install a compiler for C++ sources, not for nvcc, from PyPI"
    )
    install.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="take the wheels from this folder instead of a package index"
    )
    install.add_argument("--dry-run", action="store_true", help="only print the plan")
    install.add_argument("--json", action="store_true", help="print the plan and the result as JSON")
    install.add_argument("--yes", action="store_true", help="apply the plan without a question")


def _add_store(commands: _Commands) -> None:
    """Add the commands ``list``, ``use``, ``remove`` and ``prune``."""
    listed = commands.add_parser(
        "list", help="list managed toolchains", description="List managed toolchains.", epilog=EXIT_CODES
    )
    listed.add_argument("--json", action="store_true", help="print the toolchains as JSON")
    listed.add_argument("--names", action="store_true", help="print only the names of the toolchains")
    listed.add_argument("--verify", action="store_true", help="compare every file with the hash in its wheel")
    use = commands.add_parser(
        "use",
        help="prefer a managed CUDA toolkit",
        description="Prefer a managed CUDA toolkit. The variables BE_NVCC and BE_NVCC_PREFER take precedence.",
        epilog=EXIT_CODES,
    )
    use.add_argument(
        "version",
        metavar="VERSION",
        help=f"prefer this toolkit, such as 13.0, 13.0.2 or cuda-13.0.2; the word {NONE} restores the search order",
    )
    remove = commands.add_parser(
        "remove", help="remove a managed toolchain", description="Remove a managed toolchain.", epilog=_CONFIRMED
    )
    remove.add_argument("version", metavar="VERSION", help="remove this toolchain, such as 13.0.2 or cuda-13.0.2")
    prune = commands.add_parser(
        "prune",
        help="remove old patch releases, and files left over from interrupted installations",
        description="Remove managed toolchains that a newer patch release replaces. Also remove files left over from "
        "interrupted installations.",
        epilog=_CONFIRMED,
    )
    for parser in (remove, prune):
        parser.add_argument("--yes", action="store_true", help="remove without a question")


def _add_queries(commands: _Commands) -> None:
    """Add the commands ``which``, ``env`` and ``completion``."""
    which = commands.add_parser(
        "which",
        help="print the path of a compiler",
        description="Print the path of a compiler, or of a part of the CUDA toolkit.",
        epilog=_VERDICTS,
    )
    which.add_argument(
        "part",
        metavar="PART",
        choices=("cxx", *PARTS),
        help=f"print the path of this part: {', '.join(('cxx', *PARTS))}. cxx is the C++ compiler, and host is nvcc's "
        "host compiler",
    )
    env = commands.add_parser(
        "env",
        help="print commands that make other tools use this toolchain",
        description="Print shell commands that set environment variables, so that torch, CMake, CuPy and nvcc use this "
        "toolchain.",
        epilog=f'{_VERDICTS}. To run the printed commands in bash, write eval "$({PROGRAM} env)"',
    )
    env.add_argument(
        "--shell",
        choices=(*SHELLS, "json"),
        default="bash",
        help="write the commands for this shell, or the variables as JSON (default: bash)",
    )
    completion = commands.add_parser(
        "completion",
        help="print a script for shell completion",
        description="Print a script that lets a shell complete the commands and options of be-toolchain.",
        epilog='to run the printed script in bash, write eval "$(be-toolchain completion bash)"',
    )
    completion.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help=f"print the script for this shell: {', '.join(SHELLS)}"
    )


def add_explain(commands: _Commands) -> None:
    """Add the command ``explain``, which both packages have."""
    explain = commands.add_parser(
        "explain",
        help="print the causes and remedies of an error code",
        description="Print the causes and remedies of an error code. Without a code, list all codes.",
    )
    code = "explain this code. An error message ends with its code, such as BE301 or TC301"
    explain.add_argument("code", metavar="CODE", nargs="?", help=code)
