"""The command line, ``python -m be_toolchain``; what changes something is in `cli_install`. The only user of rich."""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from be_toolchain import __version__, cli_install
from be_toolchain.configuration import find_configuration
from be_toolchain.doctor import INTERNAL, NO_CUDA, NO_CXX, WORKS, Report, examine_machine, heading, render_report
from be_toolchain.doctor import render_probe_lists as _probe_lists
from be_toolchain.errors import ToolchainError
from be_toolchain.model import CudaToolkit, ToolchainRequest
from be_toolchain.resolver import resolve
from be_toolchain.shell import SHELLS, render_variables, shell_variables
from be_toolchain.survey import survey
from be_toolchain.system import LocalSystem, System

USAGE_ERROR = 64
"""The exit code for arguments that mean nothing (``EX_USAGE``); 1 to 3 are the doctor's."""

PARTS: dict[str, Callable[[CudaToolkit], Path | None]] = {
    "root": lambda toolkit: toolkit.root,
    "nvcc": lambda toolkit: toolkit.nvcc,
    "cicc": lambda toolkit: toolkit.cicc,
    "ptxas": lambda toolkit: toolkit.ptxas,
    "cudafe++": lambda toolkit: toolkit.cudafe,
    "fatbinary": lambda toolkit: toolkit.fatbinary,
    "nvlink": lambda toolkit: toolkit.nvlink,
    "libdevice": lambda toolkit: toolkit.libdevice,
    "cudart": lambda toolkit: toolkit.cudart_shared or toolkit.cudart_static,
    "cudart-static": lambda toolkit: toolkit.cudart_static,
    "include": lambda toolkit: toolkit.include_dirs[0] if toolkit.include_dirs else None,
    "crt": lambda toolkit: _component(toolkit, "crt"),
    "cccl": lambda toolkit: _component(toolkit, "cccl"),
    "host": lambda toolkit: toolkit.host_compiler.path,
}
"""What ``which`` knows beside ``cxx``."""

_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


class _Parser(argparse.ArgumentParser):
    """A parser whose usage errors do not look like a doctor's verdict."""

    def error(self, message: str) -> NoReturn:
        """See `argparse.ArgumentParser.error`."""
        self.print_usage(sys.stderr)
        self.exit(USAGE_ERROR, f"{self.prog}: error: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """The command line's grammar."""
    parser = _Parser(prog="python -m be_toolchain", description="Find and judge what compiles CUDA and C++ here.")
    parser.add_argument("--version", action="version", version=f"be_toolchain {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    doctor = commands.add_parser(
        "doctor",
        help="say what was found and what to do next",
        description="Say what was found, where from, and what to do next.",
        epilog="exit codes: 0 all works, 1 CUDA builds can't work, 2 C++ builds can't work, 3 internal error, "
        "64 arguments that mean nothing",
    )
    doctor.add_argument("--json", action="store_true", help="print the report as JSON")
    doctor.add_argument("--verbose", action="store_true", help="list every place looked at")
    doctor.add_argument("--smoke", action="store_true", help="build and run programs, and call a kernel through JAX")
    cli_install.add_fix_arguments(doctor)
    cli_install.add_commands(commands)
    which = commands.add_parser("which", help="print the path of one part", description="Print the path of one part.")
    which.add_argument("part", choices=("cxx", *PARTS), help="cxx is the C++ compiler, host is nvcc's")
    env = commands.add_parser(
        "env",
        help="print variables with which other tools use the same toolchain",
        description="Print variables with which torch, CMake, CuPy and a plain nvcc use the same toolchain.",
        epilog='use it as: eval "$(python -m be_toolchain env --shell bash)"',
    )
    env.add_argument("--shell", choices=SHELLS, default="bash", help="whose language to print (default: bash)")
    return parser


def main(argv: Sequence[str] | None = None, *, system: System | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments, those of the process unless given.
    system : System, optional
        The machine; this one unless given.

    Returns
    -------
    int
        The exit code; usage errors leave through SystemExit, as argparse does.
    """
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "doctor" and arguments.fix and arguments.json:
        parser.error("--fix shows a plan and asks: it does not go with --json")
    if arguments.command is None:
        parser.print_help()
        return WORKS
    system = system or LocalSystem()
    try:
        if arguments.command == "which":
            return _which(arguments.part, system)
        if arguments.command in cli_install.COMMANDS:
            return cli_install.run_command(arguments, system)
        if arguments.command == "env":
            return _env(arguments.shell, system)
        return _doctor(system, arguments)
    except Exception:  # noqa: BLE001 - a defect must not look like a verdict about the machine
        traceback.print_exc()
        print("internal error of be_toolchain: please report the lines above", file=sys.stderr)
        return INTERNAL


def _which(part: str, system: System) -> int:
    """Print one path."""
    try:
        toolchain = resolve(ToolchainRequest(need_cuda=part != "cxx"), system=system)
    except ToolchainError as error:
        print(f"{error.code}: {error}", file=sys.stderr)
        return NO_CXX if part == "cxx" else NO_CUDA
    if part == "cxx":
        assert toolchain.cxx is not None
        path: Path | None = toolchain.cxx.path
    else:
        assert toolchain.cuda is not None
        path = PARTS[part](toolchain.cuda)
    if path is None:
        print(f"the CUDA toolkit in use has no {part}", file=sys.stderr)
        return NO_CUDA
    print(path)
    return WORKS


def _component(toolkit: CudaToolkit, name: str) -> Path | None:
    """The file by which a component was recognised."""
    return next((component.path for component in toolkit.components if component.name == name), None)


def _env(shell: str, system: System) -> int:
    """Print variables; those for C++ alone where there is no CUDA, with the reason on standard error."""
    found = survey(ToolchainRequest(need_cuda=True), system, find_configuration(system))
    print(render_variables(shell_variables(found.toolchain, system.environ), shell))
    if found.problem is not None:
        print(f"{found.problem.code}: {found.problem}", file=sys.stderr)
    return NO_CXX if found.cxx_problem else NO_CUDA if found.cuda_problem else WORKS


def _doctor(system: System, arguments: argparse.Namespace) -> int:
    """Print the report, and repair what it found if that was asked for."""
    report = examine_machine(system, smoke=arguments.smoke)
    if arguments.json:
        print(json.dumps(report.to_json(), indent=2))
    elif sys.stdout.isatty():
        _print_rich(report, verbose=arguments.verbose)
    else:
        print(render_report(report, verbose=arguments.verbose))
    if arguments.fix:
        return cli_install.fix(report, arguments, system, lambda: examine_machine(system, smoke=arguments.smoke))
    return report.exit_code


def _print_rich(report: Report, *, verbose: bool) -> None:
    """The report in colour, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(heading(), style="bold"))
    table = Table.grid(padding=(0, 2))
    for finding in report.findings:
        body = Text(report.redact(finding.message))
        if finding.next_step:
            body.append(report.redact(f"\nnext: {finding.next_step}"), style="italic")
        status = Text(finding.status, style=_COLOURS[finding.status])
        table.add_row(status, Text(finding.subject, style="bold"), body)
    console.print(table)
    for problem in report.problems:
        console.print(Text(report.redact(f"\n{problem.code}: {problem}")))
    if verbose:
        for block in _probe_lists(report):
            console.print(Text(report.redact(block)))
    console.print(Text(f"\n{report.verdict}", style="bold green" if report.exit_code == WORKS else "bold red"))
