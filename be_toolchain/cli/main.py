"""The command line, ``python -m be_toolchain``. Each command loads its own modules."""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from be_toolchain.cli.guard import guarded
from be_toolchain.cli.parser import CHANGING, build_parser
from be_toolchain.machine.local_system import LocalSystem
from be_toolchain.machine.system import System
from be_toolchain.terminal import NO_CUDA, NO_CXX, USAGE_ERROR, WORKS, hand_over, say, say_error, say_markdown
from be_toolchain.values import ClangCuda, CudaToolkit, Nvcc, Toolchain


def shell_variables(toolchain: Toolchain, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the variables that make torch, CMake, CuPy and a plain nvcc use a toolchain.

    Parameters
    ----------
    toolchain : Toolchain
        The toolchain to use; without CUDA, only ``CXX`` is set.
    environ : Mapping of str to str
        The present variables. Lists are extended, not replaced; a second extension changes nothing.

    Returns
    -------
    tuple of (name, value)
        The variables; never ``LD_LIBRARY_PATH``, which would override the libraries that come with JAX.

    Examples
    --------
    >>> shell_variables(Toolchain(), {})
    ()
    """
    rows: dict[str, str] = {}
    cuda = toolchain.cuda
    if cuda is not None:
        rows["CUDA_HOME"] = rows["CUDA_PATH"] = str(cuda.root)
        host = str(cuda.host_compiler.path)
        match cuda.compiler:
            case Nvcc(path=nvcc):
                rows |= {"CUDACXX": str(nvcc), "CUDAHOSTCXX": host, "NVCC_CCBIN": host}
            case ClangCuda():
                rows["CUDACXX"] = host
        programs = (cuda.nvcc or cuda.ptxas).parent
        lists = {"PATH": (programs,), "CPATH": cuda.include_dirs, "LIBRARY_PATH": cuda.library_dirs}
        for name, folders in lists.items():
            present = filter(None, environ.get(name, "").split(":"))  # an empty entry means the working folder
            rows[name] = ":".join(dict.fromkeys((*map(str, folders), *present)))
    if toolchain.cxx is not None:
        rows["CXX"] = str(toolchain.cxx.path)
    return tuple(rows.items())


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
        # In fish's single quotes, only the quote and the backslash are special.
        quoted = ((name, value.replace("\\", "\\\\").replace("'", "\\'")) for name, value in variables)
        return "\n".join(f"set -gx {name} '{value}';" for name, value in quoted)
    return "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables)


PAGE = Path(__file__).parents[1] / "errors.md"

_SECTION = re.compile(r"^## (\w+)\n+(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^]]+)\]\(([\w-]+\.md)?[^)]*\)")


def read_sections(text: str) -> dict[str, str]:
    r"""Split a page into the sections of its codes; the name of a linked page follows the text of the link.

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
    """Return all codes with their titles, one a line."""
    return "\n".join(f"{code}  {title}" for code, title in titles().items())


def explain(code: str) -> str:
    """Return the causes and remedies of a code.

    Parameters
    ----------
    code : str
        The code in an error's text, such as ``BE301``, in letters of either case.

    Raises
    ------
    ValueError
        No error has that code; the message lists all codes.
    """
    sections = read_sections(PAGE.read_text(encoding="utf-8"))
    if code.upper() not in sections:
        raise ValueError(f"no error has the code {code!r}; the codes are {', '.join(sections)}")
    return sections[code.upper()]


def _doctor(arguments: argparse.Namespace, system: System) -> int:
    """Print the report, repair its problems if that was asked for, and return the exit code."""
    from be_toolchain.find.devices import ask_aside

    devices = ask_aside(system)  # the driver takes 200 ms; meanwhile the doctor is imported and examines the rest

    from be_toolchain.doctor.doctor import Remark, examine_machine, print_rich, render_report
    from be_toolchain.install.managed import sweep

    swept = tuple(Remark("note", "leftovers", removed) for removed in sweep(system))
    report = examine_machine(system, smoke=arguments.smoke, devices=devices)
    report = report._replace(findings=(*report.findings, *swept))
    if arguments.json:
        say(json.dumps(report.to_json(), indent=2))
    elif sys.stdout.isatty():
        print_rich(report, verbose=arguments.verbose)
    else:
        say(render_report(report, verbose=arguments.verbose))
    if arguments.fix:
        from be_toolchain.cli.install_commands import fix

        return fix(report, arguments, system)
    return report.exit_code


def main(argv: Sequence[str] | None = None, *, system: System | None = None) -> int:
    """Run one command.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments. The default is the arguments of the process.
    system : System, optional
        The machine. The default is this machine.

    Returns
    -------
    int
        The exit code. Usage errors raise SystemExit, as argparse does.
    """
    return guarded(lambda: _run(argv, system or LocalSystem()), "be_toolchain")


def _run(argv: Sequence[str] | None, system: System) -> int:
    """Parse the arguments, and run the command that they name."""
    parser = build_parser()
    arguments = parser.parse_args(argv)
    if arguments.command == "doctor" and arguments.fix and arguments.json:
        parser.error("--fix asks before it changes anything, so it does not work with --json")
    match arguments.command:
        case None:
            parser.print_help()
        case "doctor":
            return _doctor(arguments, system)
        case "which":
            return _which(arguments.part, system)
        case "env":
            return _env(arguments.shell, system)
        case "explain":
            return _explain(arguments.code)
        case "completion":
            from be_toolchain.cli.completion import render_completion

            say(render_completion(arguments.shell))
        case "list" if arguments.names:
            _list_names(system)
        case _:
            assert arguments.command in CHANGING
            from be_toolchain.cli.install_commands import run_command

            return run_command(arguments, system)
    return WORKS


def _explain(code: str | None) -> int:
    """Print the section of a code on the page of errors; without a code, print all codes."""
    try:
        if code is None:
            say(list_titles())
        else:
            say_markdown(explain(code))
    except ValueError as error:
        say_error(error)
        return USAGE_ERROR
    return WORKS


def _list_names(system: System) -> None:
    """Print the names in the store; shells run this command to complete words."""
    from be_toolchain.machine.files import PREFIXES, distrust_managed, find_managed, find_store

    store = find_store(system).path
    if store is not None:
        for name in find_managed(system, PREFIXES):
            if not distrust_managed(system, store / name):
                hand_over(name)


def _which(part: str, system: System) -> int:
    """Print the path of one part."""
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.record import resolve
    from be_toolchain.values import ToolchainRequest

    try:
        toolchain = resolve(ToolchainRequest(need_cuda=part != "cxx"), system=system)
    except ToolchainError as error:
        say_error(f"{error.code}: {error}")
        return NO_CXX if part == "cxx" else NO_CUDA
    compiler, toolkit = toolchain.cxx, toolchain.cuda
    path = compiler and compiler.path if part == "cxx" else toolkit and _find_part(toolkit, part)
    if path is None:
        say_error(f"the CUDA toolkit in use has no {part}")
        return NO_CUDA
    hand_over(str(path))
    return WORKS


def _find_part(toolkit: CudaToolkit, part: str) -> Path | None:
    """Return the path of a part of `parser.PARTS`; None if the toolkit lacks it."""
    places: dict[str, Path | None] = {
        **{component.name: component.path for component in toolkit.components},
        **toolkit.flat(),
        "cudafe++": toolkit.flat()["cudafe"],
        "cudart": toolkit.cudart_shared or toolkit.cudart_static,
        "cudart-static": toolkit.cudart_static,
        "include": next(iter(toolkit.include_dirs), None),
        "host": toolkit.host_compiler.path,
    }
    return places.get(part)


def _env(shell: str, system: System) -> int:
    """Print variables; without CUDA, print only the C++ compiler's, and the reason to standard error."""
    from be_toolchain.errors import ToolchainError
    from be_toolchain.find.survey import survey
    from be_toolchain.settings import find_configuration, warn_of
    from be_toolchain.values import ToolchainRequest

    try:
        found = survey(ToolchainRequest(need_cuda=True), system, find_configuration(system, warn_of))
    except ToolchainError as error:
        say_error(f"{error.code}: {error}")
        return NO_CXX
    hand_over(render_variables(shell_variables(found.toolchain, system.environ), shell))
    if found.problem is not None:
        say_error(f"{found.problem.code}: {found.problem}")
    return NO_CXX if found.cxx_problem else NO_CUDA if found.cuda_problem else WORKS
