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
        help="report the compilers of this machine, and the next steps",
        description="Report the compilers, CUDA toolkits and GPUs of this machine, and the next steps.",
        epilog="exit codes: 0 everything works, 1 CUDA builds can't work, 2 C++ builds can't work, 3 internal error, "
        "64 invalid arguments, 74 the report can't be written",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.add_argument(
        "--verbose", action="store_true", help="also list every searched place and every part of the CUDA toolkit"
    )
    doctor.add_argument("--smoke", action="store_true", help="build and run programs, and call a kernel through JAX")
    doctor.add_argument(
        "--fix", action="store_true", help="print the steps that repair the toolchain, ask, and run them"
    )
    doctor.add_argument("--yes", action="store_true", help="do not ask before --fix changes something")
    doctor.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="let --fix install the wheels in this folder, instead of an index"
    )


def _add_install(commands: _Commands) -> None:
    """Add the command ``install``."""
    install = commands.add_parser(
        "install",
        help="install a CUDA toolkit or a C++ compiler",
        description="Print the plan and the reasons for it, ask, then install.",
        epilog="exit codes: 0 done, 1 not possible or failed, 4 shown but not confirmed",
    )
    install.add_argument(
        "--cuda", metavar="VERSION", help="install this release, such as 13.0, 13.0.2 or auto (default: auto)"
    )
    install.add_argument(
        "--into",
        choices=("env", "managed"),
        help="install into this environment (env), or into a folder of its own (managed)",
    )
    install.add_argument(
        "--host-compiler", action="store_true", help="install a C++ compiler from PyPI, for C++ kernels"
    )
    install.add_argument(
        "--wheels", type=Path, metavar="FOLDER", help="install the wheels in this folder, instead of an index"
    )
    install.add_argument("--dry-run", action="store_true", help="print the plan and exit")
    install.add_argument("--json", action="store_true", help="print the plan and its outcome as JSON")
    install.add_argument("--yes", action="store_true", help="do not ask")


def _add_store(commands: _Commands) -> None:
    """Add the commands ``list``, ``use``, ``remove`` and ``prune``."""
    listed = commands.add_parser("list", help="list managed toolchains", description="List managed toolchains.")
    listed.add_argument("--json", action="store_true", help="print the toolchains as JSON")
    listed.add_argument("--names", action="store_true", help="print only names, without reading the toolchains")
    listed.add_argument("--verify", action="store_true", help="compare every file with its wheel")
    use = commands.add_parser("use", help="prefer one managed CUDA toolkit", description="Prefer one managed toolkit.")
    use.add_argument(
        "version", help=f"name a toolchain, such as 13.0, 13.0.2 or cuda-13.0.2; {NONE} clears the preference"
    )
    remove = commands.add_parser("remove", help="remove a managed toolchain", description="Remove a managed toolchain.")
    remove.add_argument("version", help="name a toolchain as list prints it")
    prune = commands.add_parser(
        "prune",
        help="remove the remains of interrupted installations, and superseded patch versions",
        description="Remove the remains of interrupted installations, and versions that a newer patch replaces.",
    )
    for parser in (remove, prune):
        parser.add_argument("--yes", action="store_true", help="do not ask")


def _add_queries(commands: _Commands) -> None:
    """Add the commands ``which``, ``env`` and ``completion``."""
    which = commands.add_parser(
        "which",
        help="print the path of a compiler",
        description="Print the path of a compiler, or of a part of the CUDA toolkit.",
    )
    which.add_argument(
        "part",
        metavar="PART",
        choices=("cxx", *PARTS),
        help=f"name one of {', '.join(('cxx', *PARTS))}; cxx is the C++ compiler, host is nvcc's host compiler",
    )
    env = commands.add_parser(
        "env",
        help="print variables that make other tools use the same toolchain",
        description="Print variables that make torch, CMake, CuPy and a plain nvcc use the same toolchain.",
        epilog=f'use it as: eval "$({PROGRAM} env --shell bash)"',
    )
    env.add_argument(
        "--shell", choices=(*SHELLS, "json"), default="bash", help="print in this shell's syntax (default: bash)"
    )
    completion = commands.add_parser(
        "completion",
        help="print a script that completes be-toolchain's commands in a shell",
        description="Print a script that completes the commands and options of be-toolchain in a shell.",
        epilog='use it as: eval "$(be-toolchain completion bash)", or: be-toolchain completion fish | source',
    )
    completion.add_argument("shell", choices=SHELLS, help="name the shell")


def add_explain(commands: _Commands) -> None:
    """Add the command ``explain``, which both packages have."""
    explain = commands.add_parser(
        "explain",
        help="print the causes and remedies of an error's code",
        description="Print the causes and remedies of an error's code. Without a code, list all codes.",
    )
    code = "name the code at the end of an error's text, such as BE301 or TC301"
    explain.add_argument("code", metavar="CODE", nargs="?", help=code)
