"""The command line, ``python -m be_toolchain``. Each command loads its own modules."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from be_toolchain.cli.guard import guarded
from be_toolchain.cli.parser import CHANGING, PARTS, build_parser
from be_toolchain.doctor.doctor import Remark, Report, examine_machine, heading, render_probe_lists, render_report
from be_toolchain.find.devices import DeviceReport
from be_toolchain.install.managed import sweep
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.terminal import NO_CUDA, NO_CXX, USAGE_ERROR, WORKS, hand_over, printable, say
from be_toolchain.values import ClangCuda, Nvcc, Toolchain


def shell_variables(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that make torch, CMake, CuPy and a plain nvcc use a toolchain.

    Parameters
    ----------
    toolchain : Toolchain
        The toolchain to use; without CUDA, only ``CXX`` is set.
    environ : Mapping of str to str
        The present variables. Lists are extended, not replaced; extending them twice changes nothing.

    Returns
    -------
    tuple of (name, value)
        ``LD_LIBRARY_PATH`` is never among them: it would override the libraries that come with jax.

    Examples
    --------
    >>> shell_variables(Toolchain(), {})
    ()
    """
    rows: list[tuple[str, str]] = []
    cuda = toolchain.cuda
    if cuda is not None:
        root = str(cuda.root)
        rows += [("CUDA_HOME", root), ("CUDA_PATH", root), *_compiler_variables(cuda.compiler)]
        rows += [
            (name, _extended(folders, environ.get(name, "")))
            for name, folders in (
                ("PATH", ((cuda.nvcc or cuda.ptxas).parent,)),
                ("CPATH", cuda.include_dirs),
                ("LIBRARY_PATH", cuda.library_dirs),
            )
        ]
    if toolchain.cxx is not None:
        rows.append(("CXX", str(toolchain.cxx.path)))
    return tuple(rows)


def _compiler_variables(compiler: Nvcc | ClangCuda) -> tuple[tuple[str, str], ...]:
    """Return the variables that name the CUDA compiler."""
    host = str(compiler.host.path)
    match compiler:
        case Nvcc():
            return ("CUDACXX", str(compiler.path)), ("CUDAHOSTCXX", host), ("NVCC_CCBIN", host)
        case ClangCuda():
            return (("CUDACXX", host),)


def _extended(folders: tuple[Path, ...], present: str) -> str:
    """Put folders before those already in a list, without empty entries, which mean the working folder."""
    return ":".join(dict.fromkeys((*map(str, folders), *filter(None, present.split(":")))))


def render_variables(variables: tuple[tuple[str, str], ...], shell: str) -> str:
    """Render variables as text for ``eval`` or ``source``, or as a JSON object.

    Examples
    --------
    >>> render_variables((("CXX", "/opt/my gcc/g++"),), "bash")
    "export CXX='/opt/my gcc/g++'"
    >>> render_variables((("CXX", "/usr/bin/g++"),), "fish")
    "set -gx CXX '/usr/bin/g++';"
    """
    if shell == "json":
        return json.dumps(dict(variables), indent=2)
    if shell == "fish":
        return "\n".join(f"set -gx {name} {_fish_quoted(value)};" for name, value in variables)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables)


