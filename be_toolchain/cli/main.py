"""The command line, ``python -m be_toolchain``. Each command loads its own modules."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from be_toolchain.cli.guard import guarded
from be_toolchain.cli.parser import CHANGING, PARTS, build_parser
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.report.exit_codes import NO_CUDA, NO_CXX, USAGE_ERROR, WORKS
from be_toolchain.terminal import hand_over, say


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
    return guarded(lambda: _main(argv, system), "be_toolchain")


def _main(argv: Sequence[str] | None, system: System | None) -> int:
    """Read the arguments, and run the command that they name."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "doctor" and arguments.fix and arguments.json:
        parser.error("--fix shows a plan and asks: it does not go with --json")
    if arguments.command is None:
        parser.print_help()
        return WORKS
    return _run(arguments, system or LocalSystem())


def _run(arguments: argparse.Namespace, system: System) -> int:
    """Run the command of parsed arguments."""
    if arguments.command == "doctor":
        from be_toolchain.find.devices import ask_aside

        devices = ask_aside(system)  # the driver takes its time: the doctor is loaded, and looks around, meanwhile
        from be_toolchain.cli.doctor_command import run_doctor

        return run_doctor(arguments, system, devices)
    if arguments.command == "which":
        return _which(arguments.part, system)
    if arguments.command == "env":
        return _env(arguments.shell, system)
    if arguments.command == "explain":
        return _explain(arguments.code)
    if arguments.command == "completion":
        from be_toolchain.cli.completion import render_completion

        say(render_completion(arguments.shell))
        return WORKS
    if arguments.command == "list" and arguments.names:
        return _list_names(system)
    assert arguments.command in CHANGING
    from be_toolchain.cli.install_commands import run_command

    return run_command(arguments, system)


def _explain(code: str | None) -> int:
    """Print a code's section of the page of errors; all codes without one."""
    from be_toolchain.cli.error_page import explain, list_titles

    try:
        say(list_titles() if code is None else explain(code))
    except ValueError as error:
        say(str(error), file=sys.stderr)
        return USAGE_ERROR
    return WORKS


def _list_names(system: System) -> int:
    """Print what is in the store; a shell asks for it while somebody types."""
    from be_toolchain.machine.store_paths import PREFIXES
    from be_toolchain.machine.trust.own_store import distrust_managed, find_managed, find_store

    store = find_store(system).path
    if store is not None:
        names = find_managed(system, PREFIXES)
        for name in names:
            if not distrust_managed(system, store / name):
                hand_over(name)
    return WORKS


def _which(part: str, system: System) -> int:
    """Print one path."""
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.resolver import resolve
    from be_toolchain.model import ToolchainRequest

    try:
        toolchain = resolve(ToolchainRequest(need_cuda=part != "cxx"), system=system)
    except ToolchainError as error:
        say(f"{error.code}: {error}", file=sys.stderr)
        return NO_CXX if part == "cxx" else NO_CUDA
    if part == "cxx":
        assert toolchain.cxx is not None
        path: Path | None = toolchain.cxx.path
    else:
        assert toolchain.cuda is not None
        path = PARTS[part](toolchain.cuda)
    if path is None:
        say(f"the CUDA toolkit in use has no {part}", file=sys.stderr)
        return NO_CUDA
    hand_over(str(path))
    return WORKS


def _env(shell: str, system: System) -> int:
    """Print variables; those for C++ alone where there is no CUDA, with the reason on standard error."""
    from be_toolchain.cli.shell import render_variables, shell_variables
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.survey import survey
    from be_toolchain.model import ToolchainRequest
    from be_toolchain.settings.configuration import find_configuration, warn_of

    try:
        found = survey(ToolchainRequest(need_cuda=True), system, find_configuration(system, warn_of))
    except ToolchainError as error:
        say(f"{error.code}: {error}", file=sys.stderr)
        return NO_CXX
    hand_over(render_variables(shell_variables(found.toolchain, system.environ), shell))
    if found.problem is not None:
        say(f"{found.problem.code}: {found.problem}", file=sys.stderr)
    return NO_CXX if found.cxx_problem else NO_CUDA if found.cuda_problem else WORKS