def _fish_quoted(text: str) -> str:
    """Put a text in fish's single quotes, inside which only the quote and the backslash are special."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


PAGE = Path(__file__).parents[1] / "errors.md"

_SECTION = re.compile(r"^## (\w+)\n+(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\(([\w-]+\.md)?[^)]*\)")


def read_sections(text: str) -> dict[str, str]:
    r"""Split a page into the sections of its codes; a link to a page is followed by the page's name.

    Examples
    --------
    >>> read_sections("# Errors\n\n## BE101\n\nSee [Calls](calling.md#shapes).\n")
    {'BE101': 'See Calls (docs/calling.md).'}
    """

    def plain(link: re.Match[str]) -> str:
        text, page = link.groups()
        return text if page is None else f"docs/{page}" if text == page else f"{text} (docs/{page})"

    return {code: _LINK.sub(plain, section).strip() for code, section in _SECTION.findall(text)}


def titles() -> dict[str, str]:
    """Return the first line of each code's section: the error's name, and when it is raised."""
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    return {code: text.partition("\n")[0].replace("`", "") for code, text in sections.items()}


def list_titles() -> str:
    """Return all codes with their titles, a line each."""
    return "\n".join(f"{code}  {title}" for code, title in titles().items())


def explain(code: str) -> str:
    """Return the causes and remedies of a code.

    Parameters
    ----------
    code : str
        As an error says it, such as ``BE301``, in letters of either case.

    Raises
    ------
    ValueError
        No error has that code; the message lists those that have one.
    """
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    if code.upper() not in sections:
        raise ValueError(f"no error has the code {code!r}; there are {', '.join(sections)}")
    return sections[code.upper()]


_COLOURS = {"ok": "green", "note": "cyan", "warn": "yellow", "fail": "bold red"}


def run_doctor(arguments: argparse.Namespace, system: System, devices: Callable[[], DeviceReport]) -> int:
    """Print the report, and repair what it found if that was asked for; the exit code."""
    swept = tuple(Remark("note", "leftovers", removed) for removed in sweep(system))
    report = examine_machine(system, smoke=arguments.smoke, devices=devices)
    report = report._replace(findings=(*report.findings, *swept))
    if arguments.json:
        say(json.dumps(report.to_json(), indent=2))
    elif sys.stdout.isatty():
        _print_rich(report, verbose=arguments.verbose)
    else:
        say(render_report(report, verbose=arguments.verbose))
    if arguments.fix:
        from be_toolchain.cli.install_commands import fix

        return fix(report, arguments, system, lambda: examine_machine(system, smoke=arguments.smoke))
    return report.exit_code


def _print_rich(report: Report, *, verbose: bool) -> None:
    """The report in colour, for a terminal."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    def shown(text: str) -> str:
        return printable(report.redact(text))

    console = Console(highlight=False)
    console.print(Text(heading(), style="bold"))
    table = Table.grid(padding=(0, 2))
    for finding in report.findings:
        body = Text(shown(finding.message), overflow="fold")  # a path is of no use without its end
        if finding.next_step:
            body.append(shown(f"\nnext: {finding.next_step}"), style="italic")
        status = Text(finding.status, style=_COLOURS[finding.status])
        table.add_row(status, Text(finding.subject, style="bold"), body)
    console.print(table)
    for problem in report.explained:
        console.print(Text(shown(f"\n{problem.code}: {problem}")))
    if verbose:
        for block in render_probe_lists(report):
            console.print(Text(shown(block)))
    console.print(Text(f"\n{report.verdict}", style="bold green" if report.exit_code == WORKS else "bold red"))


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
    try:
        say(list_titles() if code is None else explain(code))
    except ValueError as error:
        say(str(error), file=sys.stderr)
        return USAGE_ERROR
    return WORKS


def _list_names(system: System) -> int:
    """Print what is in the store; a shell asks for it while somebody types."""
    from be_toolchain.machine.files import PREFIXES
    from be_toolchain.machine.trust import distrust_managed, find_managed, find_store

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
    from be_toolchain.find.record import resolve
    from be_toolchain.values import ToolchainRequest

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
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.survey import survey
    from be_toolchain.settings import find_configuration, warn_of
    from be_toolchain.values import ToolchainRequest

    try:
        found = survey(ToolchainRequest(need_cuda=True), system, find_configuration(system, warn_of))
    except ToolchainError as error:
        say(f"{error.code}: {error}", file=sys.stderr)
        return NO_CXX
    hand_over(render_variables(shell_variables(found.toolchain, system.environ), shell))
    if found.problem is not None:
        say(f"{found.problem.code}: {found.problem}", file=sys.stderr)
    return NO_CXX if found.cxx_problem else NO_CUDA if found.cuda_problem else WORKS
